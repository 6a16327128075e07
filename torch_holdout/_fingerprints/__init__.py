"""Fingerprints of code, data and weights. Storing them belongs to ``ledger/``."""
