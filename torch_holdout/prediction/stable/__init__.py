"""Models fitted so that one record moves them little: what ``prediction/mechanisms/stable_erm.py`` answers from."""
