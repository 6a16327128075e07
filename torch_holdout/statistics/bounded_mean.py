"""Means of bounded per-example values: of a given function, accuracy, cross-entropy."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from torch_holdout._fingerprints.hashing import describe_function, qualified_name
from torch_holdout._shared.text import counted
from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.statistics.arrays import as_tensor, is_array
from torch_holdout.statistics.base import Mode, Statistic
from torch_holdout.statistics.sealed_sums import SealedSums, SummedLevels
from torch_holdout.statistics.undefined import heard_warnings


@dataclass(frozen=True)
class BoundedMean(Statistic):
    """The mean of per-example values clipped to ``[low, high]``.

    NaN and infinite values count as the worse bound (``high`` if smaller is better, else ``low``).

    Args:
        low: Smallest value an example can have; smaller ones are clipped.
        high: Largest value an example can have; larger ones are clipped.
        mode: Whether ``"min"`` or ``"max"`` is better.
        per_example: Optional function that ``update(*args)`` calls to get the values, one per
            example, e.g. from predictions and targets; any array will do.

    Example:
        >>> loss = BoundedMean(0.0, 5.0)
        >>> loss.units(500), loss.to_user(0.5)
        (500, 2.5)
    """

    _missing: ClassVar[float | bool] = math.nan  # what None in a list counts as

    low: float
    high: float
    mode: Mode = "min"
    per_example: Callable[..., Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._set_bounds(self.low, self.high, self.mode)
        if self.per_example is not None and not callable(self.per_example):
            raise InvalidArgumentError("Expected `per_example` to be a function or None.")

    def units(self, size: int) -> int:
        """Return ``size``: every example is a unit."""
        return size

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds and mode."""
        return {"kind": "bounded_mean", "low": self.low, "high": self.high, "mode": self.mode}

    def source(self) -> str:
        """Return the class's name and ``per_example``'s code and bound arguments."""
        function = "" if self.per_example is None else describe_function(self.per_example)
        return f"{type(self).__qualname__} {function}"

    def _empty(self, resolution: int) -> SealedSums:
        return SummedLevels(self.identity(), resolution, self.levels)

    def levels(self, arguments: tuple[Any, ...], named: dict[str, Any], resolution: int) -> Tensor:
        """Turn the arguments of one ``update`` into integer levels, one per example."""
        return self._quantise(self._values(arguments, named), resolution)

    def _values(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        if self.per_example is not None:
            with heard_warnings():  # and not shown: they may quote targets
                return _called(self.per_example, arguments, named)
        if len(arguments) != 1 or named:
            given = [type(a).__name__ for a in (*arguments, *named.values())]
            raise InvalidArgumentError(
                f"Expected `update(values)` with one array of per-example values, but got "
                f"{len(given)} arguments ({', '.join(given)}). To pass predictions and targets, "
                f"declare the statistic with `per_example=`, e.g. BoundedMean(0, 5, "
                f"per_example=my_loss)."
            )
        return as_tensor(arguments[0], self._missing)


@final
@dataclass(frozen=True, init=False, repr=False)
class ZeroOne(BoundedMean):
    """Accuracy: 1 for a right prediction, 0 for a wrong one.

    ``update(predictions, target)`` takes logits ``[B, C]`` or classes ``[B]``;
    ``update(correct)`` takes the comparison itself, as booleans or integers. Floating values are
    refused: soft ones belong to ``BoundedMean(0.0, 1.0, mode="max")``.

    Guarantee:
        Every example counts as exactly 0 or 1 (integers below 0 as 0, above 1 as 1), so the number
        of right ones is binomial. The ledger registers this kind, and a closed account has the
        exact interval of Clopper and Pearson (1934).

    Example:
        >>> import torch
        >>> ZeroOne().accumulator(resolution=1).update(torch.tensor([True, False]))
        >>> ZeroOne().mode
        'max'
    """

    _missing = False

    def __init__(self) -> None:
        super().__init__(0.0, 1.0, mode="max", per_example=None)

    def __repr__(self) -> str:
        return "ZeroOne()"

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds and mode."""
        return super().identity() | {"kind": "zero_one"}

    def source(self) -> str:
        """Return the statistic's name."""
        return "zero_one"

    def _values(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        if len(arguments) + len(named) == 2:
            return _called(_correct, *_tensors(arguments, named))
        values = super()._values(arguments, named)
        if values.is_floating_point():  # the type decides, never a value
            raise InvalidArgumentError(
                f"Expected booleans or integers, one for each example, but got {values.dtype}. "
                f"Drop .float():\n"
                f"-    (logits.argmax(1) == y).float()\n"
                f"+    logits.argmax(1) == y\n"
                f"For soft values use th.BoundedMean(0.0, 1.0, mode='max'). Nothing was charged."
            )
        return values


@final
@dataclass(frozen=True, init=False, repr=False)
class CrossEntropy(BoundedMean):
    """Cross-entropy of logits ``[B, C]`` and classes ``[B]``, clipped to ``[0, high]``.

    Example:
        >>> CrossEntropy(5.0)
        CrossEntropy(5.0)
    """

    def __init__(self, high: float) -> None:
        super().__init__(0.0, high, mode="min", per_example=_cross_entropy)

    def __repr__(self) -> str:
        return f"CrossEntropy({self.high})"

    def source(self) -> str:
        """Return the statistic's own name."""
        return "cross_entropy"

    def __reduce__(self) -> tuple[Any, ...]:
        return CrossEntropy, (self.high,)  # a pickle names public paths only

    def _values(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        return _called(_cross_entropy, *_tensors(arguments, named))


def _tensors(
    arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return arguments for a function of our own, which takes tensors."""
    return tuple(map(as_tensor, arguments)), {name: as_tensor(a) for name, a in named.items()}


def _called(
    function: Callable[..., object], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Tensor:
    """Call a function on holdout data; of its errors, which may quote the data, the type passes."""
    arrays = [a for a in (*arguments, *named.values()) if is_array(a)]

    def refusal(failure: str) -> InvalidArgumentError:
        # Not how long they are: a filter makes that a value.
        shapes = ", ".join(
            f"{counted(len(a.shape), 'dimension')} {getattr(a, 'dtype', '')} on "
            f"{getattr(a, 'device', 'cpu')}"
            for a in arrays
        )
        return InvalidArgumentError(
            f"Expected {qualified_name(function)} to return one value per example, for tensors "
            f"that all have the batch first, but got {failure} for {shapes or 'no tensors'}. Bind "
            f"others with functools.partial. An error's own message is withheld because it "
            f"may quote holdout data; call the function on training data to see it."
        )

    values = as_tensor(errors_by_type(lambda: function(*arguments, **named), refusal))
    if values.ndim == 1 and any(a.shape[0] != len(values) for a in arrays):
        raise refusal("another number of values (an argument was broadcast, or rows left out?)")
    return values


def _correct(preds: Tensor, target: Tensor) -> Tensor:
    if preds.ndim == 2 and preds.shape[1] > 1 and preds.shape[:1] == target.shape:
        # A row with a NaN is a wrong answer: argmax alone would pick the NaN's class.
        broken = preds.isnan().any(dim=1)
        return (preds.argmax(dim=1) == target).logical_and(broken.logical_not())
    if preds.shape == target.shape and not preds.is_floating_point():
        return preds == target
    raise InvalidArgumentError(
        f"Expected logits of shape [B, C] or integer classes of shape [B], and targets of shape "
        f"[B], but got others: {counted(preds.ndim, 'dimension')} ({preds.dtype}) and "
        f"{counted(target.ndim, 'dimension')} ({target.dtype}), not equally long or with no "
        f"classes. For one score per example pass the comparison yourself: update((scores > 0) == "
        f"target)."
    )


def _cross_entropy(preds: Tensor, target: Tensor) -> Tensor:
    if preds.dtype in (torch.float16, torch.bfloat16):
        preds = preds.float()
    target = target if target.is_floating_point() else target.long()
    return functional.cross_entropy(preds, target, reduction="none")
