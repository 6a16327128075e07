"""Predictors with a small budget, over members that need no training."""

from torch_holdout.prediction import PrivacyBudget, PrivatePredictor
from torch_holdout.prediction.mechanisms import (
    ConfidentGNMax,
    GNMax,
    PermuteAndFlip,
    SoftMajority,
)

from support.builders.members import Members

LABELS = [
    SoftMajority(eta=0.3),
    PermuteAndFlip(epsilon=0.3),
    GNMax(sigma=8.0),
    ConfidentGNMax(threshold=10.0, sigma_check=8.0, sigma_answer=8.0),
]
BUDGET = PrivacyBudget(epsilon=4.0, delta=1e-5)


def make(mechanism=LABELS[0], *, ensemble=None, ledger="memory://", **options):
    options = {"budget": BUDGET, "name": "records", **options}
    return PrivatePredictor(ensemble or Members(), mechanism, ledger=ledger, **options)
