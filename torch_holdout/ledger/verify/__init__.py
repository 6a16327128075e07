"""Checks of a ledger from end to end, read only; opening one calls the same replay."""

from torch_holdout.ledger.verify.verification import Finding as Finding
from torch_holdout.ledger.verify.verification import Verification as Verification
from torch_holdout.ledger.verify.verification import verify as verify
