"""Ledgers in a file of this machine. What is stored is decided in ``ledger/``."""
