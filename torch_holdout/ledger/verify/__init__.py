"""Checks of a ledger from end to end, read only; opening one calls the same replay."""

from torch_holdout.ledger.verify.verification import Finding, Verification, verify

__all__ = ["Finding", "Verification", "verify"]
