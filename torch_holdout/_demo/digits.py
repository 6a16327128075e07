"""The demo's data and network: digits with 30 % label noise."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from torch_holdout._noise.fixed import coin_flips, fixed_integers, fixed_permutation, normal_numbers

EXAMPLES, PIXELS = 1797, 64
TRAIN, HOLDOUT = 400, 700
CLASSES = 10
BLUR = 0.7  # makes generated patterns about as hard to tell apart as the digits


def splits(seed: int = 0) -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """Return training, holdout and fresh digits; 30 % of all labels are replaced at random."""
    pictures, names = _real_digits() if has_digits() else _generated_digits()
    order = fixed_permutation(len(names), seed)
    x, y = pictures[order], names[order]
    bits = coin_flips((len(y), 20), seed + 1).long()
    weights = 2 ** torch.arange(10)
    noisy = bits[:, :10] @ weights < 0.3 * 1024
    y = torch.where(noisy, (bits[:, 10:] @ weights) % CLASSES, y)
    cuts = (slice(TRAIN), slice(TRAIN, TRAIN + HOLDOUT), slice(TRAIN + HOLDOUT, None))
    train, holdout, fresh = (TensorDataset(x[cut], y[cut]) for cut in cuts)
    return train, holdout, fresh


def has_digits() -> bool:
    """Whether scikit-learn is installed, for its digits; without it patterns are generated."""
    return find_spec("sklearn") is not None


def _real_digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.tensor(bunch.data, dtype=torch.float32) / 16
    return x, torch.tensor(bunch.target, dtype=torch.long)


def _generated_digits() -> tuple[Tensor, Tensor]:
    """Return pictures of ten fixed patterns, each with its own noise, and their classes."""
    y = fixed_integers(CLASSES, (EXAMPLES,), seed=1)
    patterns = coin_flips((CLASSES, PIXELS), seed=2).float()
    noise = normal_numbers((EXAMPLES, PIXELS), seed=3)
    return (patterns[y] + BLUR * noise).clamp(0, 1), y


def network(pl: Any, *, guarded: bool, worst: float) -> Any:
    """Return the module that every way trains; without a guard it logs the clipped loss."""

    class Net(pl.LightningModule):  # type: ignore[misc]
        """A network large enough to learn the wrong labels by heart."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, CLASSES))

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            """Learn from the noisy labels."""
            return functional.cross_entropy(self.layers(batch[0]), batch[1])

        def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> dict[str, Any] | None:
            """Hand predictions and labels to the guard, or log what plain code logs."""
            outputs = self.layers(batch[0])
            if guarded:
                return {"val_loss": (outputs, batch[1])}
            losses = functional.cross_entropy(outputs, batch[1], reduction="none")
            self.log("val_loss", losses.clamp(0, worst).mean(), prog_bar=True)
            return None

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Return Adam."""
            return torch.optim.Adam(self.parameters(), lr=4e-3)

    return Net()
