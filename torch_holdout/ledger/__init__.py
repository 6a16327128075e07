"""Durable accounts: what was asked, answered and charged. Belongs to the data, not to a run."""

from torch_holdout.ledger.account import Account, Entry, Stored
from torch_holdout.ledger.ledger import Charged, Ledger, Recorded, Refusal, Summary
from torch_holdout.ledger.records import (
    ChargeEntry,
    Debit,
    Purpose,
    RecordsAccount,
    RecordsSummary,
)
from torch_holdout.ledger.verify import Finding, Verification, verify

__all__ = [
    "Account",
    "ChargeEntry",
    "Charged",
    "Debit",
    "Entry",
    "Finding",
    "Ledger",
    "Purpose",
    "Recorded",
    "RecordsAccount",
    "RecordsSummary",
    "Refusal",
    "Stored",
    "Summary",
    "Verification",
    "verify",
]
