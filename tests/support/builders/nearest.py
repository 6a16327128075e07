"""Records of a few clusters under an embedding that changes nothing, and predictors on them."""

import torch
from torch import nn
from torch_holdout.prediction import (
    EmbeddedRecords,
    NeighbourVotes,
    PrivacyBudget,
    PrivatePredictor,
)

VOTES = NeighbourVotes(rate=0.5, k=10, sigma=4.0)
BUDGET = PrivacyBudget(epsilon=8.0, delta=1e-5)


def clusters(count, seed=0, classes=3, features=4):
    """Return inputs near one of three corners, and the corners as labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    corners = 3 * torch.eye(classes, features)
    return corners[labels] + torch.randn(count, features, generator=generator), labels


def make_records(count=60, *, seed=0, unit="record", embed=None):
    records = EmbeddedRecords(embed or nn.Identity(), num_classes=3, unit=unit)
    x, y = clusters(count, seed)
    users = [row // 3 for row in range(count)] if unit == "user" else None
    records.add(x, y, ids=range(count), users=users)
    return records


def make_predictor(mechanism=VOTES, *, records=None, ledger="memory://", **options):
    options = {"budget": BUDGET, "name": "records", **options}
    return PrivatePredictor(records or make_records(), mechanism, ledger=ledger, **options)
