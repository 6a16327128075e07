"""Sweeps whose trials share one holdout, with Optuna or Ray. ``holdout/`` decides the answers."""

from torch_holdout.tuning.claims import Claim, reask

__all__ = ["Claim", "reask"]
