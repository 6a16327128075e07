r"""Statistics: per-example values on the device in, one sealed integer sum out.

A value is clipped to the declared bounds, mapped to [0, 1] and rounded to one of ``resolution + 1``
integer levels; levels are summed in int64. So replacing one example changes the sum by at most
``resolution``, exactly, and the sum does not depend on batch size, order or number of ranks.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, final

import torch
from torch import Tensor
from torch.nn import functional

from torch_holdout.errors import HoldoutError, InvalidArgumentError, SealedValueError

Mode = Literal["min", "max"]


class Statistic(ABC):
    """What may be asked of a holdout: a bounded value per unit, averaged over the units."""

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
    def levels(self, arguments: tuple[Any, ...], resolution: int) -> Tensor:
        """Turn the arguments of one ``update`` into integer levels, one per example."""

    def to_user(self, normalised: float) -> float:
        """Map [0, 1] back to the user's own units."""
        return self.low + (self.high - self.low) * normalised

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
            if not _is_finite_number(getattr(self, name)):
                raise InvalidArgumentError(
                    f"Expected `{name}` to be a finite number, but got {getattr(self, name)!r}."
                )
        if not self.low < self.high:
            raise InvalidArgumentError(
                f"Expected `low` to be smaller than `high`, but got low={self.low} and "
                f"high={self.high}. Give the smallest and largest value one example can have."
            )
        if not math.isfinite(self.high - self.low):
            raise InvalidArgumentError("Expected `high - low` to be finite; narrow the bounds.")
        if self.mode not in ("min", "max"):
            raise InvalidArgumentError(
                f"Expected `mode` to be 'min' or 'max', but got {self.mode!r}."
            )
        if self.per_example is not None and not callable(self.per_example):
            raise InvalidArgumentError("Expected `per_example` to be a function or None.")

    def units(self, size: int) -> int:
        """Return ``size``: every example is a unit."""
        return size

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds and mode."""
        return {
            "kind": "bounded_mean",
            "low": float(self.low),
            "high": float(self.high),
            "mode": self.mode,
        }

    def source(self) -> str:
        """Return the qualified name of ``per_example``, or an empty string."""
        return "" if self.per_example is None else _qualified_name(self.per_example)

    def levels(self, arguments: tuple[Any, ...], resolution: int) -> Tensor:
        """Clip, normalise and round; never reads the device."""
        return self._quantise(self._values(arguments), resolution)

    def _values(self, arguments: tuple[Any, ...]) -> Tensor:
        if self.per_example is not None:
            return _call_without_leaking(self.per_example, arguments)
        if len(arguments) != 1:
            raise InvalidArgumentError(
                f"Expected `update(values)` with one tensor of per-example values, but got "
                f"{len(arguments)} arguments. To pass predictions and targets, declare the "
                f"statistic with `per_example=`, e.g. BoundedMean(0, 5, per_example=my_loss)."
            )
        values = arguments[0]
        if not isinstance(values, Tensor):
            raise InvalidArgumentError(
                f"Expected a tensor of per-example values, but got {type(values).__name__}."
            )
        return values

    def _quantise(self, values: Tensor, resolution: int) -> Tensor:
        _require_per_example(values)
        wide = values.dtype in (torch.float64, torch.int64, torch.int32, torch.uint8)
        dtype = torch.float64 if wide and values.device.type != "mps" else torch.float32
        values = values.detach().to(dtype)
        worse = self.high if self.mode == "min" else self.low
        values = torch.where(torch.isfinite(values), values, worse)
        unit = (values.clamp(self.low, self.high) - self.low) / (self.high - self.low)
        return (unit * resolution).round().to(torch.int64).clamp(0, resolution)


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

    def _values(self, arguments: tuple[Any, ...]) -> Tensor:
        if len(arguments) == 2:
            return _call_without_leaking(_correct, arguments)
        return super()._values(arguments)


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

    __slots__ = ("_sealed", "kept", "limit", "resolution", "seen", "statistic", "world")

    def __init__(
        self,
        statistic: Statistic,
        resolution: int,
        *,
        size: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.statistic = statistic
        self.resolution = resolution
        self.world = world
        self.seen = 0
        self.kept = 0
        self.limit = None if size is None or world == 1 else max(0, -(-(size - rank) // world))
        self._sealed: Tensor | None = None

    def update(self, *arguments: Any) -> None:
        """Add one batch. Works on any device and reads nothing back."""
        levels = self.statistic.levels(arguments, self.resolution)
        self.seen += levels.shape[0]
        if self.limit is not None:
            levels = levels[: max(0, self.limit - self.kept)]
        self.kept += levels.shape[0]
        batch = levels.sum()
        # Not in place: a tensor made under inference_mode could not be changed outside it.
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


def _correct(predictions: Tensor, target: Tensor) -> Tensor:
    if predictions.ndim == 2 and predictions.shape[1] > 1 and target.ndim == 1:
        # A row with a NaN is nobody's right answer: argmax alone would pick the NaN's class.
        return (predictions.argmax(dim=1) == target) & ~predictions.isnan().any(dim=1)
    if predictions.shape == target.shape and not predictions.is_floating_point():
        return predictions == target
    raise InvalidArgumentError(
        f"Expected logits of shape [B, C] or integer classes of shape [B], and targets of shape "
        f"[B], but got {tuple(predictions.shape)} ({predictions.dtype}) and "
        f"{tuple(target.shape)} ({target.dtype}). For one score per example pass the comparison "
        f"yourself: update((scores > 0) == target)."
    )


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return functional.cross_entropy(logits, target, reduction="none")


def _require_per_example(values: Tensor) -> None:
    if values.ndim == 0:
        raise InvalidArgumentError(
            "Expected one value per example, but got a single number (a batch mean?). A mean hides "
            "how much one example can change it. Change two lines:\n"
            "-    loss = F.cross_entropy(logits, y)\n"
            "-    metric.update(loss)\n"
            '+    loss = F.cross_entropy(logits, y, reduction="none")\n'
            "+    metric.update(loss)            # and average it yourself where you need the mean"
        )
    if values.ndim != 1:
        raise InvalidArgumentError(
            f"Expected a tensor of shape [B], one value per example, but got shape "
            f"{tuple(values.shape)}. Reduce the other dimensions first, e.g. "
            f"values.flatten(1).mean(1)."
        )
    if values.is_complex():
        raise InvalidArgumentError(f"Expected real values, but got {values.dtype}.")


def _call_without_leaking(function: Callable[..., object], arguments: tuple[Any, ...]) -> Tensor:
    """Call user code; its exceptions and warnings may quote targets, so only their kind passes."""
    values: object = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = function(*arguments)
    except HoldoutError:
        raise
    except Exception as error:
        failure = type(error).__name__
    else:
        if isinstance(values, Tensor):
            return values
        failure = f"a result of type {type(values).__name__}"
    # Raised outside the handler, so that the original is not attached as context.
    shapes = ", ".join(
        f"{tuple(a.shape)} {a.dtype} on {a.device}" if isinstance(a, Tensor) else type(a).__name__
        for a in arguments
    )
    raise InvalidArgumentError(
        f"Expected {_qualified_name(function)} to return a tensor of per-example values, but got "
        f"{failure} for arguments ({shapes}). Its message is withheld because it may quote holdout "
        f"data; call the function on training data to see it."
    )


def _qualified_name(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", "")
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{module}.{name}"


def _is_finite_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
