"""Neighbouring sets of records: one record or user removed, or others in their place."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import Dataset, TensorDataset

from torch_holdout.errors import InvalidArgumentError

FAR = (1e4, -1e4)  # dominates means, passes thresholds; not too much for half precision
Read = Callable[[], Any]


@final
@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference between two sets of records.

    Attributes:
        action: The change in words.
        removed: The indices of records that are left out.
        replaced: How to read the new record at an index: reading may draw at random, as for others.
        essential: Whether the record's own member must change with it.
    """

    action: str
    removed: frozenset[int] = frozenset()
    replaced: Mapping[int, Read] = field(default_factory=dict)
    essential: bool = True


NO_CHANGE = Change(action="changing nothing")


def changed_records(records: Any, change: Change) -> Any:
    """Return changed records: a copy of the same kind, or a view if they are a dataset.

    Example:
        >>> removal = Change(action="removing", removed=frozenset([1]))
        >>> changed_records(["a", "b", "c"], removal)
        ['a', 'c']
        >>> len(changed_records(range(10), removal))
        9
    """
    places = [place for place in range(len(records)) if place not in change.removed]
    if type(records) in (list, tuple):
        new = change.replaced
        return type(records)(new[k]() if k in new else records[k] for k in places)
    if type(records) is TensorDataset:
        columns = [column[places] for column in records.tensors]
        _write_rows(columns, places, change.replaced)
        return TensorDataset(*columns)
    if type(records) in (Tensor, np.ndarray):
        rows = records[places]
        _write_rows([rows], places, {k: _in_a_tuple(read) for k, read in change.replaced.items()})
        return rows
    return RecordsView(records, places, change.replaced)


@final
class RecordsView(Dataset[Any]):
    """Some records of a dataset, a few of them replaced; read when they are asked for."""

    def __init__(self, records: Any, places: list[int], replaced: Mapping[int, Read]) -> None:
        self._records = records
        self._places = places
        self._replaced = replaced

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Any:
        place = self._places[index]  # its IndexError ends an iteration
        return self._replaced[place]() if place in self._replaced else self._records[place]


def moved_record(records: Any, place: int) -> Read:
    """Return a function that reads a record with other numbers: 1 - x for each x, labels kept."""
    return lambda: _with_floats(records[place], lambda x: 1 - x)


def far_record(records: Any, place: int, far: float) -> Read:
    """Return a function that reads a record as an outlier on one side, its labels kept."""
    return lambda: _with_floats(records[place], lambda x: far * (1 + abs(x)))


def given_record(records: Any, place: int, record: Any) -> Read:
    """Return a function that returns ``record``, and reads the old one: reading may draw."""
    return lambda: (records[place], record)[1]


def has_floats(record: Any) -> bool:
    """Whether a record has numbers that can be moved.

    Example:
        >>> has_floats((torch.zeros(2), 1)), has_floats(("text", 1))
        (True, False)
    """
    return any(_is_float(leaf) for leaf in tree_leaves(record))


def places_of_user(keys: Iterable[Any], place: int) -> frozenset[int]:
    """Return the places of all records with the same key.

    Example:
        >>> sorted(places_of_user(["ann", "bob", "ann"], 2))
        [0, 2]
    """
    plain = [key.item() if isinstance(key, Tensor | np.generic) else key for key in keys]
    return frozenset(k for k, key in enumerate(plain) if key == plain[place])


def _with_floats(record: Any, change: Callable[[Any], Any]) -> Any:
    def changed(leaf: Any) -> Any:
        if not _is_float(leaf):
            return leaf
        return change(leaf).astype(leaf.dtype) if isinstance(leaf, np.ndarray) else change(leaf)

    return tree_map(changed, record)


def _is_float(leaf: Any) -> bool:
    if isinstance(leaf, Tensor):
        return leaf.is_floating_point()
    if isinstance(leaf, np.ndarray):
        return bool(leaf.dtype.kind == "f")
    return isinstance(leaf, float)


def _in_a_tuple(read: Read) -> Read:
    return lambda: (read(),)


def _write_rows(columns: list[Any], places: list[int], replaced: Mapping[int, Read]) -> None:
    try:
        for place, read in replaced.items():
            for column, value in zip(columns, read(), strict=True):
                column[places.index(place)] = torch.as_tensor(value)
        return
    except (TypeError, ValueError, RuntimeError):
        pass
    raise InvalidArgumentError(
        "Expected a `replacement` like the records (the same number of tensors, of equal shapes), "
        "but got another."
    )
