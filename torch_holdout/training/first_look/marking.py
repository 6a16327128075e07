"""Marked tensors: what user code reads, writes or keeps of a batch, without its values.

A marked tensor is a copy of the holdout's data in a subclass of ``Tensor``, and whatever is
computed from it is marked too. Reads are recorded and get zeros instead of values; writes into
other tensors are recorded; whatever is alive after the code has returned is kept by somebody.
"""

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, cast, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from torch_holdout.training.first_look.memory import Write, memory_of, plainly, reference_to, zero
from torch_holdout.training.first_look.places import (
    Place,
    calling_package,
    calling_place,
    holder_of,
)

HIDDEN = "<value of the holdout, not shown>"
_TRUTHS = frozenset({"__bool__", "is_nonzero", "equal", "allclose", "__contains__"})
_NUMBERS = frozenset({"item", "__float__", "__int__", "__index__", "__complex__"})
_ARRAYS = frozenset({"tolist", "numpy", "__array__"})
_TEXTS = frozenset({"__repr__", "__format__", "__str__"})
_COPIES = frozenset(
    {"__reduce_ex__", "__dlpack__", "data_ptr", "storage", "untyped_storage"}
    | {"apply_", "map_", "map2_"}  # which call a function with each number
)
_READS = _TRUTHS | _NUMBERS | _ARRAYS | _TEXTS | _COPIES
# The result of these has the shape, type or device of a marked tensor, not its values.
_BLANK = frozenset(
    {
        f"{kind}_like" for kind in ("zeros", "ones", "empty", "full", "rand", "randn", "randint")
    } | {f"new_{kind}" for kind in ("zeros", "ones", "empty", "full", "empty_strided", "tensor")}
)  # fmt: skip
_BY_FIRST = frozenset({"to", "type_as", "expand_as", "view_as", "reshape_as", "type"})
_FACTORIES = (torch.tensor, torch.as_tensor, torch.asarray, torch.full, torch.scalar_tensor)
# Libraries that compute and keep nothing: what they read decides how they compute.
_COMPUTE = ("torch", "torchmetrics", "transformers", "torchvision", "timm", "einops")
_MOST = 20  # findings of one kind that are named
_PLAIN = (Tensor, nn.Parameter, getattr(nn, "Buffer", Tensor))
_SINKS = (  # parts of them that show or store what they read
    "torch.utils.tensorboard",
    "torch.optim",
    "torch.serialization",
    "torch.storage",
    "torch.testing",
    "torchvision.utils",
    "torchvision.io",
    "transformers.integrations",
    "transformers.trainer_",
    "timm.utils",
)


class DataUse(NamedTuple):
    """Something that user code did with the holdout's data.

    Attributes:
        what: What it did, in words.
        place: The line that did it, or made the value.
        of_model: Whether the value depends on the model, not on the batch alone.
        holder: Which attribute keeps it; empty if none does.
    """

    what: str
    place: Place
    of_model: bool
    holder: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.place})"


class Marked(Tensor):
    """A copy of the holdout's data, or a value computed from it. Its values are never used."""

    _look: "Look | None" = None
    _of_model = False
    _fresh = False  # whether its memory is its own, not that of a tensor which is not marked

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a torch function; mark its result, record a read or a write."""
        kwargs = kwargs or {}
        look, of_model = _origin((args, kwargs))
        if look is None:
            return plainly(func, args, kwargs)
        name = getattr(func, "__name__", "")
        if name in _READS:
            return look.read(name, func, args, kwargs, of_model)
        if name == "__deepcopy__":
            return look.copied(*args, of_model=of_model)
        if name == "backward":
            return look.record("backward() writes gradients", of_model)
        target = _written(name, args, kwargs)
        if target is not None and not isinstance(target, Marked):
            look.write(target, of_model)
            return plainly(func, args, kwargs)
        result = plainly(func, args, kwargs)
        if name in _BY_FIRST and not isinstance(args[0], Marked):
            return unmarked(result)
        if name in _BLANK and not is_marked((args[1:], kwargs)):
            return unmarked(result)
        return look.mark(result, of_model, _borrowed((args, kwargs)))

    def __copy__(self) -> Any:
        return copy.deepcopy(self)

    def as_subclass(self, cls: Any) -> Any:
        """Note that the mark is taken off."""
        if self._look is not None and not self._look.ended:
            self._look.record("as_subclass() takes a value's mark off", self._of_model)
        return Tensor.as_subclass(self, cls)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return self._as_text("__repr__")

    def __str__(self) -> str:
        return self._as_text("__str__")

    def __format__(self, _: str) -> str:
        return self._as_text("__format__")

    def _as_text(self, name: str) -> str:
        if self._look is not None and not self._look.ended:
            self._look.record(f"{name.strip('_')}() shows a value as text", self._of_model)
        return HIDDEN


class MarkedFactories(TorchFunctionMode):
    """Marks what ``torch.tensor`` and its like copy from marked tensors, which they hide."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run a torch function; mark the result of one that makes tensors of given values."""
        kwargs = kwargs or {}
        if func not in _FACTORIES:
            # As a scalar argument a tensor of one number does not count as one of its class.
            if not any(issubclass(kind, Marked) for kind in types) and is_marked((args, kwargs)):
                return Marked.__torch_function__(func, types, args, kwargs)
            return func(*args, **kwargs)
        look, of_model = _origin((args, kwargs))
        result = func(*args, **kwargs)
        return result if look is None else look.mark(result, of_model)


