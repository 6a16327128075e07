"""Durable accounts: what was asked, answered and charged. Belongs to the holdout, not to a run."""

from torch_holdout.ledger.account import Account, Entry, Stored
from torch_holdout.ledger.ledger import Ledger, Recorded, Summary

__all__ = ["Account", "Entry", "Ledger", "Recorded", "Stored", "Summary"]
