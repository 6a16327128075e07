"""One way to turn values into bytes, so that equal content has an equal hash everywhere."""

import functools
import hashlib
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class UnknownContentError(TypeError):
    """A value has no canonical bytes."""


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
    """Name a function by its code, defaults, closure and bound arguments, not only by its name.

    Example:
        >>> describe_function(lambda x: x) == describe_function(lambda x: x + 1)
        False
    """
    if isinstance(function, functools.partial):
        bound = digest([function.args, function.keywords], lenient=True).hex()
        return f"partial({describe_function(function.func)}, {bound})"
    name = f"{getattr(function, '__module__', '')}.{qualified_name(function)}"
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return f"{name} {digest(function, lenient=True).hex()}"
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    defaults = getattr(function, "__defaults__", None)
    return f"{name} {digest([_code(code), defaults, cells], lenient=True).hex()}"


def qualified_name(function: Callable[..., Any]) -> str:
    """Return what a function is called in its source."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def without_addresses(text: str) -> str:
    """Drop memory addresses, which differ between processes."""
    return _ADDRESS.sub("", text)


def _code(code: types.CodeType) -> list[Any]:
    constants = [_code(c) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    return [code.co_code, constants, list(code.co_names)]


def _feed(hasher: Any, value: Any, lenient: bool) -> None:
    if isinstance(value, Mapping):
        parts = [(digest(key, lenient=lenient), part) for key, part in value.items()]
        hasher.update(f"mapping {len(parts)};".encode())
        for key, part in sorted(parts, key=lambda pair: pair[0]):
            hasher.update(key)
            _feed(hasher, part, lenient)
    elif isinstance(value, set | frozenset):
        hasher.update(f"set {len(value)};".encode())
        hasher.update(b"".join(sorted(digest(part, lenient=lenient) for part in value)))
    elif isinstance(value, list | tuple):
        hasher.update(f"sequence {len(value)};".encode())
        for part in value:
            _feed(hasher, part, lenient)
    else:
        header, content = _leaf(value, lenient)
        hasher.update(f"{header} {len(content)};".encode())
        hasher.update(content)


def _leaf(value: Any, lenient: bool) -> tuple[str, bytes]:
    if value is None or isinstance(value, bool | int | float | complex | str):
        return f"scalar {type(value).__name__}", repr(value).encode(errors="surrogatepass")
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    if isinstance(value, Tensor) and is_plain(value):
        flat = value.detach().cpu().resolve_conj().resolve_neg().reshape(-1).contiguous()
        content = flat.view(torch.uint8).numpy().tobytes()
        return f"array {value.dtype} {tuple(value.shape)}", content
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array_interface__"):
        array = np.asarray(value)
        if not array.dtype.hasobject:
            header = f"array torch.{array.dtype} {array.shape}"
            return header, np.ascontiguousarray(array).tobytes()
    if lenient:
        return f"object {type(value).__qualname__}", without_addresses(repr(value)).encode()
    raise UnknownContentError(type(value).__name__)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has its values in ordinary memory: dense, not quantised, not fake."""
    return tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_meta)
