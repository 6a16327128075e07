"""Durable accounts: what was asked, answered and charged. They belong to the data, not to a run.

A ledger stores what it is given, in one transaction, committed before anything returns. It decides
no answer and knows no raw value: that is ``holdout/`` and, for records, ``prediction/``.
"""

from torch_holdout.ledger.holdouts import Account, Entry, Stored
from torch_holdout.ledger.ledger import Charged, Ledger, Recorded, Refusal, Summary
from torch_holdout.ledger.records import (
    ChargeEntry,
    Debit,
    Purpose,
    RecordsAccount,
    RecordsSummary,
)
from torch_holdout.ledger.verify.verification import Finding, Verification, verify

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
