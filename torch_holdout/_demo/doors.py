"""The holdouts an analyst of the experiments asks: a raw one and a guarded one.

A question is a table of values, [2, n]: first the n examples of the holdout, then n examples of the
analyst's own, which only a mechanism that compares with a training value reads.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._shared.checks import require_whole
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.mechanisms import Mechanism
from torch_holdout.statistics import SealedSums, Statistic, ZeroOne

STATISTIC = "value"


@final
@dataclass(frozen=True)
class Scale:
    """A statistic, its value by chance, and one example's standard deviation."""

    statistic: Statistic
    chance: float
    deviation: float

    def standard_error(self, size: int) -> float:
        """Return the standard error of a mean over ``size`` examples, bounds mapped to [0, 1].

        Example:
            >>> ACCURACY.standard_error(2500)
            0.01
        """
        width = self.statistic.high - self.statistic.low
        return self.deviation / (width * math.sqrt(size))


ACCURACY = Scale(ZeroOne(), chance=0.5, deviation=0.5)


class Door(ABC):
    """A holdout to ask; ``releases`` counts the answers that read it."""

    releases: int = 0

    @abstractmethod
    def ask(self, values: Tensor, queries: Sequence[str | WeightsFingerprint]) -> Tensor:
        """Answer questions [k, 2, n] in turn, as far as the budget goes: at most k answers."""

    @abstractmethod
    def claim(self, values: Tensor, query: str) -> float:
        """Return the value that is claimed for the final values, [2, n]."""


@final
class RawDoor(Door):
    """Answer with the holdout's mean, as validation loops do.

    Example:
        >>> door = RawDoor()
        >>> door.ask(torch.tensor([[[True, False], [True, True]]]), ["first"]), door.releases
        (tensor([0.5000], dtype=torch.float64), 1)
    """

    def ask(self, values: Tensor, queries: Sequence[str | WeightsFingerprint]) -> Tensor:
        """Answer all questions at once."""
        self.releases += len(values)
        return raw_mean(values[:, 0])

    def claim(self, values: Tensor, query: str) -> float:
        """Return the holdout's mean."""
        return float(self.ask(values[None], [query]))


@final
class GuardedDoor(Door):
    """Asks a guarded holdout, and keeps its last release for the claim.

    Args:
        holdout: Has one statistic, called ``STATISTIC``.
        guess: The guess, for mechanisms that want one; None: the mean of the analyst's examples.

    Example:
        >>> from torch_holdout.mechanisms import LaplaceMechanism
        >>> mechanism = LaplaceMechanism(epsilon=1000.0)
        >>> door = guarded_door(mechanism, ACCURACY, size=4, budget=3, seed=0)
        >>> values = torch.ones(5, 2, 4, dtype=torch.bool)
        >>> door.ask(values, ["a", "b", "c", "d", "e"]).tolist(), door.claim(values[0], "final")
        ([1.0, 1.0], 1.0)
    """

    def __init__(self, holdout: ReusableHoldout, guess: float | None = None) -> None:
        self._holdout = holdout
        self._guess = guess
        self._left = holdout.budget_left
        self._last = math.nan

    def ask(self, values: Tensor, queries: Sequence[str | WeightsFingerprint]) -> Tensor:
        """Answer until one release is left: it is needed for the claim."""
        answers: list[float] = []
        for value, query in zip(values, queries, strict=True):
            if self._left <= 1:
                break
            answers.append(self._release(value, query))
        return torch.tensor(answers, dtype=torch.float64)

    def claim(self, values: Tensor, query: str) -> float:
        """Return the answer; of an exhausted holdout the last one, as a user would see it."""
        return self._release(values, query)

    def _release(self, values: Tensor, query: str | WeightsFingerprint) -> float:
        sums = self._holdout.accumulator(STATISTIC)
        sums.update(values[0])
        answer = self._holdout.release(STATISTIC, sums, query=query, guess=self._training(values))
        self._left = answer.budget_left
        self.releases += answer.kind == "release"
        if answer.kind != "exhausted":
            self._last = answer.value
        return self._last

    def _training(self, values: Tensor) -> float | SealedSums | None:
        if not self._holdout.mechanism.wants_guess() or self._guess is not None:
            return self._guess
        sums = self._holdout.accumulator(STATISTIC, role="guess")
        sums.update(values[1])
        return sums


def raw_mean(values: Tensor) -> Tensor:
    """Return the mean over the examples, [..., n] to [...].

    Example:
        >>> float(raw_mean(torch.tensor([True, False])))
        0.5
    """
    return values.mean(dim=-1, dtype=torch.float64)


def guarded_door(
    mechanism: Mechanism,
    scale: Scale,
    *,
    size: int,
    budget: int,
    seed: int,
    guess: float | None = None,
) -> GuardedDoor:
    """Open a throw-away holdout with reproducible noise; its grid has half a standard error.

    Example:
        >>> from torch_holdout.mechanisms import Ladder
        >>> ladder = Ladder(step=0.1)
        >>> door = guarded_door(ladder, ACCURACY, size=100, budget=5, seed=0)
        >>> door.claim(torch.ones(2, 100, dtype=torch.bool), "perfect")
        1.0
    """
    require_whole("size", size, 1, 2**24)
    holdout = ReusableHoldout(
        "memory://",
        name="attacked",
        size=size,
        statistics={STATISTIC: scale.statistic},
        mechanism=mechanism,
        budget=budget,
        grid=2 ** math.ceil(math.log2(2 / scale.standard_error(size))),
        seed=seed,
    )
    return GuardedDoor(holdout, guess)
