"""The parameters of a board: checked when it is made, compared when it is opened again."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

from torch_holdout._shared.checks import (
    plain_whole,
    require_between,
    require_failure,
    require_instance,
    require_text,
    require_whole,
)
from torch_holdout.bounds.certificate import SMALLEST_FAILURE
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.board_levels import Part, require_fit
from torch_holdout.mechanisms.base import DEFAULT_RESOLUTION
from torch_holdout.mechanisms.board import Feedback
from torch_holdout.statistics import BoundedMean, Statistic

_LARGEST = {"size": 2**40, "vault_size": 2**40, "submissions": 10**9, "budget": 2**31 - 1}
_LARGEST_SUM = 2**62
_FINEST = 2**62  # answer intervals


@final
@dataclass(frozen=True, kw_only=True)
class BoardRegistration:
    """The parameters of a board; the arguments are those of ``BoardHoldout``."""

    name: str
    size: int
    statistics: Mapping[str, Statistic]
    feedback: Feedback
    budget: int
    submissions: int
    vault_size: int = 0
    failure: float = 0.05
    registered: Mapping[str, str | bytes] = field(default_factory=dict, repr=False)
    resolution: int | None = None
    grid: int | None = None

    def __post_init__(self) -> None:
        require_text("name", self.name)
        require_instance("feedback", self.feedback, Feedback)
        values, sealed = self.feedback.shows_values, self.feedback.mode == "sealed"
        least = {"size": 0 if sealed else 1, "vault_size": 0, "submissions": 1, "budget": values}
        for name, largest in _LARGEST.items():
            value = plain_whole(getattr(self, name))
            require_whole(name, value, int(least[name]), largest)
            object.__setattr__(self, name, value)
        if not self.size and not self.vault_size:
            raise InvalidArgumentError("Expected rows, but got size=0 and vault_size=0.")
        for name, largest in (("resolution", 2**24), ("grid", 2**31)):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 1, largest)
        require_failure(self.failure, SMALLEST_FAILURE)
        object.__setattr__(self, "failure", float(self.failure))
        self._check_statistics()
        self._check_feedback()
        self._check_registered()

    @property
    def levels(self) -> int:
        """Integer levels of one row's value."""
        return DEFAULT_RESOLUTION if self.resolution is None else self.resolution

    @property
    def first(self) -> str:
        """The statistic that decides."""
        return next(iter(self.statistics))

    @cached_property
    def open_part(self) -> Part:
        """The rows that give feedback; of a sealed board all but the vault's."""
        return self._part("the board", self.size)

    @cached_property
    def final_part(self) -> Part:
        """The rows that are judged: the vault's, or without one all."""
        vault = self._part("the vault", self.vault_size)
        return vault if self.vault_size else self.open_part

    def grid_of(self, name: str) -> int:
        """Return the number of answer intervals of a statistic; a step is at least one of them."""
        if self.grid is not None:
            return self.grid
        units = (self.open_part if self.size else self.final_part).units(name)
        finest = max(4 * math.sqrt(units), 1 / (self.feedback.step or 1))
        return int(2 ** math.ceil(math.log2(finest)))

    def identity(self) -> dict[str, Any]:
        """Return the parameters that the ledger stores and compares."""
        part = self.open_part if self.size else self.final_part
        return {
            "size": self.size,
            "vault_size": self.vault_size,
            "statistics": {
                name: statistic.identity() | {"units": part.units(name), "grid": self.grid_of(name)}
                for name, statistic in self.statistics.items()
            },
            "feedback": self.feedback.identity(),
            "budget": self.budget,
            "submissions": self.submissions,
            "failure": self.failure,
            "resolution": self.levels,
            "registered": {n: t for n, t in self.registered.items() if isinstance(t, str)},
        }

    @property
    def digests(self) -> dict[str, bytes]:
        """What is registered by a digest only."""
        return {n: content for n, content in self.registered.items() if isinstance(content, bytes)}

    def _part(self, name: str, size: int) -> Part:
        whole = f"{name} of {self.name!r}" if name == "the vault" else f"board {self.name!r}"
        return Part(whole, size, dict(self.statistics), self.levels)

    def _check_statistics(self) -> None:
        if not isinstance(self.statistics, Mapping) or not self.statistics:
            raise InvalidArgumentError(
                "Expected `statistics` to map names to statistics, e.g. "
                '{"accuracy": th.ZeroOne()}, with at least one entry.'
            )
        for name, statistic in self.statistics.items():
            require_text("statistics", name)
            require_instance(f"statistics[{name!r}]", statistic, Statistic)
            require_fit(name, statistic)
            for size in filter(None, (self.size, self.vault_size)):
                if statistic.units(size) * self.levels**2 >= _LARGEST_SUM:
                    raise InvalidArgumentError(
                        f"Expected sums of squares below 2^62, but {size} rows of {self.levels} "
                        f"levels exceed that. Choose a smaller resolution."
                    )

    def _check_feedback(self) -> None:
        first, feedback = self.statistics[self.first], self.feedback
        if feedback.baseline is not None:
            require_between("baseline", feedback.baseline, first.low, first.high)
        grid = self.grid_of(self.first)
        if grid > _FINEST:  # with none of these a better value could be written down
            raise InvalidArgumentError(
                f"Expected a `step` of at least {1 / _FINEST:g}, but got {feedback.step:g}."
            )
        if feedback.step is not None and feedback.step * grid < 1:
            raise InvalidArgumentError(
                f"Expected a `step` of at least {1 / grid:g}, one of the {grid} answer intervals, "
                f"but got {feedback.step:g}."
            )
        if feedback.mode == "gate":
            if not isinstance(first, BoundedMean):
                raise InvalidArgumentError(
                    f"Expected a gate on a statistic with one value for each row, which can be "
                    f"paired, but {self.first!r} is {type(first).__name__}."
                )
            if feedback.margin is not None:
                require_between("margin", feedback.margin, 0, first.high - first.low)

    def _check_registered(self) -> None:
        require_instance("registered", self.registered, Mapping)
        for name, content in self.registered.items():
            require_text("registered", name)
            require_instance(f"registered[{name!r}]", content, str | bytes)
