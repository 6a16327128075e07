"""User code run on marked copies of a batch, to learn what it keeps, reads and writes."""

import contextlib
import copy
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor

from torch_holdout._noise.generators import GeneratorStates
from torch_holdout._shared.tracebacks import empty_frames
from torch_holdout.errors import HoldoutError
from torch_holdout.training.first_look.marking import (
    DataUse,
    Look,
    Marked,
    MarkedFactories,
    holds_tensors,
    is_marked,
)
from torch_holdout.training.first_look.places import Place

_LARGEST = 10**6  # elements of buffers that are copied to put them back
_DEEPEST = 6
_LONGEST = 10**5  # entries of a container that is copied
_CONTAINERS: tuple[Any, ...] = (dict, list, set, deque)
_RAISED = "it raised"
# Sharded parameters come and go, and datasets are long; no step changes either.
_UNCHANGED = frozenset({"_parameters", "train_dataset", "eval_dataset"})
_BATCH = Place("", 0, "the batch itself")


def look_at(
    run: Callable[[Any], Any],
    batch: Any,
    owners: Iterable[Any],
    *,
    repeat: bool,
    judge: Callable[[list[DataUse], HoldoutError | None], None],
    excuse: Callable[[str], None],
) -> Any:
    """Run code on a marked copy of a batch and return its result, without marks.

    What the code did to the attributes of ``owners`` is undone if anything was found.

    Args:
        run: The code, a function of the batch.
        batch: Any nesting of tensors.
        owners: Modules, callbacks and others whose attributes the code may set.
        repeat: Whether the result will be used: then the code runs once more on the batch itself,
            with attributes and generators put back, because marked tensors may take other kernels.
        judge: Called with what was found and our error that the code met, if any, before the code
            runs again; it may raise.
        excuse: Called with the reason if not everything could be seen.

    Example:
        >>> seen, found = [], []
        >>> step, judge = (lambda x: seen.append(x) or x + 1), lambda *what: found.append(what)
        >>> look_at(step, torch.zeros(2), [], repeat=True, judge=judge, excuse=print)
        tensor([1., 1.])
        >>> [(len(findings), error) for findings, error in found]
        [(1, None)]
    """
    look = Look()
    marked = _marked(look, batch)
    if not holds_marks(marked):
        excuse(f"its batch ({type(batch).__name__}) holds no tensors")
        return run(batch)
    before = Before(owners)
    try:
        result, trouble, refused = _attempt(run, marked)
    except BaseException:  # Ctrl-C: nothing of the batch may stay either
        del marked
        look.end()
        before.put_back()
        raise
    del marked
    repeat = repeat or trouble.startswith(_RAISED)
    if look.unfollowed and not trouble:
        trouble = f"{', '.join(sorted(look.unfollowed))} cannot be followed"
    findings = look.end()
    if findings or refused or repeat:
        before.put_back()
    judge(findings, refused)
    if repeat:
        result = run(batch)
    if trouble:  # after the run: an error of the code itself has been raised there
        excuse(trouble)
    return result


def _attempt(run: Callable[[Any], Any], marked: Any) -> tuple[Any, str, HoldoutError | None]:
    """Return a plain copy of the result, what could not be seen, and our error that was met."""
    try:
        with _eager(), MarkedFactories():
            output = run(marked)
    except HoldoutError as error:
        empty_frames(error)  # which keep marked values alive, each of which would be looked for
        return None, "", error
    except Exception as error:
        return None, f"{_RAISED} {type(error).__name__} on marked tensors", None
    lost = holds_tensors(output) and not is_marked(output)
    unseen = "its result cannot be followed to the batch (scripted or foreign code)"
    return plain_copy(output), unseen if lost else "", None


