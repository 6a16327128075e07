"""Votes of many members on the processor: the same votes in a third of the time.

The classes of a query lie side by side, so torch looks for the largest score row by row. Here each
class is compared with the best so far, for many rows at once: the same work whatever the scores.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_FEWEST_ROWS = 2**12  # of fewer, a handful of calls costs more than it saves
_MOST_CLASSES = 32  # of more, torch's own search is faster
_AT_ONCE = 2**16  # rows whose temporaries fit a cache
_LARGEST_BYTE = 255
_WORD = 8  # bytes that are added at once

Numbers = npt.NDArray[Any]


def on_host(tensor: Tensor, rows: int, classes: int) -> bool:
    """Whether votes are faster to count here: many rows, few classes, plain numbers in memory.

    Example:
        >>> on_host(torch.zeros(50, 1000, 10), 50_000, 10), on_host(torch.zeros(5, 1, 10), 5, 10)
        (True, False)
    """
    followed = torch._C._is_tracing() or torch.compiler.is_compiling()
    plain = type(tensor) is Tensor and tensor.device.type == "cpu" and not followed
    known = tensor.dtype in (torch.float32, torch.float64, torch.int64)
    return plain and known and rows >= _FEWEST_ROWS and classes <= _MOST_CLASSES


def first_largest(scores: Tensor) -> Tensor:
    """Return the first of the largest scores in each row, uint8; 0 where one is not a number.

    Example:
        >>> first_largest(torch.tensor([[[0.0, 2.0, 2.0, 1.0]], [[3.0, 1.0, float("nan"), 4.0]]]))
        tensor([[1],
                [0]], dtype=torch.uint8)
    """
    values = scores.detach().resolve_neg().numpy()
    members, queries, classes = values.shape
    labels = np.zeros((members, queries), np.uint8)
    step = min(queries, max(1, _AT_ONCE // members))
    held = np.empty((2, members, step), values.dtype)
    marks = np.empty((2, members, step), np.uint8)
    for start in range(0, queries, step):
        part, label = values[:, start : start + step], labels[:, start : start + step]
        (best, better), (moved, place) = held[:, :, : len(part[0])], marks[:, :, : len(part[0])]
        np.copyto(best, part[..., 0])
        for number in range(1, classes):
            np.maximum(best, part[..., number], out=better)
            np.not_equal(best, better, out=moved.view(np.bool_))
            np.multiply(moved, np.uint8(number), out=place)
            np.maximum(label, place, out=label)
            best, better = better, best
        label *= best == best  # what is not a number is not itself
    return torch.from_numpy(labels)


def count_bytes(labels: Tensor, num_classes: int) -> Tensor:
    """Count uint8 labels [members, queries] of each query, int64 [queries, classes].

    Example:
        >>> count_bytes(torch.tensor([[0, 1], [0, 2]], dtype=torch.uint8), num_classes=3)
        tensor([[2, 0, 0],
                [0, 1, 1]])
    """
    members, queries = labels.shape
    counts = np.zeros((num_classes, queries), np.int64)
    room = -(-queries // _WORD) * _WORD
    for start in range(0, members, _LARGEST_BYTE):  # a byte counts no more
        some = labels[start : start + _LARGEST_BYTE].numpy()
        equal = np.zeros((len(some), room), np.bool_)
        for label, count in enumerate(counts):
            np.equal(some, label, out=equal[:, :queries])
            words: Numbers = np.add.reduce(equal.view(np.uint64), axis=0)
            count += words.view(np.uint8)[:queries]
    return torch.from_numpy(counts).t().contiguous()
