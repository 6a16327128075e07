"""Models fitted so that one record moves them little: the model behind ``StableERM``."""
