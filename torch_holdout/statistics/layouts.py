"""Check by layout alone that every example has a value of its own."""

from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from torch_holdout.errors import InvalidArgumentError


def require_own_values(values: Tensor | NDArray[Any]) -> None:
    """Raise if one number in memory stands for all examples of a batch (``expand``).

    Only the layout is looked at: an error that depended on values would be an answer.

    Example:
        >>> import torch
        >>> require_own_values(torch.rand(8).mean().expand(8))
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected a value of its own for each example, but
        got one number expanded to the batch (a batch mean?): ...
    """
    strides = values.stride() if isinstance(values, Tensor) else values.strides
    if values.ndim and len(values) > 1 and strides[0] == 0:
        raise InvalidArgumentError(
            "Expected a value of its own for each example, but got one number expanded to the "
            "batch (a batch mean?): one example would change all of them. The mean is taken for "
            "you; give:\n"
            "-    F.cross_entropy(logits, y).expand(len(y))\n"
            '+    F.cross_entropy(logits, y, reduction="none")'
        )