def plain_copy(value: Any) -> Any:
    """Return a copy of a step's result without marks.

    Example:
        >>> plain_copy({"loss": Look().mark(torch.ones(1))})
        {'loss': tensor([1.])}
    """
    if isinstance(value, Marked):
        with torch._C.DisableTorchFunctionSubclass():
            return Tensor.as_subclass(value, Tensor).clone()
    if isinstance(value, dict):
        return {key: plain_copy(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain_copy(part) for part in value)
    return value


def run_aside(run: Callable[[Any], Any], batch: Any, owners: Iterable[Any]) -> Any:
    """Run code whose result only serves a comparison, and put everything back; None if it fails."""
    before = Before(owners)
    Look.aside = True
    try:
        return run(batch)
    except Exception:  # it may not take every batch
        return None
    finally:
        Look.aside = False
        before.put_back()


def holds_marks(batch: Any) -> bool:
    """Whether anything in a batch was marked, also in an object's attributes."""
    if is_marked(batch):
        return True
    if isinstance(batch, Mapping):
        return any(holds_marks(part) for part in batch.values())
    if isinstance(batch, list | tuple):
        return any(holds_marks(part) for part in batch)
    return any(is_marked(part) for part in getattr(batch, "__dict__", {}).values())


def _marked(look: Look, value: Any, depth: int = 0) -> Any:
    """Return a copy of a batch with its tensors marked; what cannot be copied stays as it is."""
    if isinstance(value, Tensor):
        try:
            return look.mark(value.detach().clone(), place=_BATCH)
        except (RuntimeError, TypeError):  # a tensor with rules of its own
            look.unfollowed.add(f"a tensor ({type(value).__name__})")
            return value
    if depth > _DEEPEST or value is None or isinstance(value, str | bytes | int | float):
        return value
    try:
        return _marked_parts(look, value, depth + 1)
    except Exception:  # a container with rules of its own
        look.unfollowed.add(type(value).__name__)
        return value


def _marked_parts(look: Look, value: Any, depth: int) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_marked(look, part, depth) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(_marked(look, part, depth) for part in value)
    if isinstance(value, MutableMapping):
        parts = {key: _marked(look, part, depth) for key, part in value.items()}
        same = copy.copy(value)
        for key, part in parts.items():
            same[key] = part
        return same
    if hasattr(value, "__dict__") and not isinstance(value, type | Callable):
        same = copy.copy(value)
        for name, part in vars(value).items():
            new = _marked(look, part, depth)
            if new is not part:
                object.__setattr__(same, name, new)
        return same
    return value


@contextlib.contextmanager
def _eager() -> Iterator[None]:
    """Run compiled modules as they are written: a compiler would treat marked tensors apart."""
    stance = getattr(torch.compiler, "set_stance", None)
    # Compiling imports this module; importing it here would take seconds.
    if stance is None or "torch._dynamo" not in sys.modules:
        yield
    else:
        with stance("force_eager"):
            yield


class Before:
    """Attributes, containers in them, small buffers and generators as they were, to be put back.

    Attributes of other objects than the owners, and iterators, are not.
    """

    def __init__(self, owners: Iterable[Any]) -> None:
        self._owners = [
            (owner, dict(vars(owner))) for owner in owners if hasattr(owner, "__dict__")
        ]
        self._contents: list[tuple[Any, Any]] = []
        self._tensors: list[tuple[Tensor, Tensor]] = []
        self._own = GeneratorStates()
        left = _LARGEST
        for _, attributes in self._owners:
            for name, value in attributes.items():
                if name not in _UNCHANGED:
                    self._note(value)
            for buffer in attributes.get("_buffers", {}).values():
                if type(buffer) is Tensor and buffer.numel() <= left:
                    left -= buffer.numel()
                    self._tensors.append((buffer, buffer.detach().clone()))

    def put_back(self) -> None:
        """Undo what the code did."""
        for owner, attributes in self._owners:
            vars(owner).clear()
            vars(owner).update(attributes)
        for container, content in self._contents:
            _refill(container, content)
        for buffer, content in self._tensors:
            buffer.copy_(content)
        self._own.put_back()

    def _note(self, value: Any, depth: int = 0) -> None:
        """Copy a container as a plain one: classes of their own have rules of their own."""
        kind = next((kind for kind in _CONTAINERS if isinstance(value, kind)), None)
        if kind is None:
            self._own.add(value)
        elif depth < _DEEPEST and kind.__len__(value) <= _LONGEST:
            content = kind(kind.items(value)) if kind is dict else kind(kind.__iter__(value))
            self._contents.append((value, content))
            for part in content.values() if kind is dict else content:
                self._note(part, depth + 1)


def _refill(container: Any, content: Any) -> None:
    kind = type(content)
    if kind is dict:
        kind = OrderedDict if isinstance(container, OrderedDict) else dict
        before, now = list(content.items()), list(kind.items(container))
        if [(key, id(part)) for key, part in before] != [(key, id(part)) for key, part in now]:
            kind.clear(container)
            for key, part in before:
                kind.__setitem__(container, key, part)
    elif list(map(id, kind.__iter__(container))) != list(map(id, content)):
        kind.clear(container)
        (kind.update if kind is set else kind.extend)(container, content)
