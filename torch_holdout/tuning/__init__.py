"""Sweeps whose trials share one holdout: ``torch_holdout.tuning.optuna`` and ``.ray``.

Here is what both have in common; neither Optuna nor Ray is imported.
"""

from torch_holdout.tuning.claims import Claim, reask

__all__ = ["Claim", "reask"]
