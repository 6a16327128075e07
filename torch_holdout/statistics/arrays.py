"""Any array as a tensor: NumPy, lists, pandas, ``__array__`` and DLPack; the values decide nothing.

An error that depended on values would be an answer, so only types and shapes are looked at, and of
an error that reading an array raises only the type passes. Memory is shared where it can be: who
takes a tensor from here uses it up, or copies it, before returning.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from torch_holdout._shared.checks import plain_number
from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.statistics.layouts import require_own_values
from torch_holdout.statistics.undefined import heard_warnings

_NUMBERS = "biufc"  # kinds of NumPy's types: booleans, whole numbers, floats, complex numbers
_KINDS = {
    "O": "objects",
    "S": "bytes",
    "U": "text",
    "T": "text",
    "M": "dates",
    "m": "spans of time",
}
_LARGEST_WHOLE = 2**63 - 1
_ON_HOST = 1  # kDLCPU


def as_tensor(values: object, missing: float | bool = math.nan) -> Tensor:
    """Return an array of numbers or booleans as a tensor, read once; tensors as they are.

    Lists may be nested. Whole numbers beyond 64 bits are cut. ``missing`` stands for None in a list
    and NA in a column of pandas: NaN, or False where the type must stay whole.

    Example:
        >>> as_tensor(np.array([True, False])), as_tensor([0, 0.25, None])
        (tensor([ True, False]), tensor([0.0000, 0.2500,    nan], dtype=torch.float64))
        >>> as_tensor(["right", "wrong"])
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected an array of numbers or booleans, but got
        list of str. ...
    """
    if isinstance(values, Tensor):
        return values
    with heard_warnings(), np.errstate(all="ignore"):  # and not shown: values decide on them
        return errors_by_type(
            lambda: _converted(values, missing), lambda kind: _unusable(values, f"({kind})")
        )


def is_array(value: object) -> bool:
    """Whether it is an array with at least one dimension, by its protocol; a list is not one.

    Example:
        >>> is_array(np.zeros(3)), is_array(np.float64(1.0)), is_array([1.0])
        (True, False, False)
    """
    readable = hasattr(value, "__array__") or hasattr(value, "__dlpack__")
    return readable and bool(getattr(value, "shape", ()))


def is_number(value: object) -> bool:
    """Whether it is a single number or boolean, Python's or NumPy's.

    Example:
        >>> is_number(True), is_number(np.float32(0.5)), is_number("0.5")
        (True, True, False)
    """
    return _is_number(type(value))


def _converted(values: Any, missing: float | bool) -> Tensor:
    if isinstance(values, np.ndarray | np.generic):
        return _from_numpy(np.asanyarray(values))
    if is_number(values):
        return _from_numbers([values]).reshape(())
    if isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray):
        return _from_sequence(list(values), missing)
    if hasattr(getattr(values, "dtype", None), "na_value") and hasattr(values, "to_numpy"):
        return _from_nullable(values, missing)
    # On a device DLPack leaves the values where they are; on the host NumPy takes more types.
    elsewhere = hasattr(values, "__dlpack_device__") and values.__dlpack_device__()[0] != _ON_HOST
    if hasattr(values, "__array__") and not elsewhere:
        read = values.__array__()  # once: numpy.asarray may call it again
        if isinstance(read, np.ndarray):
            return _from_numpy(read)
    elif hasattr(values, "__dlpack__"):
        whole = hasattr(values, "__dlpack_device__")
        tensor: Tensor = from_dlpack(values if whole else values.__dlpack__())
        return tensor
    raise _unusable(values, "")


def _from_numpy(array: NDArray[Any]) -> Tensor:
    if isinstance(array, np.ma.MaskedArray):
        raise _unusable(array, "with a mask; fill it, as in values.filled(numpy.nan)")
    kind = array.dtype.kind
    if kind not in _NUMBERS:
        raise _unusable(array, f"of {_KINDS.get(kind, 'records')}")
    require_own_values(array)
    array = np.asarray(array)
    if kind == "u" and array.itemsize > 1:  # few functions take them
        array = np.minimum(array, _LARGEST_WHOLE).astype(np.int64)
    elif array.itemsize > (16 if kind == "c" else 8):  # which torch does not have
        array = array.astype(np.complex128 if kind == "c" else np.float64)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    usable = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    return torch.from_numpy(array if usable else array.copy())


def _from_nullable(values: Any, missing: float | bool) -> Tensor:
    """Return a column of pandas; its type may not depend on there being missing values."""
    kind = values.dtype.kind
    if kind not in _NUMBERS:
        raise _unusable(values, f"of {values.dtype}")
    whole = missing is False and kind in "biu"
    return _from_numpy(
        values.to_numpy(dtype="int64", na_value=0)
        if whole
        else values.to_numpy(dtype="float64", na_value=math.nan)
    )


def _from_sequence(values: list[Any], missing: float | bool) -> Tensor:
    first = values[0] if values else None
    nested = isinstance(first, Sequence) and not isinstance(first, str | bytes)
    if nested or isinstance(first, Tensor) or (is_array(first) or type(first) is np.ndarray):
        return torch.stack([as_tensor(value).detach() for value in values])
    return _from_numbers([missing if value is None else value for value in values])


def _from_numbers(values: list[Any]) -> Tensor:
    kinds = set(map(type, values))
    if others := [kind for kind in kinds if not _is_number(kind)]:
        raise _unusable(values, f"of {' and '.join(sorted(kind.__name__ for kind in others))}")
    if all(issubclass(kind, bool | np.bool_) for kind in kinds):
        return torch.tensor([bool(value) for value in values], dtype=torch.bool)
    if all(issubclass(kind, bool | np.bool_ | Integral) for kind in kinds):
        cut = [min(max(int(value), -_LARGEST_WHOLE), _LARGEST_WHOLE) for value in values]
        return torch.tensor(cut, dtype=torch.int64)
    floats = [float(plain_number(value)) for value in values]
    return torch.tensor(floats, dtype=torch.float64)


def _is_number(kind: type) -> bool:
    return issubclass(kind, bool | np.bool_ | Real) and not issubclass(kind, np.timedelta64)


def _unusable(values: object, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Expected an array of numbers or booleans, but got {type(values).__name__} {what}".rstrip()
        + ". Give a tensor, a NumPy array, a list, or anything with __array__ or __dlpack__, all "
        "rows equally long; compare text first, as in predictions == target. Nothing was charged."
    )
