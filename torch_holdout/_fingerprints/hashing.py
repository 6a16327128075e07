"""Canonical hashes: equal content has an equal hash in every process."""

import functools
import hashlib
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_holdout._shared.configurations import written
from torch_holdout._shared.tensors import is_plain

_DEEPEST = 12
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class UnknownContentError(TypeError):
    """Raised for a value without canonical bytes."""


def digest(value: Any, *, lenient: bool = False) -> bytes:
    """Hash nested numbers, text, tensors, arrays, sequences, sets and mappings by their content.

    Args:
        value: What to hash. Tensors are copied to the host.
        lenient: Hash anything else by its repr without addresses, instead of refusing.

    Example:
        >>> one = {"b": [1, 2.0], "a": torch.zeros(2)}
        >>> digest(one) == digest({"a": np.zeros(2, "f4"), "b": (1, 2.0)})
        True
    """
    hasher = hashlib.sha256()
    _feed(hasher, value, lenient)
    return hasher.digest()


def describe_function(function: Callable[..., Any]) -> str:
    """Name a function by its code, defaults, closure and bound values, not only by its name.

    What it reads from its module's globals is not seen.

    Example:
        >>> describe_function(lambda x: x) == describe_function(lambda x: x + 1)
        False
    """
    return f"{qualified_name(function)} {digest(function, lenient=True).hex()}"


def qualified_name(function: Callable[..., Any]) -> str:
    """Return a function's qualified name."""
    return str(getattr(function, "__qualname__", _class_name(function)))


def without_addresses(text: str) -> str:
    """Drop memory addresses, which differ between processes."""
    return _ADDRESS.sub("", text)


def _class_name(value: Any) -> str:
    """Return the name of a class; for the one that Hydra has for partials, that of Python's."""
    kind = type(value)
    of_hydra = issubclass(kind, functools.partial) and kind.__module__.startswith("hydra.")
    return (functools.partial if of_hydra else kind).__qualname__


def function_parts(function: Any) -> list[Any]:
    """Return the parts of a function that decide its result."""
    if isinstance(function, functools.partial):
        return [function.func, function.args, function.keywords]
    if isinstance(function, types.MethodType):
        return [function.__func__, function.__self__]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [
        f"{function.__module__}.{function.__qualname__}",
        _code(function.__code__),
        function.__defaults__,
        function.__kwdefaults__,
        cells,
    ]


def _code(code: types.CodeType) -> list[Any]:
    constants = [_code(c) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    return [code.co_code, constants, list(code.co_names)]


def plain_bytes(tensor: Tensor) -> bytes:
    """Return a plain tensor's content."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1).contiguous()
    return flat.view(torch.uint8).numpy().tobytes()


def plain_header(tensor: Tensor, content: bytes | memoryview) -> bytes:
    """Return what is hashed before a plain tensor's content."""
    return _header(_kind(tensor), content)


def sequence_header(length: int) -> bytes:
    """Return what is hashed before the parts of a sequence."""
    return f"sequence {length};".encode()


def _feed(hasher: Any, value: Any, lenient: bool, depth: int = 0) -> None:
    if lenient and depth > _DEEPEST:
        value = type(value).__qualname__  # cyclic, or deeper than anyone means
    value = written(value)  # hyperparameters are often a configuration of Hydra's
    if isinstance(value, Mapping):
        parts = [(digest(key, lenient=lenient), part) for key, part in value.items()]
        hasher.update(f"mapping {len(parts)};".encode())
        for key, part in sorted(parts, key=lambda pair: pair[0]):
            hasher.update(key)
            _feed(hasher, part, lenient, depth + 1)
    elif isinstance(value, set | frozenset):
        hasher.update(f"set {len(value)};".encode())
        hasher.update(b"".join(sorted(digest(part, lenient=lenient) for part in value)))
    elif isinstance(value, list | tuple):
        hasher.update(sequence_header(len(value)))
        for part in value:
            _feed(hasher, part, lenient, depth + 1)
    elif lenient and (parts := _inside(value)) is not None:
        hasher.update(f"object {_class_name(value)};".encode())
        _feed(hasher, parts, lenient, depth + 1)
    else:
        kind, content = _leaf(value, lenient)
        hasher.update(_header(kind, content))
        hasher.update(content)


def _header(kind: str, content: bytes | memoryview) -> bytes:
    return f"{kind} {len(content)};".encode()


def _kind(tensor: Tensor) -> str:
    return f"array {tensor.dtype} {tuple(tensor.shape)}"


def _inside(value: Any) -> Any:
    """Return the parts of a function, or of an object that does not describe itself."""
    if isinstance(value, functools.partial | types.MethodType | types.FunctionType):
        return function_parts(value)
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return None
    silent = "__repr__" not in {name for kind in type(value).__mro__[:-1] for name in vars(kind)}
    if silent or isinstance(value, torch.nn.Module):  # whose repr leaves most settings out
        return {key: part for key, part in vars(value).items() if key != "training"}
    return None


def _leaf(value: Any, lenient: bool) -> tuple[str, bytes]:
    if value is None or isinstance(value, bool | int | float | complex | str):
        return f"scalar {type(value).__name__}", repr(value).encode(errors="surrogatepass")
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    if isinstance(value, Tensor) and is_plain(value):
        return _kind(value), plain_bytes(value)
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
        if not array.dtype.hasobject:
            header = f"array torch.{array.dtype} {array.shape}"
            return header, np.ascontiguousarray(array).tobytes()
    if lenient:
        return f"object {type(value).__qualname__}", without_addresses(repr(value)).encode()
    raise UnknownContentError(type(value).__name__)
