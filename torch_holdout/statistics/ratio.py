"""Quotients of two means: losses per token or pixel, accuracy in a group."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from torch_holdout.errors import InvalidArgumentError
from torch_holdout.statistics.base import Mode, Statistic
from torch_holdout.statistics.bounded_mean import BoundedMean, ZeroOne
from torch_holdout.statistics.sealed_sums import SealedSums, SummedLevels


@final
@dataclass(frozen=True)
class Ratio(Statistic):
    r"""The quotient of two means over the examples, clipped to ``[low, high]``.

    For what is weighted: loss per token (the sum of a sequence's token losses over its number of
    tokens), loss per pixel, accuracy in a group. ``update(numerators, denominators)`` takes one of
    each for every example; a guarded step returns ``{"val_loss": (numerators, denominators)}``.
    Both are summed exactly and divided once, after the pass.

    A value that is not finite counts as the bound that makes the quotient worse: a numerator as its
    upper bound if smaller is better, else its lower; a denominator the other way round (as long as
    the numerator's bound is not negative). If the denominators sum to 0, the quotient is its worse
    bound.

    Guarantee:
        The claim is about E[numerator] / E[denominator], both clipped as declared, cut to ``[low,
        high]``: not the mean of the examples' quotients. One number is published, and costs what
        one statistic costs; both means hold at once, at :math:`c + \ln 2` each where a single mean
        has c (``bounds.ratios``). Before closing a claim needs a denominator whose registered lower
        bound is above 0, and is the narrower the larger that is; after closing both sums are known,
        and the quotient of their intervals is used.

    One example may move a quotient by any amount, so there is no noise for it: only mechanisms
    without noise take it.

    Args:
        numerator: Bounds of one example's numerator, as ``th.BoundedMean(low, high)``, or
            ``th.ZeroOne()``.
        denominator: Those of its denominator, which is never negative.
        low: The quotient's smallest value; smaller ones are clipped.
        high: Its largest value; larger ones are clipped.
        mode: Whether ``"min"`` or ``"max"`` is better.

    Example:
        >>> tokens, losses = BoundedMean(1, 128), BoundedMean(0.0, 1280.0)
        >>> Ratio(losses, tokens, low=0.0, high=10.0).units(size=500)
        500
        >>> Ratio(ZeroOne(), ZeroOne(), 0.0, 1.0, mode="max").mode  # right, in the group
        'max'
    """

    parts: ClassVar[tuple[str, ...]] = ("numerator", "denominator")

    numerator: BoundedMean
    denominator: BoundedMean
    low: float
    high: float
    mode: Mode = "min"

    def __post_init__(self) -> None:
        self._set_bounds(self.low, self.high, self.mode)
        for name in self.parts:
            _require_mean(name, getattr(self, name))
        if self.denominator.low < 0:
            raise InvalidArgumentError(
                f"Expected a denominator that is never negative, such as a number of tokens or "
                f"pixels, but its bounds begin at {self.denominator.low:g}. Change the sign of "
                f"both, or declare its smallest value."
            )
        smallest, largest = self._reach()
        if self.high <= smallest or self.low >= largest:
            raise InvalidArgumentError(
                f"Expected `low` and `high` to be in the quotient's own units, but from "
                f"{self.low:g} to {self.high:g} no quotient of these bounds lies: they begin at "
                f"{smallest:g} and end at {largest:g}."
            )

    def units(self, size: int) -> int:
        """Return ``size``: every example is a unit."""
        return size

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds and mode, and kind and bounds of both parts."""
        bounds = {"kind": "ratio", "low": self.low, "high": self.high, "mode": self.mode}
        kept = ("kind", "low", "high")
        means = {name: getattr(self, name).identity() for name in self.parts}
        return bounds | {name: {key: own[key] for key in kept} for name, own in means.items()}

    def source(self) -> str:
        """Return the statistic's name."""
        return "ratio"

    def levels(self, arguments: tuple[Any, ...], named: dict[str, Any], resolution: int) -> Tensor:
        """Turn the arguments of one ``update`` into integer levels: two columns, [B, 2]."""
        if len(arguments) != 2 or named:
            given = [type(a).__name__ for a in (*arguments, *named.values())]
            raise InvalidArgumentError(
                f"Expected `update(numerators, denominators)` with two arrays, one value of each "
                f"for every example, but got {len(given)} arguments ({', '.join(given)}). A "
                f'guarded step returns {{"val_loss": (numerators, denominators)}}.'
            )
        columns = [
            mean.levels((values,), {}, resolution)
            for mean, values in zip(self._means(), arguments, strict=True)
        ]
        if len(columns[0]) != len(columns[1]):  # not how long: a filter makes that a value
            raise InvalidArgumentError(
                "Expected as many denominators as numerators, one of each for every example, but "
                "one tensor is longer. Nothing was released or charged."
            )
        device = next((c.device for c in columns if c.device.type != "cpu"), columns[0].device)
        return torch.stack([column.to(device) for column in columns], dim=1)

    def _empty(self, resolution: int) -> SealedSums:
        return SummedLevels(self.identity(), resolution, self.levels)

    def _means(self) -> tuple[BoundedMean, BoundedMean]:
        """Return both means, with the mode whose worse bound makes the quotient worse."""
        # Dividing by less makes a positive quotient larger.
        if self.mode == "min":
            divisor: Mode = "max" if self.numerator.high > 0 else "min"
        else:
            divisor = "min" if self.numerator.low >= 0 else "max"
        return _with_mode(self.numerator, self.mode), _with_mode(self.denominator, divisor)

    def _reach(self) -> tuple[float, float]:
        """Return the smallest and largest quotient that the bounds of both parts allow."""
        above, below = self.denominator.high, self.denominator.low
        smallest = _divided(self.numerator.low, below if self.numerator.low < 0 else above)
        largest = _divided(self.numerator.high, below if self.numerator.high > 0 else above)
        return smallest, largest


def _require_mean(name: str, mean: object) -> None:
    # A subclass may count other units or take other arguments.
    if type(mean) not in (BoundedMean, ZeroOne):
        raise InvalidArgumentError(
            f"Expected `{name}` to be the bounds of one value for each example, "
            f"th.BoundedMean(low, high) or th.ZeroOne(), but got {type(mean).__name__}."
        )
    if isinstance(mean, BoundedMean) and mean.per_example is not None:
        raise InvalidArgumentError(
            f"Expected `{name}` without `per_example`: update(numerators, denominators) takes the "
            f"values themselves. Compute them in the step."
        )


def _with_mode(mean: BoundedMean, mode: Mode) -> BoundedMean:
    return mean if isinstance(mean, ZeroOne) else BoundedMean(mean.low, mean.high, mode=mode)


def _divided(numerator: float, denominator: float) -> float:
    if numerator == 0:
        return 0.0
    return numerator / denominator if denominator else float("inf" if numerator > 0 else "-inf")
