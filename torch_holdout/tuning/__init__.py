"""Sweeps whose trials share one holdout, with Optuna or Ray; neither is imported here."""

from torch_holdout.tuning.claims import Claim, reask

__all__ = ["Claim", "reask"]
