"""Durable accounts: what was asked, answered and charged. Belongs to the holdout, not to a run."""

from torch_holdout.ledger.sql import Account, Entry, Ledger, Stored, Summary

__all__ = ["Account", "Entry", "Ledger", "Stored", "Summary"]
