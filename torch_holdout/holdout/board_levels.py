"""The values of a submission as integer levels, one for each unit. Raw."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from torch_holdout._shared.checks import require_instance
from torch_holdout.errors import InvalidArgumentError, PartialPassError
from torch_holdout.holdout.filling import are_arguments
from torch_holdout.ledger.run_events import Sums
from torch_holdout.statistics import Blockwise, BoundedMean, GroupedMean, Statistic
from torch_holdout.statistics.sealed_sums import checked_rows


@final
@dataclass(frozen=True, repr=False)
class Part:
    """The rows that values are given for: those that give feedback, or the vault's."""

    name: str
    size: int
    statistics: Mapping[str, Statistic]
    resolution: int

    def levels(self, values: object) -> dict[str, Tensor]:
        """Return the levels of all statistics; raise unless there is a value for every row.

        Nothing that is raised depends on a value.
        """
        require_instance("values", values, Mapping)
        given: Mapping[str, Any] = values  # type: ignore[assignment]
        if set(given) != set(self.statistics):
            raise InvalidArgumentError(
                f"Expected values of the statistics {list(self.statistics)}, but got those of "
                f"{list(given)}. Nothing was charged."
            )
        return {name: self._levels(name, given[name]) for name in self.statistics}

    def sums(self, levels: Tensor) -> Sums:
        """Return the sum of levels and of their squares."""
        return Sums(int(levels.sum()), int((levels * levels).sum()))

    def units(self, name: str) -> int:
        """Return how many parts a statistic's mean runs over."""
        return self.statistics[name].units(self.size)

    def _levels(self, name: str, values: Any) -> Tensor:
        statistic = self.statistics[name]
        arguments = values if are_arguments(values) else (values,)
        if isinstance(statistic, Blockwise):
            rows = checked_rows(arguments, {})
            self._require_size(name, len(rows[0]))
            return statistic.levels(rows, self.resolution).cpu()
        if not isinstance(statistic, BoundedMean):
            raise unfit(name, statistic)
        levels = statistic.levels(arguments, {}, self.resolution)
        self._require_size(name, len(levels))
        return levels.clamp(0, self.resolution).cpu()

    def _require_size(self, name: str, rows: int) -> None:
        if rows != self.size:
            raise PartialPassError(
                f"Expected values of {name!r} for all {self.size} rows of {self.name}, each once, "
                f"but got another number. Nothing was charged."
            )


def require_fit(name: str, statistic: Statistic) -> None:
    """Raise unless a board can have the statistic."""
    plain = isinstance(statistic, BoundedMean) and not isinstance(statistic, GroupedMean)
    if not plain and not isinstance(statistic, Blockwise):
        raise unfit(name, statistic)


def unfit(name: str, statistic: Statistic) -> InvalidArgumentError:
    """Return the error for a statistic that a board cannot have."""
    return InvalidArgumentError(
        f"Expected statistics with one value for each row or block, but {name!r} is "
        f"{type(statistic).__name__}. Use th.ZeroOne, th.CrossEntropy, th.BoundedMean or "
        f"th.Blockwise."
    )
