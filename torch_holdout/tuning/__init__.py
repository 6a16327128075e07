"""Sweeps whose trials share one holdout, in ``tuning/optuna.py`` and ``tuning/ray.py``.

Here is what both have in common; neither Optuna nor Ray is imported. Values come from the door as
everywhere else: a sweep only says which trial asked, and claims what was released.
"""

from torch_holdout.tuning.claims import Claim, reask

__all__ = ["Claim", "reask"]
