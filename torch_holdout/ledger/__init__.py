"""Durable accounts: what was asked, answered and charged. They belong to the data, not to a run.

A ledger stores what it is given, in one transaction, committed before anything returns. It decides
no answer and knows no raw value: that is ``holdout/`` and, for records, ``prediction/``.
"""

from typing import Any

from torch_holdout._shared.moved import old_name
from torch_holdout.ledger.holdouts import Entry, Recorded, Refusal, Summary
from torch_holdout.ledger.ledger import Ledger
from torch_holdout.ledger.verify import Finding, Verification, verify

__all__ = [
    "Entry",
    "Finding",
    "Ledger",
    "Recorded",
    "Refusal",
    "Summary",
    "Verification",
    "verify",
]
_HOLDOUTS, _RECORDS = "torch_holdout.ledger.holdouts", "torch_holdout.ledger.records"
_MOVED = dict.fromkeys(("Account", "Stored"), _HOLDOUTS) | dict.fromkeys(
    ("ChargeEntry", "Charged", "Debit", "Purpose", "RecordsAccount", "RecordsSummary"), _RECORDS
)


def __getattr__(name: str) -> Any:
    return old_name(__name__, name, _MOVED)
