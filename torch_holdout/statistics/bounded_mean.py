"""Means of bounded per-example values: of a given function, accuracy, cross-entropy."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn import functional

from torch_holdout._fingerprints.hashing import describe_function, qualified_name
from torch_holdout._shared.checks import (
    plain_whole,
    require_choice,
    require_number,
    require_whole,
    shown,
)
from torch_holdout._shared.text import counted
from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.statistics.arrays import as_tensor, is_array
from torch_holdout.statistics.base import Mode, Statistic, own_numbers
from torch_holdout.statistics.sealed_sums import JoinedLevels, SealedSums
from torch_holdout.statistics.undefined import heard_warnings

_IGNORED = -100  # as torch has it
_OPTIONS = {"reduce": None, "ignore_index": _IGNORED, "class_dim": 1}  # of CrossEntropy, as usual


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
        return JoinedLevels(
            self.identity(),
            resolution,
            self.levels,
            values=lambda arguments, named: own_numbers(self._values(arguments, named)),
            quantise=self._levels_of,
        )

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

    ``update(predictions, target)`` takes

    - logits ``[B, C]`` and classes ``[B]``: the largest logit is the prediction;
    - classes ``[B]`` or ``[B, 1]``, as integers or booleans, and classes ``[B]``;
    - logits ``[B]`` or ``[B, 1]`` and targets 0 or 1 of the same shape or ``[B]``: a logit above
      ``threshold`` predicts 1;
    - logits, integers or booleans ``[B, L]`` and targets ``[B, L]`` of 0 and 1 (several labels): an
      example is right if all its labels are. For the share of right labels of each example use
      ``BoundedMean(0.0, 1.0, mode="max")``.

    ``update(correct)`` takes the comparison itself, as booleans or integers. Floating values are
    refused there: soft ones belong to ``BoundedMean(0.0, 1.0, mode="max")``. A NaN is a wrong
    prediction.

    Args:
        threshold: Above it a single score predicts 1: 0 for logits, 0.5 for probabilities.

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
    threshold: float = 0.0

    def __init__(self, *, threshold: float = 0.0) -> None:
        super().__init__(0.0, 1.0, mode="max", per_example=None)
        require_number("threshold", threshold)
        object.__setattr__(self, "threshold", float(threshold))

    def __repr__(self) -> str:
        return f"ZeroOne(threshold={self.threshold:g})" if self.threshold else "ZeroOne()"

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds and mode."""
        return super().identity() | {"kind": "zero_one"}

    def source(self) -> str:
        """Return the statistic's name, and another threshold than that of logits."""
        return f"zero_one threshold={self.threshold}" if self.threshold else "zero_one"

    def _values(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        if len(arguments) + len(named) == 2:
            correct = partial(_correct, threshold=self.threshold)
            return _called(correct, *_tensors(arguments, named))
        values = super()._values(arguments, named)
        if values.ndim and values.is_floating_point():  # the type decides, never a value
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
    """Cross-entropy of logits and classes, clipped to ``[0, high]`` for each example.

    Of logits ``[B, C]`` and classes ``[B]``. With ``reduce="mean"`` also of pixels and tokens,
    ``[B, C, H, W]`` and ``[B, H, W]``, or ``[B, C, T]`` and ``[B, T]``: an example's value is the
    mean over those of its targets that are not ``ignore_index``. An example with none left counts
    as ``high``, the worse bound, like every value that does not exist: which ones do is decided by
    the targets alone, so all models pay the same for it. (Without ``reduce`` such an example counts
    as 0, as torch has it.) Means over all tokens or pixels of the holdout are another quantity: one
    example can have most of them.

    Args:
        high: Largest value an example can have; larger ones are clipped.
        reduce: None, or ``"mean"`` over the targets of each example.
        ignore_index: The target that does not count.
        class_dim: Where the classes are: 1, or -1 for logits ``[B, T, C]`` as language models
            have them.

    Example:
        >>> CrossEntropy(5.0)
        CrossEntropy(5.0)
        >>> import torch
        >>> tokens = CrossEntropy(5.0, reduce="mean", class_dim=-1)
        >>> logits, target = torch.zeros(4, 7, 30), torch.ones(4, 7, dtype=torch.int64)
        >>> tokens.accumulator(resolution=100).update(logits, target)
    """

    reduce: str | None = None
    ignore_index: int = _IGNORED
    class_dim: int = 1

    def __init__(
        self,
        high: float,
        *,
        reduce: Literal["mean"] | None = None,
        ignore_index: int = _IGNORED,
        class_dim: Literal[1, -1] = 1,
    ) -> None:
        super().__init__(0.0, high, mode="min", per_example=_cross_entropy)
        if reduce is not None:
            require_choice("reduce", reduce, ("mean",))
        require_whole("ignore_index", plain_whole(ignore_index), -(2**62), 2**62)
        if class_dim not in (1, -1):
            raise InvalidArgumentError(
                f"Expected `class_dim` to be 1 or -1, but got {shown(class_dim)}."
            )
        object.__setattr__(self, "reduce", reduce)
        object.__setattr__(self, "ignore_index", int(ignore_index))
        object.__setattr__(self, "class_dim", class_dim)

    def __repr__(self) -> str:
        return f"CrossEntropy({', '.join([str(self.high), *self._changed()])})"

    def source(self) -> str:
        """Return the statistic's own name, and what is not as usual."""
        return " ".join(["cross_entropy", *self._changed()])

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle names public paths only.
        options = {name: getattr(self, name) for name in _OPTIONS}
        usual = options == _OPTIONS
        return CrossEntropy if usual else partial(CrossEntropy, **options), (self.high,)

    def _changed(self) -> list[str]:
        given = ((name, getattr(self, name), usual) for name, usual in _OPTIONS.items())
        return [f"{name}={value!r}" for name, value, usual in given if value != usual]

    def _values(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        options = {name: getattr(self, name) for name in _OPTIONS}
        function = _cross_entropy if options == _OPTIONS else partial(_reduced, **options)
        return _called(function, *_tensors(arguments, named))


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
    name = qualified_name(function.func if isinstance(function, partial) else function)

    def refusal(failure: str) -> InvalidArgumentError:
        # Not how long they are: a filter makes that a value.
        shapes = ", ".join(
            f"{counted(len(a.shape), 'dimension')} {getattr(a, 'dtype', '')} on "
            f"{getattr(a, 'device', 'cpu')}"
            for a in arrays
        )
        return InvalidArgumentError(
            f"Expected {name} to return one value per example, for tensors "
            f"that all have the batch first, but got {failure} for {shapes or 'no tensors'}. Bind "
            f"others with functools.partial. An error's own message is withheld because it "
            f"may quote holdout data; call the function on training data to see it."
        )

    values = as_tensor(errors_by_type(lambda: function(*arguments, **named), refusal))
    if values.ndim == 1 and any(a.shape[0] != len(values) for a in arrays):
        raise refusal("another number of values (an argument was broadcast, or rows left out?)")
    return values


def _correct(preds: Tensor, target: Tensor, *, threshold: float) -> Tensor:
    if preds.ndim == 2 and preds.shape[1] > 1 and preds.shape[:1] == target.shape:
        # A row with a NaN is a wrong answer: argmax alone would pick the NaN's class.
        broken = preds.isnan().any(dim=1)
        return (preds.argmax(dim=1) == target).logical_and(broken.logical_not())
    single = preds.ndim == 2 and preds.shape[1:] == (1,)
    if single and target.shape in (preds.shape, preds.shape[:1]):
        preds, target = preds[:, 0], target.reshape(preds.shape[:1])
    if preds.shape == target.shape and preds.ndim in (1, 2):
        right = preds == target
        if preds.is_floating_point():  # the type decides, never a value
            right = ((preds > threshold) == (target == 1)).logical_and(
                preds.isnan().logical_not()
            ) & ((target == 0) | (target == 1))
        return right if preds.ndim == 1 else right.all(dim=1)
    raise InvalidArgumentError(
        f"Expected logits of shape [B, C] or integer classes of shape [B], and targets of shape "
        f"[B], or logits and targets of the same shape [B] or [B, L], but got others: "
        f"{counted(preds.ndim, 'dimension')} ({preds.dtype}) and "
        f"{counted(target.ndim, 'dimension')} ({target.dtype}), not equally long or with no "
        f"classes. Or pass the comparison yourself: update((scores > 0) == target)."
    )


def _cross_entropy(preds: Tensor, target: Tensor) -> Tensor:
    if preds.dtype in (torch.float16, torch.bfloat16):
        preds = preds.float()
    target = target if target.is_floating_point() else target.long()
    return functional.cross_entropy(preds, target, reduction="none")


def _reduced(
    preds: Tensor, target: Tensor, *, reduce: str | None, ignore_index: int, class_dim: int
) -> Tensor:
    """Return the cross-entropy of each example, or of each of its targets without ``reduce``."""
    classes_last = preds.ndim > 2 and preds.shape[:-1] == target.shape
    classes_second = preds.ndim > 1 and (preds.shape[0], *preds.shape[2:]) == target.shape
    if classes_last and not classes_second and class_dim == 1:
        raise InvalidArgumentError(
            "Expected logits with the classes second, [B, C, T], for targets [B, T], but they come "
            "last. Use th.CrossEntropy(..., class_dim=-1). Nothing was charged."
        )
    if preds.dtype in (torch.float16, torch.bfloat16):
        preds = preds.float()
    target = target if target.is_floating_point() else target.long()
    preds = preds.movedim(-1, 1) if class_dim == -1 else preds
    losses = functional.cross_entropy(preds, target, ignore_index=ignore_index, reduction="none")
    if reduce is None:
        return losses
    counts = torch.ones_like(losses)
    if not target.is_floating_point():  # of probabilities none is ignored
        counts = (target != ignore_index).to(losses.dtype)
    # 0/0 where nothing is left: NaN, which is the worse bound.
    return (
        losses.flatten(1).sum(1) / counts.flatten(1).sum(1) if losses.ndim > 1 else losses / counts
    )
