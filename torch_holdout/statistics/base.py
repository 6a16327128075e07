"""The base class of all statistics: bounds, units, and per-example values as integer levels.

A value is clipped to the declared bounds, mapped to [0, 1] and rounded to one of ``resolution + 1``
integer levels; levels are summed in int64. So replacing one example changes the sum by at most
``resolution``, exactly, and the sum does not depend on batch size, order or number of ranks.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from torch_holdout._shared.checks import require_choice, require_number
from torch_holdout._shared.distributed import share_of
from torch_holdout._shared.tensors import is_plain
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.statistics.layouts import require_own_values
from torch_holdout.statistics.sealed_sums import SealedSums

Mode = Literal["min", "max"]
_NARROWEST = 2.0**-32  # of the larger bound
_SMALLEST_WIDTH = 1e-300


class Statistic(ABC):
    """A bounded value per unit, averaged over the units."""

    needs_order: ClassVar[bool] = False  # whether rows must come in the dataset's order
    cuts_blocks: ClassVar[bool] = True  # whether the order is needed to cut blocks
    parts: ClassVar[tuple[str, ...]] = ()  # the sums it is made of, where these are several
    low: float
    high: float
    mode: Mode

    @abstractmethod
    def units(self, size: int) -> int:
        """Return over how many independent parts the mean runs for ``size`` examples."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the parameters that the ledger stores and compares."""

    @abstractmethod
    def source(self) -> str:
        """Return the name of the code that makes the values: part of a query's identity."""

    @abstractmethod
    def _empty(self, resolution: int) -> SealedSums: ...

    def accumulator(
        self,
        resolution: int,
        *,
        owner: tuple[str, ...] = (),
        size: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> SealedSums:
        """Return an empty sealed sum; ``size`` examples of the whole pass go to ``world`` ranks.

        ``owner`` says what it is for: the door compares it, with the statistic's identity.
        """
        sums = self._empty(resolution)
        sums.owner, sums.world, sums.size = owner, world, size
        if size is not None and world > 1:
            sums.limit = share_of(size, rank, world)
        return sums

    def settled(self, total: int, size: int, resolution: int) -> int:
        """Return the sum of levels over the units from that over ``size`` examples. Raw."""
        return total

    def to_user(self, normalised: float) -> float:
        """Map [0, 1] to the user's units, never outside the bounds."""
        return min(max(self.low + (self.high - self.low) * normalised, self.low), self.high)

    def to_normalised(self, value: float) -> float:
        """Map a value in the user's units to [0, 1]."""
        return (value - self.low) / (self.high - self.low)

    def _set_bounds(self, low: float, high: float, mode: Mode) -> None:
        for name, bound in (("low", low), ("high", high)):
            require_number(name, bound)
            object.__setattr__(self, name, float(bound))
        if not self.low < self.high:
            raise InvalidArgumentError(
                f"Expected `low` to be smaller than `high`, but got low={self.low} and "
                f"high={self.high}. Give the smallest and largest value one example can have."
            )
        width = self.high - self.low
        if not math.isfinite(width):
            raise InvalidArgumentError("Expected `high - low` to be finite; narrow the bounds.")
        # Answers are floats between the bounds: they must be able to lie on a grid there.
        if width < max(_NARROWEST * max(abs(self.low), abs(self.high)), _SMALLEST_WIDTH):
            raise InvalidArgumentError(
                f"Expected `high - low` to be at least {_SMALLEST_WIDTH:g} and {_NARROWEST:.1g} of "
                f"the larger bound, so that floats can tell the answers apart, but got "
                f"low={self.low} and high={self.high}. Subtract an offset from the values, or "
                f"scale them."
            )
        require_choice("mode", mode, ("min", "max"))
        object.__setattr__(self, "mode", mode)

    def _quantise(self, values: Tensor, resolution: int) -> Tensor:
        """Clip, normalise and round to levels; a value that is not finite takes the worse bound."""
        return self._levels_of(own_numbers(values), resolution)

    def _levels_of(self, numbers: Tensor, resolution: int) -> Tensor:
        worse = self.high if self.mode == "min" else self.low
        unit = numbers.nan_to_num(worse, worse, worse).clamp_(self.low, self.high)
        unit.sub_(self.low).div_(self.high - self.low)
        return unit.mul_(resolution).round_().to(torch.int64)


class OrderedStatistic(Statistic):
    """A statistic of all rows at once, which come after the pass in the dataset's order."""

    needs_order: ClassVar[bool] = True

    @abstractmethod
    def total(self, columns: tuple[Tensor | list[Any], ...], resolution: int) -> int:
        """Return the sum of levels of all rows. Raw."""


def own_numbers(values: Tensor) -> Tensor:
    """Return a copy of values in the precision of levels; raise unless each example has one."""
    _require_per_example(values)
    mps = values.device.type == "mps"  # which has no float64
    return values.detach().to(torch.float32 if mps else torch.float64, copy=True)


def _require_per_example(values: Tensor) -> None:
    if values.ndim == 0:
        raise InvalidArgumentError(
            "Expected one value per example, but got a single number (a batch mean?), which hides "
            "how much one example can change it. The mean is taken for you; give:\n"
            "-    F.cross_entropy(logits, y)\n"
            '+    F.cross_entropy(logits, y, reduction="none")'
        )
    if values.ndim != 1:
        raise InvalidArgumentError(
            f"Expected a tensor of shape [B], one value per example, but got one of {values.ndim} "
            f"dimensions. Reduce the others first, e.g. values.flatten(1).mean(1)."
        )
    if values.is_complex() or not is_plain(values):
        raise InvalidArgumentError(
            f"Expected a dense tensor of real values, but got {values.dtype}, {values.layout}."
        )
    require_own_values(values)
