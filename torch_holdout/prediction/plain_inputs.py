"""Queries are values: nothing is traced, wrapped or watched while they are answered.

A query is charged when the program runs. A program that is recorded (exported, traced, mapped over
a batch) runs once and answers often, with the noise of the one run as a constant; a wrapped tensor
or an active mode is handed the raw votes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from torch_holdout._shared.tensors import is_plain
from torch_holdout.errors import InvalidArgumentError

_Method = TypeVar("_Method", bound=Callable[..., Any])
_PLAIN = (Tensor, nn.Parameter, nn.Buffer) if hasattr(nn, "Buffer") else (Tensor, nn.Parameter)
_ATOMS = {type(None), bool, int, float, str, bytes}


def require_plain_inputs(inputs: Any) -> None:
    """Raise unless queries are ordinary tensors and nothing records what is computed from them.

    Tensors are looked for in containers, too, and in the attributes of other objects. No value is
    read. Modes that only choose a device (``torch.device`` as a context, ``set_default_device``)
    are allowed; so are ``inference_mode`` and autocast.

    Example:
        >>> require_plain_inputs({"ids": torch.zeros(2, 3), "lengths": [3, 3]})
        >>> require_plain_inputs([torch.zeros(2, 3, device="meta")])
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected ordinary tensors with values, but got
        a tensor without values (meta). ... Nothing was charged.
    """
    recorder = _recorder()
    if recorder:
        raise InvalidArgumentError(
            f"Expected queries that are answered now, one charge for each run, but got a call "
            f"inside {recorder}: it would see raw votes, or keep the noise of one answer for all "
            f"later ones. Call the predictor outside of it; what may be exported is "
            f"ensemble.votes_module(), raw votes without noise. Nothing was charged."
        )
    for leaf in _leaves(inputs):
        kind = _unusual(leaf)
        if kind:
            raise InvalidArgumentError(
                f"Expected ordinary tensors with values, but got {kind}. Pass dense tensors of "
                f"the class torch.Tensor, e.g. x.as_subclass(torch.Tensor) or x.to_dense(). "
                f"Nothing was charged."
            )


def outside_graphs(method: _Method) -> _Method:
    """Return a method that torch.compile leaves out of its graphs and runs as it is."""
    return cast(_Method, torch.compiler.disable(method))  # type: ignore[no-untyped-call]


def refuse_script() -> InvalidArgumentError:
    """Return the refusal of TorchScript, which would answer without the ledger."""
    return InvalidArgumentError(
        "Expected a predictor that is called, but got torch.jit.script: a script cannot charge "
        "what it answers. What may be exported is ensemble.votes_module(), raw votes "
        "without noise. Nothing was charged."
    )


def _recorder() -> str:
    """Name the active transformation, trace, capture or mode that queries must not meet."""
    if torch._C._is_tracing():
        return "torch.jit.trace"
    if torch.compiler.is_compiling():
        return "torch.compile or torch.export"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transformation of torch.func (vmap, grad, functionalize, ...)"
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
        return "the capture of a CUDA graph"
    if torch_modules._global_forward_hooks or torch_modules._global_forward_pre_hooks:
        return "a hook of all modules (register_module_forward_hook or ..._pre_hook)"
    return next((f"the mode {type(mode).__name__}" for mode in _modes()), "")


def _modes() -> Iterator[Any]:
    yield from _get_current_dispatch_mode_stack()
    for mode in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
        if type(mode) is not DeviceContext or mode.device.type == "meta":
            yield mode


def _unusual(leaf: Tensor | torch.fx.Proxy) -> str:
    """Describe a tensor that has no values of its own here; empty for others."""
    if not isinstance(leaf, Tensor):
        return "a proxy of torch.fx"
    if torch._C._functorch.is_functorch_wrapped_tensor(leaf):
        return "a tensor that torch.func has wrapped"
    if type(leaf) not in _PLAIN:
        return f"a subclass of torch.Tensor ({type(leaf).__name__})"
    if leaf.is_meta:
        return "a tensor without values (meta)"
    if leaf.is_nested or not is_plain(leaf):
        return f"a tensor that is not dense ({'nested' if leaf.is_nested else leaf.layout})"
    return ""


def _leaves(inputs: Any) -> Iterator[Tensor | torch.fx.Proxy]:
    """Yield the tensors in containers and in the attributes of objects."""
    waiting, seen = [inputs], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor | torch.fx.Proxy):
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            waiting.extend(_parts(value))


def _parts(value: Any) -> Iterable[Any]:
    if type(value) in _ATOMS:
        return ()
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | frozenset | deque):
        return value
    if isinstance(value, type | nn.Module):
        return ()
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    kept = [getattr(value, name, None) for name in slots if isinstance(name, str)]
    return [*kept, *getattr(value, "__dict__", {}).values()]
