"""Calling code of the user's on holdout data without letting the data out."""

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor

from torch_holdout._fingerprints.hashing import qualified_name
from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import InvalidArgumentError


def call_without_leaking(
    function: Callable[..., object], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Tensor:
    """Call user code; its exceptions and warnings may quote targets, so only their kind passes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call_quiet(function, arguments, named)


def call_quiet(
    function: Callable[..., object], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Tensor:
    """Call a function of ours, which gives no warnings: their filters are left alone."""
    tensors = [a for a in (*arguments, *named.values()) if isinstance(a, Tensor) and a.ndim]

    def refusal(failure: str) -> InvalidArgumentError:
        shapes = ", ".join(f"{tuple(a.shape)} {a.dtype} on {a.device}" for a in tensors)
        return InvalidArgumentError(
            f"Expected {qualified_name(function)} to return one value per example, for tensors "
            f"that all have the batch first, but got {failure} for {shapes or 'no tensors'}. Bind "
            f"other tensors with functools.partial. An error's own message is withheld because it "
            f"may quote holdout data; call the function on training data to see it."
        )

    values = errors_by_type(lambda: function(*arguments, **named), refusal)
    if not isinstance(values, Tensor):
        raise refusal(f"a result of type {type(values).__name__}")
    if values.ndim == 1 and any(len(a) != len(values) for a in tensors):
        raise refusal(f"{len(values)} values (an argument was broadcast?)")
    return values