@final
class Look:
    """One run of user code on marked data.

    Example:
        >>> look = Look()
        >>> values = look.mark(torch.tensor([0.25, 0.5]))
        >>> kept = []
        >>> def step():
        ...     kept.append((values * 2).mean())
        ...     return values.sum().item()
        >>> step()
        0.0
        >>> del values
        >>> [finding.what.split(" a value")[0] for finding in look.end()]
        ['item() reads', '... keeps']
    """

    aside: ClassVar[bool] = False  # whether code runs on plain data and its values are not used

    def __init__(self) -> None:
        self.ended = False
        self.unfollowed: set[str] = set()  # what could not be marked
        self._found: list[DataUse] = []
        self._made: list[_Made] = []
        self._memory: list[tuple[Any, _Made]] = []
        self._writes: list[Write] = []

    def mark(
        self,
        result: Any,
        of_model: bool = False,
        borrowed: frozenset[int] = frozenset({0}),
        place: Place | None = None,
    ) -> Any:
        """Mark the tensors of a result, which may be a sequence of them.

        ``borrowed`` is the memory of tensors that are not marked, which results may share.
        """
        if isinstance(result, Tensor):
            marked = self._as_marked(result, of_model, place)
            if marked is None:
                return result
            marked._look, marked._of_model = self, of_model
            marked._fresh = memory_of(marked) not in borrowed
            made = _Made(weakref.ref(marked), place or calling_place(), of_model)
            self._made.append(made)
            if marked._fresh:
                self._memory.append((reference_to(marked), made))
            return marked
        if isinstance(result, list | tuple) and any(isinstance(part, Tensor) for part in result):
            parts = [self.mark(part, of_model, borrowed) for part in result]
            # Named tuples of torch take one sequence, those of Python several arguments.
            return type(result)._make(parts) if hasattr(result, "_make") else type(result)(parts)
        return result

    def _as_marked(self, result: Tensor, of_model: bool, place: Place | None) -> Marked | None:
        """Return a tensor as a marked one; None if its kind has no subclass (sparse)."""
        if isinstance(result, Marked):
            return result
        try:
            return result.as_subclass(Marked)
        except RuntimeError:
            self.unfollowed.add(f"a tensor ({str(result.layout).removeprefix('torch.')})")
            self._made.append(_Made(weakref.ref(result), place or calling_place(), of_model))
            return None

    def copied(self, tensor: Tensor, memo: dict[int, Any], *, of_model: bool) -> Any:
        """Return a deep copy, marked."""
        memo[id(tensor)] = same = self.mark(unmarked(tensor).clone(), of_model)
        return same

    def record(self, what: str, of_model: bool) -> None:
        """Note what the calling line did."""
        finding = DataUse(what, calling_place(), of_model)
        if finding not in self._found:
            self._found.append(finding)

    def read(self, name: str, func: Any, args: Any, kwargs: Any, of_model: bool) -> Any:
        """Answer a read: truly if it only steers the computation, else with zeros."""
        tensor = next(part for part in _tensors((args, kwargs)) if isinstance(part, Marked))
        whole = not (tensor.is_floating_point() or tensor.is_complex())
        if _by_a_library(name) or (whole and not of_model and name not in _TEXTS | _COPIES):
            return self._tracked(plainly(func, args, kwargs), of_model)
        self.record(f"{name.strip('_')}() reads a value on the host", of_model)
        if name in _TRUTHS:
            return plainly(func, args, kwargs)
        blank = torch.zeros_like(unmarked(tensor))
        return plainly(func, (blank, *args[1:]), kwargs)

    def write(self, target: Tensor, of_model: bool) -> None:
        """Note that a tensor which is not marked will be written to; follow it from now on."""
        self._writes.append(Write(target, calling_place(), of_model))
        if type(target) in _PLAIN:
            target.__class__ = Marked
            followed = cast(Marked, target)
            followed._look, followed._of_model = self, of_model

    def end(self) -> list[DataUse]:
        """Return what was read, written and kept. Nothing may hold the batch or the result now."""
        if self._alive():
            gc.collect()  # a cycle keeps nothing, but may read when it ends
        self.ended = True
        findings = [*self._found, *self._kept(), *self._overwritten()]
        for write in reversed(self._writes):
            write.undo()
        for made in self._made:
            value = made.value()
            if isinstance(value, Tensor) and not memory_of(value):
                value.zero_()
        for memory, _ in self._memory:
            if not memory.expired():  # so that nothing is kept
                zero(memory)
        self._made, self._memory, self._writes = [], [], []
        return list(dict.fromkeys(findings))

    def _tracked(self, value: Any, of_model: bool) -> Any:
        """Follow an array or a list that was read; a number cannot be followed."""
        if isinstance(value, list):
            value = _Numbers(value)
        if isinstance(value, _Numbers | np.ndarray):
            self._made.append(_Made(weakref.ref(value), calling_place(), of_model))
        return value

    def _alive(self) -> bool:
        return any(made.value() is not None for made in self._made) or any(
            not memory.expired() for memory, _ in self._memory
        )

    def _kept(self) -> list[DataUse]:
        findings: list[DataUse] = []
        named = set()
        for made in self._made:
            if len(findings) == _MOST:
                break  # each search takes a while
            if (value := made.value()) is not None:
                holder = holder_of(value, set())
                what = f"{holder} keeps a value"
                findings.append(DataUse(what, made.place, made.of_model, holder))
                if isinstance(value, Tensor) and memory_of(value):
                    named.add(reference_to(value).cdata)
        for memory, made in self._memory if len(findings) < _MOST else ():
            if not memory.expired() and memory.cdata not in named:
                what = "something that shares its memory keeps a value"
                findings.append(DataUse(what, made.place, made.of_model))
        return findings

    def _overwritten(self) -> list[DataUse]:
        findings, known = [], set()
        for write in self._writes:
            if (target := write.target()) is not None:
                known.add(write.storage.cdata)
                if holder := holder_of(target, set()):
                    what = f"{holder} is written to"
                    findings.append(DataUse(what, write.place, write.of_model, holder))
        for write in self._writes:
            if write.storage.cdata not in known and not write.storage.expired():
                what = "a part of a tensor that was there before is written to"
                findings.append(DataUse(what, write.place, write.of_model))
        return findings


