"""Copies of a stacked module and of queries to compute with; the originals are never changed."""

import contextlib
import copy
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from types import CellType, FunctionType
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from torch_holdout._noise.generators import kept_generators

_Result = TypeVar("_Result")
_INNER = ("_parameters", "_buffers", "_modules")
_EVERY = vars(nn.Module()).keys() - {*_INNER}  # attributes that every module has
_HOOKS = {name for name in _EVERY if "state_dict" not in name}  # not those that a call never runs
_SHARED = {type(None), bool, int, float, str, type, torch.dtype, nn.Parameter, Tensor}


@final
class WorkingCopy:
    """A copy in eval mode that shares the tensors; one call does not see what another has left.

    ``functional_call`` exchanges the weights of a module while it runs: other threads, a checkpoint
    or a fork at that time would find those of one member. They find the module that was copied.
    Attributes that a call assigns are put back after it; tensors that it may write into are copied
    by ``own``. What a call changes inside of an object that is kept in an attribute is gone with
    this copy: ``fresh`` returns another one if there are such objects. Calls of a model that
    ``draws`` from the global random generators all start from the same state of them: how often one
    member has drawn does not reach the next.

    Example:
        >>> template = nn.Linear(2, 1)
        >>> working = WorkingCopy(template, written=())
        >>> working.module.weight is template.weight, working.module is template
        (True, False)
        >>> working.ask(lambda: setattr(working.module, "last", 7))
        >>> hasattr(working.module, "last")
        False
    """

    def __init__(self, template: nn.Module, written: Iterable[str], *, draws: bool = False) -> None:
        self.module = copied(template).eval()
        self._template = template
        self._written = {name for name, _ in template.named_buffers()} | {*written}
        self._draws = draws
        self._has_objects = any(map(_has_objects, template.modules()))
        self._kept = [
            (vars(module), {**vars(module)}, {name: {**vars(module)[name]} for name in _INNER})
            for module in self.module.modules()
        ]

    def fresh(self) -> "WorkingCopy":
        """Return a copy in whose objects no call has left anything."""
        if not self._has_objects:
            return self
        return WorkingCopy(self._template, self._written, draws=self._draws)

    def own(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return members' tensors, those that a call may write into as copies."""
        return {
            name: value.clone() if name in self._written else value for name, value in rows.items()
        }

    def ask(self, call: Callable[[], _Result]) -> _Result:
        """Run a call of the module and put its attributes, and generators, back."""
        try:
            with kept_generators() if self._draws else contextlib.nullcontext():
                return call()
        finally:
            for attributes, before, inner in self._kept:
                attributes.clear()
                attributes.update(before)
                for name, content in inner.items():
                    attributes[name].clear()
                    attributes[name].update(content)


def copied(module: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """Return a copy of a module whose tensors are those of the module, or their copies in ``memo``.

    Attributes are copied through lists, dictionaries, modules and what functions hold; objects by
    ``copy.deepcopy``, or shared where they cannot be copied.

    Example:
        >>> stack = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        >>> again = copied(stack)
        >>> again[1] is stack[1], again[1].running_mean is stack[1].running_mean
        (False, True)
    """
    new: nn.Module = _copied_module(module, {} if memo is None else memo)
    return new


def deep_copied(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Return a copy with tensors of its own; ``copy.deepcopy`` would leave functions the old ones.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> layer.size = lambda layer=layer: layer.weight.norm()
        >>> again = deep_copied(layer, {})
        >>> with torch.no_grad():
        ...     _ = again.weight.zero_()
        >>> again.size().item(), layer.size().item() > 0
        (0.0, True)
    """
    for tensor in (*module.parameters(), *module.buffers()):
        copy.deepcopy(tensor, memo)
    return copied(module, memo)


def copied_inputs(x: Any) -> Any:
    """Return queries as copies, so that a model which writes into them reaches nobody else.

    Example:
        >>> x = [torch.zeros(2), {"lengths": [1, 2]}]
        >>> again = copied_inputs(x)
        >>> again[0].add_(1)
        tensor([1., 1.])
        >>> x[0], again[1]
        (tensor([0., 0.]), {'lengths': [1, 2]})
    """
    return tree_map(_copied_leaf, x)


def _copied_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.clone()
    try:
        return copy.deepcopy(leaf)  # an object with tensors, which torch does not look into
    except Exception:
        return leaf


def _has_objects(module: nn.Module) -> bool:
    """Whether a call could leave something inside of an attribute; torch's own layers do not."""
    hooks = any(vars(module)[name] for name in _HOOKS if isinstance(vars(module).get(name), dict))
    kept = {} if type(module).__module__.startswith("torch.nn.") else vars(module)
    return hooks or any(
        type(value) not in _SHARED and not isinstance(value, Tensor)
        for name, value in kept.items()
        if name not in _EVERY and name not in _INNER
    )


def _copied_module(module: nn.Module, memo: dict[int, Any]) -> Any:
    if id(module) in memo:
        return memo[id(module)]
    new = memo[id(module)] = object.__new__(type(module))
    for name, value in vars(module).items():
        new.__dict__[name] = _copied(value, memo)
    return new


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    if type(value) in _SHARED or isinstance(value, Tensor):
        return value
    if isinstance(value, nn.Module):
        return _copied_module(value, memo)
    copies = _COPIES.get(type(value))
    if copies is not None:
        return copies(value, memo)
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        return value


def _copied_container(value: Any, memo: dict[int, Any]) -> Any:
    new = memo[id(value)] = value.copy()
    new.clear()
    if isinstance(value, dict):
        for key, part in value.items():
            new[key] = _copied(part, memo)
    else:
        (new.update if isinstance(value, set) else new.extend)(
            _copied(part, memo) for part in value
        )
    return new


def _copied_function(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    """Return a function made inside of a model: its closure holds the model, and now the copy."""
    held = [*(function.__closure__ or ()), function.__defaults__, function.__kwdefaults__]
    if not any(held):
        return function
    filled = [cell for cell in function.__closure__ or () if id(cell) not in memo]
    cells = tuple(memo.setdefault(id(cell), CellType()) for cell in function.__closure__ or ())
    new = FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)
    memo[id(function)] = new
    for cell in filled:
        with contextlib.suppress(ValueError):  # still empty
            memo[id(cell)].cell_contents = _copied(cell.cell_contents, memo)
    new.__defaults__ = _copied(function.__defaults__, memo)
    new.__kwdefaults__ = _copied(function.__kwdefaults__, memo)
    new.__qualname__ = function.__qualname__
    vars(new).update(_copied(vars(function), memo))
    return new


def _copied_partial(value: "partial[Any]", memo: dict[int, Any]) -> "partial[Any]":
    named = {name: _copied(part, memo) for name, part in value.keywords.items()}
    return partial(_copied(value.func, memo), *_copied(value.args, memo), **named)


def _copied_tuple(value: tuple[Any, ...], memo: dict[int, Any]) -> tuple[Any, ...]:
    return tuple([_copied(part, memo) for part in value])


_COPIES: dict[type, Callable[[Any, dict[int, Any]], Any]] = {
    **dict.fromkeys((dict, OrderedDict, list, set, deque), _copied_container),
    tuple: _copied_tuple,
    partial: _copied_partial,
    FunctionType: _copied_function,
}
