"""What identifies code, data and weights. Nothing is stored here: that is ``ledger/``."""
