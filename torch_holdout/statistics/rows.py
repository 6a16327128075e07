"""Rows of any kind besides tensors: text, dictionaries of tensors, lists of these.

Of a row only its layout is looked at, never a value or how many parts it has: those are data.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import InvalidArgumentError

_UNCHANGING = (str, bytes, int, float, complex, bool, type(None))
_WORDS = ("the", "a", "model", "holdout", "answer", "row", "was", "not", "seen", "by", "any")
_PARTS = 3  # of a made-up tensor or list, however many the real ones have


class Column(NamedTuple):
    """The layout of a tensor of rows, one of a metric's arguments; ``shape`` is without them."""

    dtype: torch.dtype
    device: torch.device
    shape: tuple[int, ...]


class Listed(NamedTuple):
    """The layout of one row in a list: ``kind``, and the layouts of its parts by their keys."""

    kind: str  # "text", "number", "tensor", "list", "dictionary", or the name of another type
    parts: tuple[tuple[Any, Any], ...] = ()

    @property
    def known(self) -> bool:
        """Whether such a row can be made up."""
        if self.kind in ("text", "number", "tensor"):
            return True
        whole = self.kind == "dictionary" or (self.kind == "list" and bool(self.parts))
        return whole and all(part.known for _, part in self.parts)

    def __str__(self) -> str:
        return self.kind


def copied(row: Any) -> Any:
    """Return a row that its maker cannot change any more: outputs may be buffers that are reused.

    Example:
        >>> row = {"boxes": torch.zeros(1), "words": ["a"]}
        >>> kept = copied(row)
        >>> row["boxes"].add_(1), row["words"].append("b")
        (tensor([1.]), None)
        >>> kept
        {'boxes': tensor([0.]), 'words': ['a']}
    """

    def refusal(failure: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"Expected rows that can be copied, but got {failure} for one of type "
            f"{type(row).__name__}. Give tensors, arrays, numbers, text, or lists and dictionaries "
            f"of these. Nothing was charged."
        )

    return errors_by_type(lambda: mapped(row, _copied_part), refusal)


def mapped(row: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to the parts of a row that are not lists, tuples or dictionaries.

    Example:
        >>> mapped({"a": [1, 2], "b": (3,)}, lambda part: part + 1)
        {'a': [2, 3], 'b': (4,)}
    """
    if type(row) in (list, tuple):
        return type(row)(mapped(part, change) for part in row)
    if type(row) is dict:
        return {key: mapped(part, change) for key, part in row.items()}
    return change(row)


def device_of(row: Any) -> torch.device | None:
    """Return the device of the first tensor in a row or a list of them; None without any.

    Example:
        >>> device_of([{"scores": torch.zeros(2)}]), device_of(["text"])
        (device(type='cpu'), None)
    """
    if isinstance(row, Tensor):
        return row.device
    parts = row.values() if isinstance(row, Mapping) else row
    if isinstance(row, str | bytes) or not isinstance(row, Mapping | list | tuple):
        return None
    return next((device for part in parts if (device := device_of(part)) is not None), None)


def listed_layout(rows: list[Any]) -> Listed:
    """Return the layout of the first row.

    Example:
        >>> one, other = [{"scores": torch.zeros(5)}], [{"scores": torch.ones(2)}]
        >>> listed_layout(one) == listed_layout(other)
        True
    """
    return _layout(rows[0]) if rows else Listed("nothing")


def made_up_rows(
    layout: Listed, rows: int, tensor: Callable[[Column, tuple[int, ...], int], Tensor]
) -> list[Any]:
    """Make up rows of a layout: text of a few words, and what ``tensor`` makes of tensors.

    Example:
        >>> made_up_rows(listed_layout(["some text"]), 2, lambda *_: torch.zeros(1))
        ['the a model holdout answer', 'a model holdout answer row was']
    """
    return [_made_up(layout, number, tensor) for number in range(rows)]


def _layout(row: Any) -> Listed:
    if isinstance(row, str):
        return Listed("text")
    if isinstance(row, bool | int | float):
        return Listed("number", ((None, type(row)),))
    if isinstance(row, Tensor):
        # How long it is may be the number of objects that were found: a value.
        column = Column(row.dtype, row.device, tuple(row.shape[1:]))
        return Listed("tensor", ((row.ndim, column),))
    if isinstance(row, Mapping):
        return Listed("dictionary", tuple((key, _layout(part)) for key, part in row.items()))
    if isinstance(row, list | tuple):
        return Listed("list", tuple((type(row), _layout(part)) for part in row[:1]))
    return Listed(type(row).__qualname__)


def _made_up(
    layout: Listed, number: int, tensor: Callable[[Column, tuple[int, ...], int], Tensor]
) -> Any:
    if layout.kind == "text":
        length = 5 + number % 3
        return " ".join(_WORDS[(number + place) % len(_WORDS)] for place in range(length))
    if layout.kind == "number":
        ((_, kind),) = layout.parts
        return kind(number % 2)
    if layout.kind == "tensor":
        ((dimensions, column),) = layout.parts
        return tensor(column, (_PARTS, *column.shape) if dimensions else (), number)
    if layout.kind == "dictionary":
        return {key: _made_up(part, number, tensor) for key, part in layout.parts}
    ((kind, part),) = layout.parts
    return kind(_made_up(part, number + place, tensor) for place in range(_PARTS))


def _copied_part(part: Any) -> Any:
    if isinstance(part, Tensor):
        return part.detach().clone()
    if isinstance(part, np.ndarray) and not part.dtype.hasobject:
        return part.copy()
    return part if isinstance(part, _UNCHANGING) else copy.deepcopy(part)
