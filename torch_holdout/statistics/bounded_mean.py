r"""Statistics: per-example values on the device in, one sealed integer sum out.

A value is clipped to the declared bounds, mapped to [0, 1] and rounded to one of ``resolution + 1``
integer levels; levels are summed in int64. So replacing one example changes the sum by at most
``resolution``, exactly, and the sum does not depend on batch size, order or number of ranks.
"""

import contextlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NoReturn, final

import torch
from torch import Tensor
from torch.nn import functional

from torch_holdout._fingerprints.hashing import describe_function, is_plain, qualified_name
from torch_holdout._shared.checks import require_choice, require_number
from torch_holdout.errors import HoldoutError, InvalidArgumentError, SealedValueError

Mode = Literal["min", "max"]


class Statistic(ABC):
    """What may be asked of a holdout: a bounded value per unit, averaged over the units.

    One that ``buffers`` needs all rows at once: ``rows`` checks a batch of them and ``total`` turns
    all of them into the sum of levels.
    """

    buffers: ClassVar[bool] = False
    low: float
    high: float
    mode: Mode

    @abstractmethod
    def units(self, size: int) -> int:
        """Return over how many independent parts the mean runs for ``size`` examples."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what the ledger stores and compares when the holdout is opened again."""

    @abstractmethod
    def source(self) -> str:
        """Name the code that makes the values; part of a query's identity, not of the account."""

    @abstractmethod
    def levels(self, arguments: tuple[Any, ...], named: dict[str, Any], resolution: int) -> Tensor:
        """Turn the arguments of one ``update`` into integer levels, one per example."""

    def rows(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Tensor, ...]:
        """Check the arguments of one ``update``, if they are buffered."""
        raise NotImplementedError

    def total(self, columns: tuple[Tensor, ...], resolution: int) -> int:
        """Return the sum of levels of all buffered rows. Raw."""
        raise NotImplementedError

    def to_user(self, normalised: float) -> float:
        """Map [0, 1] back to the user's own units, never outside the bounds."""
        return min(max(self.low + (self.high - self.low) * normalised, self.low), self.high)

    def to_normalised(self, value: float) -> float:
        """Map a value in the user's units to [0, 1]."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class BoundedMean(Statistic):
    """The mean of per-example values clipped to ``[low, high]``.

    NaN and infinite values count as the worse bound (``high`` if smaller is better, else ``low``).

    Args:
        low: Smallest value an example can have; smaller ones are clipped.
        high: Largest value an example can have; larger ones are clipped.
        mode: Whether ``"min"`` or ``"max"`` is better.
        per_example: Optional function that ``update(*args)`` calls to get the values, one per
            example, e.g. from predictions and targets.

    Example:
        >>> loss = BoundedMean(0.0, 5.0)
        >>> loss.units(500), loss.to_user(0.5)
        (500, 2.5)
    """

    low: float
    high: float
    mode: Mode = "min"
    per_example: Callable[..., Tensor] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            require_number(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        if not self.low < self.high:
            raise InvalidArgumentError(
                f"Expected `low` to be smaller than `high`, but got low={self.low} and "
                f"high={self.high}. Give the smallest and largest value one example can have."
            )
        if not math.isfinite(self.high - self.low):
            raise InvalidArgumentError("Expected `high - low` to be finite; narrow the bounds.")
        require_choice("mode", self.mode, ("min", "max"))
        if self.per_example is not None and not callable(self.per_example):
            raise InvalidArgumentError("Expected `per_example` to be a function or None.")

    def units(self, size: int) -> int:
        """Return ``size``: every example is a unit."""
        return size

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds and mode."""
        return {
            "kind": "bounded_mean",
            "low": self.low,
            "high": self.high,
            "mode": self.mode,
        }

    def source(self) -> str:
        """Name the class and describe ``per_example``, code and bound arguments included."""
        function = "" if self.per_example is None else describe_function(self.per_example)
        return f"{type(self).__qualname__} {function}"

    def levels(self, arguments: tuple[Any, ...], named: dict[str, Any], resolution: int) -> Tensor:
        """Clip, normalise and round; never reads the device."""
        return self._quantise(self._values(arguments, named), resolution)

    def _values(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        if self.per_example is not None:
            quiet = self.per_example is _cross_entropy
            return _call_without_leaking(self.per_example, arguments, named, quiet=quiet)
        if len(arguments) != 1 or named:
            raise InvalidArgumentError(
                f"Expected `update(values)` with one tensor of per-example values, but got "
                f"{len(arguments) + len(named)} arguments. To pass predictions and targets, "
                f"declare the statistic with `per_example=`, e.g. BoundedMean(0, 5, "
                f"per_example=my_loss)."
            )
        if not isinstance(arguments[0], Tensor):
            raise InvalidArgumentError(
                f"Expected a tensor of per-example values, but got {type(arguments[0]).__name__}."
            )
        return arguments[0]

    def _quantise(self, values: Tensor, resolution: int) -> Tensor:
        _require_per_example(values)
        values = values.detach().to(_wide_float(values.device))
        unit = (values.clamp(self.low, self.high) - self.low) / (self.high - self.low)
        worse = 1.0 if self.mode == "min" else 0.0
        unit = torch.where(torch.isfinite(values), unit, worse)
        return (unit * resolution).round().to(torch.int64)


@final
@dataclass(frozen=True, init=False, repr=False)
class ZeroOne(BoundedMean):
    """Accuracy: 1 for a right prediction, 0 for a wrong one.

    ``update(predictions, target)`` takes logits ``[B, C]`` or classes ``[B]``;
    ``update(correct)`` takes what is right or wrong already.

    Example:
        >>> ZeroOne()
        ZeroOne()
        >>> ZeroOne().mode
        'max'
    """

    def __init__(self) -> None:
        super().__init__(0.0, 1.0, mode="max", per_example=None)

    def __repr__(self) -> str:
        return "ZeroOne()"

    def source(self) -> str:
        """Return the statistic's own name."""
        return "zero_one"

    def _values(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        if len(arguments) + len(named) == 2:
            return _call_without_leaking(_correct, arguments, named, quiet=True)
        return super()._values(arguments, named)


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


@final
class SealedSums:
    """A raw sum on the device. It can be added to and handed to the door, and nothing else.

    Under data-parallel evaluation with the usual padded sampler, example j of rank r is real if
    ``j * world + r < size``: each rank keeps its first ``ceil((size - r) / world)`` examples.

    Example:
        >>> sums = SealedSums(BoundedMean(0.0, 1.0), resolution=65536)
        >>> sums.update(torch.tensor([0.25, 0.75]))
        >>> sums
        <sealed sum of 2 examples>
    """

    __slots__ = (
        "_rows", "_sealed", "kept", "limit", "owner", "resolution", "seen", "statistic", "world",
    )  # fmt: skip

    def __init__(
        self,
        statistic: Statistic,
        resolution: int,
        *,
        owner: tuple[str, ...] = (),
        size: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.statistic = statistic
        self.resolution = resolution
        self.owner = owner
        self.world = world
        self.seen = 0
        self.kept = 0
        self.limit = None if size is None or world == 1 else max(0, -(-(size - rank) // world))
        self._sealed: Tensor | None = None
        self._rows: list[tuple[Tensor, ...]] = []

    def update(self, *arguments: Any, **named: Any) -> None:
        """Add one batch. Works on any device and reads nothing back."""
        if self.statistic.buffers:
            self._buffer(self.statistic.rows(arguments, named))
            return
        levels = self.statistic.levels(arguments, named, self.resolution).clamp(0, self.resolution)
        self.seen += levels.shape[0]
        if self.limit is not None:
            levels = levels.narrow(0, 0, min(len(levels), max(0, self.limit - self.kept)))
        self.kept += levels.shape[0]
        batch = levels.sum()
        # Not in place: a tensor made under inference_mode could not be changed outside it.
        self._sealed = batch if self._sealed is None else self._sealed.to(batch.device) + batch

    def _buffer(self, rows: tuple[Tensor, ...]) -> None:
        if self._rows and _layout(rows) != _layout(self._rows[0]):
            raise InvalidArgumentError(
                "Expected every batch to have the same number of tensors, shapes beyond the batch "
                "and types as the first, but this one differs. Nothing was released or charged."
            )
        batch = len(rows[0])
        self.seen += batch
        if self.limit is not None:
            batch = min(batch, max(0, self.limit - self.kept))
        self.kept += batch
        # Copies: a caller that reuses its buffers would put one example into many blocks.
        self._rows.append(tuple(column.narrow(0, 0, batch).clone() for column in rows))

    def update_counted(self, values: Tensor, counts: Tensor, examples: int) -> None:
        """Add ``counts[i]`` examples of value ``values[i]`` at once, ``examples`` in all.

        The same integers as adding them one by one, for a histogram over a finite universe.
        """
        if self.statistic.buffers:
            raise InvalidArgumentError("Expected rows, not counts, for a statistic by blocks.")
        levels = self.statistic.levels((values,), {}, self.resolution).clamp(0, self.resolution)
        self.seen += examples
        self.kept += examples
        batch = (levels * counts).sum()
        self._sealed = batch if self._sealed is None else self._sealed.to(batch.device) + batch

    def __repr__(self) -> str:
        return f"<sealed sum of {self.kept} examples>"

    def _refuse(self, *_: object) -> NoReturn:
        raise SealedValueError(
            "Expected a sealed holdout sum to go to `ReusableHoldout.release`; it has no value, "
            "no copy and no pickle of its own. Ask the holdout for an answer instead."
        )

    __float__ = __int__ = __index__ = __complex__ = __array__ = _refuse
    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse


def _layout(rows: tuple[Tensor, ...]) -> list[tuple[object, ...]]:
    return [(column.dtype, column.device, tuple(column.shape[1:])) for column in rows]


def _correct(preds: Tensor, target: Tensor) -> Tensor:
    if preds.ndim == 2 and preds.shape[1] > 1 and preds.shape[:1] == target.shape:
        # A row with a NaN is nobody's right answer: argmax alone would pick the NaN's class.
        broken = preds.isnan().any(dim=1)
        return (preds.argmax(dim=1) == target).logical_and(broken.logical_not())
    if preds.shape == target.shape and not preds.is_floating_point():
        return preds == target
    raise InvalidArgumentError(
        f"Expected logits of shape [B, C] or integer classes of shape [B], and targets of shape "
        f"[B], but got {tuple(preds.shape)} ({preds.dtype}) and "
        f"{tuple(target.shape)} ({target.dtype}). For one score per example pass the comparison "
        f"yourself: update((scores > 0) == target)."
    )


def _cross_entropy(preds: Tensor, target: Tensor) -> Tensor:
    if preds.dtype in (torch.float16, torch.bfloat16):
        preds = preds.float()
    return functional.cross_entropy(preds, target, reduction="none")


def _require_per_example(values: Tensor) -> None:
    if values.ndim == 0:
        raise InvalidArgumentError(
            "Expected one value per example, but got a single number (a batch mean?). A mean hides "
            "how much one example can change it. Average it yourself where you need the mean, and "
            "here give:\n"
            "-    F.cross_entropy(logits, y)\n"
            '+    F.cross_entropy(logits, y, reduction="none")'
        )
    if values.ndim != 1:
        raise InvalidArgumentError(
            f"Expected a tensor of shape [B], one value per example, but got shape "
            f"{tuple(values.shape)}. Reduce the other dimensions first, e.g. "
            f"values.flatten(1).mean(1)."
        )
    if values.is_complex() or not is_plain(values):
        raise InvalidArgumentError(
            f"Expected a dense tensor of real values, but got {values.dtype}, {values.layout}."
        )


def _call_without_leaking(
    function: Callable[..., object],
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    *,
    quiet: bool = False,
) -> Tensor:
    """Call user code; its exceptions and warnings may quote targets, so only their kind passes.

    A function that is ``quiet`` is ours and gives no warnings: their filters are left alone.
    """
    values: object = None
    try:
        with contextlib.nullcontext() if quiet else warnings.catch_warnings():
            if not quiet:
                warnings.simplefilter("ignore")
            values = function(*arguments, **named)
    except HoldoutError:
        raise
    except Exception as error:
        failure = type(error).__name__
    else:
        failure = f"a result of type {type(values).__name__}"
    tensors = [a for a in (*arguments, *named.values()) if isinstance(a, Tensor) and a.ndim]
    if isinstance(values, Tensor):
        if values.ndim != 1 or all(len(a) == len(values) for a in tensors):
            return values
        failure = f"{len(values)} values (an argument was broadcast?)"
    # Raised outside the handler, so that the original is not attached as context.
    shapes = ", ".join(f"{tuple(a.shape)} {a.dtype} on {a.device}" for a in tensors)
    raise InvalidArgumentError(
        f"Expected {qualified_name(function)} to return one value per example, for tensors that "
        f"all have the batch first, but got {failure} for {shapes or 'no tensors'}. Bind other "
        f"tensors with functools.partial. An error's own message is withheld because it may quote "
        f"holdout data; call the function on training data to see it."
    )


def _wide_float(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # MPS has no float64
