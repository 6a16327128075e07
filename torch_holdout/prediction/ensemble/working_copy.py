"""Copies of a stacked module to compute with, so that the module itself is never changed."""

import copy
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, final

from torch import Tensor, nn

_Result = TypeVar("_Result")
_INNER = ("_parameters", "_buffers", "_modules")
_SEQUENCES = (list, set, deque)
_MAPPINGS = (dict, OrderedDict)


@final
class WorkingCopy:
    """A copy in eval mode that shares the tensors; one call does not see what another has left.

    ``functional_call`` exchanges the weights of a module while it runs: other threads, a checkpoint
    or a fork at that time would find those of one member. They find the module that was copied.
    Attributes that a call assigns are put back after it; tensors that it may write into are copied
    by ``own``. What a call changes inside of an object that is kept in an attribute stays until
    this copy is dropped; ``kept_state.py`` refuses such models.

    Example:
        >>> import torch
        >>> template = nn.Linear(2, 1)
        >>> working = WorkingCopy(template, written=())
        >>> working.module.weight is template.weight, working.module is template
        (True, False)
        >>> working.ask(lambda: setattr(working.module, "last", 7))
        >>> hasattr(working.module, "last")
        False
    """

    def __init__(self, template: nn.Module, written: Iterable[str]) -> None:
        self.module = copied(template).eval()
        self._written = {name for name, _ in template.named_buffers()} | {*written}
        self._kept = [
            (vars(module), {**vars(module)}, {name: {**vars(module)[name]} for name in _INNER})
            for module in self.module.modules()
        ]

    def own(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return members' tensors, those that a call may write into as copies."""
        return {
            name: value.clone() if name in self._written else value for name, value in rows.items()
        }

    def ask(self, call: Callable[[], _Result]) -> _Result:
        """Run a call of the module and put its attributes back."""
        try:
            return call()
        finally:
            for attributes, before, inner in self._kept:
                attributes.clear()
                attributes.update(before)
                for name, content in inner.items():
                    attributes[name].clear()
                    attributes[name].update(content)


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a module whose tensors are those of the module.

    Attributes are copied through lists, dictionaries and modules; objects by ``copy.deepcopy``, or
    shared where they cannot be copied.

    Example:
        >>> stack = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        >>> again = copied(stack)
        >>> again[1] is stack[1], again[1].running_mean is stack[1].running_mean
        (False, True)
    """
    new: nn.Module = _copied_module(module, {})
    return new


def _copied_module(module: nn.Module, memo: dict[int, Any]) -> Any:
    if id(module) in memo:
        return memo[id(module)]
    new = memo[id(module)] = object.__new__(type(module))
    for name, value in vars(module).items():
        new.__dict__[name] = _copied(value, memo)
    return new


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if value is None or isinstance(value, bool | int | float | str | type | Tensor):
        return value
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, nn.Module):
        return _copied_module(value, memo)
    if type(value) in _MAPPINGS:
        new = memo[id(value)] = type(value)()
        new.update((key, _copied(part, memo)) for key, part in value.items())
        return new
    if type(value) in _SEQUENCES:
        new = memo[id(value)] = copy.copy(value)
        new.clear()
        (new.update if type(value) is set else new.extend)(_copied(part, memo) for part in value)
        return new
    if type(value) is tuple:
        return tuple(_copied(part, memo) for part in value)
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        return value