class _Made(NamedTuple):
    """A value that was made, and where."""

    value: "weakref.ref[Any]"
    place: Place
    of_model: bool


class _Numbers(list[Any]):
    """A list that weak references can point to."""


def is_marked(value: Any) -> bool:
    """Whether a value, or a part of it, is marked.

    Example:
        >>> is_marked({"loss": Look().mark(torch.zeros(2))}), is_marked([torch.zeros(2)])
        (True, False)
    """
    return any(isinstance(tensor, Marked) for tensor in _tensors(value))


def holds_tensors(value: Any) -> bool:
    """Whether a value, or a part of it, is a tensor."""
    return next(_tensors(value), None) is not None


def _origin(values: Any) -> tuple[Look | None, bool]:
    """Return the look that a function's arguments belong to, and whether a model is in them."""
    look, of_model = None, False
    for tensor in _tensors(values):
        if not isinstance(tensor, Marked):
            of_model = of_model or tensor.is_floating_point()
        elif tensor._look is not None and not tensor._look.ended:
            look, of_model = tensor._look, of_model or tensor._of_model
    return look, of_model


def _tensors(values: Any) -> Iterator[Tensor]:
    waiting, seen = [values], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))  # a list may hold itself
            waiting += reversed(list(value.values() if isinstance(value, dict) else value))


def _written(name: str, args: Any, kwargs: Any) -> Tensor | None:
    """Return the tensor that a function writes to, if it writes to one."""
    out = kwargs.get("out")
    if isinstance(out, Tensor):
        return out
    in_place = name.endswith("_") and not name.endswith("__")
    first = args[0] if args else kwargs.get("tensor", kwargs.get("input"))
    if (in_place or name in ("__setitem__", "__set__")) and isinstance(first, Tensor):
        return first
    return None


def _by_a_library(name: str) -> bool:
    """Whether a library reads in order to compute. It may ask for truths, or numbers it needs."""
    caller = calling_package()
    if name in _TEXTS | _COPIES or caller.startswith(_SINKS):
        return False
    return caller.split(".", 1)[0] in _COMPUTE


def _borrowed(values: Any) -> frozenset[int]:
    """Return the memory of the tensors that are not marked, or share that of such."""
    others = (t for t in _tensors(values) if not (isinstance(t, Marked) and t._fresh))
    return frozenset({0, *(memory_of(tensor) for tensor in others)})


def unmarked(value: Any) -> Any:
    """Return a value without its mark."""
    return plainly(Tensor.as_subclass, (value, Tensor), {}) if is_marked(value) else value
