"""Questions about a tensor that are answered without reading it."""

import weakref
from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has its values in ordinary memory: dense, not quantised, not fake."""
    return tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_meta)


@final
class TensorVersions:
    """Which tensors there were, and how often each had been written to; their content is not read.

    Writing into ``tensor.data`` is not seen: torch does not count it.

    Example:
        >>> weight = torch.zeros(2)
        >>> before = TensorVersions([weight])
        >>> before.are_those_of([weight]), before.are_those_of([weight.add_(1)])
        (True, False)
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        # Not by address: another tensor may be at that of one that is gone.
        self._seen = [(weakref.ref(tensor), _written(tensor)) for tensor in tensors]

    def are_those_of(self, tensors: Iterable[Tensor]) -> bool:
        """Whether these are the same tensors, and none was written to since."""
        now = list(tensors)
        return len(now) == len(self._seen) and all(
            seen() is tensor and written == _written(tensor)
            for (seen, written), tensor in zip(self._seen, now, strict=True)
        )


def _written(tensor: Tensor) -> tuple[int, int, torch.dtype]:
    """Return how often a tensor was written to, and what `tensor.data = ...` changes instead."""
    version = -1 if tensor.is_inference() else tensor._version
    return version, tensor.data_ptr() if is_plain(tensor) else 0, tensor.dtype
