"""Models fitted so that one record moves them little.

Their noisy answers are ``prediction/mechanisms/stable_erm.py``.
"""
