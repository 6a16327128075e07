"""What the catalogue is made of: patterns, and a small module whose raw values are known."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch_holdout as th
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from support.builders.holdouts import make_holdout

SIZE, BATCH = 16, 8
MARK = "# <-"  # at the end of the line that the message must name
X = torch.randn(SIZE, 4, generator=torch.Generator().manual_seed(0))
Y = torch.linspace(0.1, 0.9, SIZE) ** 0.7  # each example's loss, whatever the weights


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Careless code, and what the refusal must say.

    Args:
        build: Takes the namespace; returns a module, or a module and callbacks placed first.
        names: Words of the message: an attribute, a key, a hook.
        net: Which net catches it: "one" (what was logged) or "two" (marked tensors).
        run: The Trainer's method.
        leaks: Whether Lightning's sinks hold the raw value when nothing guards.
        charged: Whether it comes after the answer of a pass that had no sanity check before.
        logger: "csv", or "tensorboard" where the pattern needs its methods.
        raises: The class of the error.
        trainer: Arguments of the Trainer.
    """

    build: Callable
    names: tuple[str, ...]
    net: str
    run: str = "fit"
    leaks: bool = True
    charged: bool = False
    logger: str = "csv"
    raises: str = "UnguardedLogError"
    trainer: dict = field(default_factory=dict)

    @property
    def written(self):
        """The function that shows the careless code."""
        return getattr(self.build, "shows", self.build)

    @property
    def id(self):
        return f"{Path(inspect.getsourcefile(self.written)).stem}-{self.build.__name__}"

    @property
    def lines(self):
        """``file:line`` of the marked lines."""
        source, first = inspect.getsourcelines(self.written)
        name = Path(inspect.getsourcefile(self.written)).name
        return [f"{name}:{first + n}" for n, line in enumerate(source) if MARK in line]

    def case(self, pl):
        built = self.build(pl)
        return built if isinstance(built, tuple) else (built, [])


def register(patterns, net):
    """A decorator that adds a factory to the patterns of a file."""

    def careless(*names, **options):
        def add(build):
            patterns.append(Pattern(build=build, names=names, net=net, **options))
            return build

        return add

    return careless


def small(pl):
    """A module that keeps its step clean; a pattern adds what is careless.

    Its loss does not depend on the weights, so that the raw values are known in every epoch.
    """

    class Small(pl.LightningModule):
        def __init__(self, **attributes):
            super().__init__()
            self.layer = nn.Linear(4, 1)
            for name, value in attributes.items():
                setattr(self, name, value)

        def forward(self, x):
            return self.layer(x).flatten()

        def loss(self, batch):
            x, y = batch
            return (self(x) * 0.0 + y).abs()

        def careless(self, batch, loss):
            """Called by the step with the batch and the per-example loss."""

        def later(self):
            """A value that is logged at the end of the training epoch, where that is allowed."""

        def training_step(self, batch, batch_idx):
            return self(batch[0]).square().mean()

        def validation_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.careless(batch, loss)
            return {"val_loss": loss}

        def test_step(self, batch, batch_idx):
            return self.validation_step(batch, batch_idx)

        def on_train_epoch_end(self):
            value = self.later()
            if value is not None:
                self.log("late", float(value))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Small


def folder(module):
    """Where a module writes files of its own."""
    path = Path(module.trainer.default_root_dir)
    path.mkdir(parents=True, exist_ok=True)
    return path


def raw_values():
    """Everything raw that a pattern may let out: examples, sums and means, of batches and all."""
    found = [*Y.tolist(), *X.flatten().tolist()]
    for values in (X, Y):
        for part in (values, *values.split(BATCH)):
            found += [float(f(part)) for f in (torch.mean, torch.sum, torch.std)]
            found += [float(part.double().mean()), float(part.double().sum())]
    return found


def val_loader():
    return DataLoader(TensorDataset(X, Y), batch_size=BATCH)


def train_loader():
    x = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, torch.full((BATCH,), 0.5)), batch_size=BATCH)


def holdout(**changes):
    arguments = {
        "size": SIZE,
        "statistics": {"val_loss": th.BoundedMean(0.0, 1.0)},
        "mechanism": th.Thresholdout(threshold=0.02, sigma=0.01, guess="last"),
        "budget": 50,
        "seed": 0,
    }
    return make_holdout(**{**arguments, **changes})
