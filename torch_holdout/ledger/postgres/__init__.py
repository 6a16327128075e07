"""Ledgers on a PostgreSQL server. What is stored is decided in ``ledger/``."""
