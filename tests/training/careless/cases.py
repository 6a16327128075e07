"""What the catalogue of ordinary modules is made of."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch_holdout as th
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from support.builders.holdouts import make_holdout

SIZE, BATCH = 16, 4


@dataclass(kw_only=True)
class Case:
    """A module and what it is run with; what is not given is a small classifier's."""

    module: Any
    callbacks: list = field(default_factory=list)
    train: Any = None
    val: Any = None
    trainer: dict = field(default_factory=dict)
    guard: dict = field(default_factory=dict)
    unseen: bool = False  # whether the guard says that it could not look
    run: Callable | None = None  # called with (trainer, module, train, val) instead of fit


def register(cases):
    """A decorator that adds a factory to the cases of a file."""

    def ordinary(build):
        cases.append(build)
        return build

    return ordinary


def case_of(build, pl):
    built = build(pl)
    return built if isinstance(built, Case) else Case(module=built)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def classes(x):
    return (x.flatten(1)[:, 0] > 0).long() + (x.flatten(1)[:, 1] > 0).long()


def loaders(*tensors, labels=True, **options):
    """Loaders of training and holdout examples made from functions of a seed."""
    found = []
    for seed in (1, 2):
        made = [tensor(seed) for tensor in tensors]
        made += [classes(made[0].float())] if labels else []
        found.append(DataLoader(TensorDataset(*made), batch_size=BATCH, **options))
    return found


def images(seed):
    return noise(SIZE, 1, 8, 8, seed=seed)


def sequences(seed):
    return noise(SIZE, 6, 4, seed=seed)


def vectors(seed):
    return noise(SIZE, 4, seed=seed)


def holdout():
    """Exact answers, with one grid point for each possible sum."""
    return make_holdout(
        size=SIZE,
        statistics={"val_loss": th.BoundedMean(0.0, 8.0)},
        mechanism=th.Thresholdout(threshold=0.0, sigma=0.0, guess="last"),
        budget=50,
        grid=SIZE * 65536,
        seed=0,
    )


def plain(pl):
    """A classifier with dropout; a case replaces ``make`` and what else is different."""

    class Plain(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.make()

        def make(self):
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))

        def forward(self, x):
            return self.net(x)

        def losses(self, batch):
            x, y = batch
            return functional.cross_entropy(self(x), y, reduction="none")

        def training_step(self, batch, batch_idx):
            return self.losses(batch).mean()

        def validation_step(self, batch, batch_idx):
            return {"val_loss": self.losses(batch)}

        def test_step(self, batch, batch_idx):
            return self.validation_step(batch, batch_idx)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    return Plain
