"""The holdout service: the data's owner answers predictions from a process of its own."""
