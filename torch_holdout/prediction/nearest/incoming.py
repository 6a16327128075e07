"""Records on their way in: rows, labels and names, as users give them."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, final

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torch_holdout._shared.checks import require_length
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.nearest.embedding import Layout
from torch_holdout.prediction.nearest.placed import Name
from torch_holdout.prediction.nearest.search import MOST_RECORDS

Incoming = Tensor | NDArray[Any] | Dataset[Any] | DataLoader[Any]


@final
@dataclass(eq=False, repr=False)
class ArrivingRecords:
    """Private rows, each as a batch of one, and their labels once all rows have passed.

    Attributes:
        layout: Shape and number type of a row, which are public.
    """

    layout: Layout
    _pairs: Iterator[tuple[Tensor, Tensor]]
    _num_classes: int
    _device: torch.device
    _labels: list[Tensor] = field(default_factory=list)

    @property
    def rows(self) -> Iterator[Tensor]:
        """Yield one row at a time, in memory of its own: no kernel sees where it came from."""
        for row, label in self._pairs:
            if (tuple(row.shape[1:]), str(row.dtype)) != self.layout or len(row) != len(label):
                raise InvalidArgumentError(
                    "Expected every record to have the shape and number type of the first, and one "
                    "label, but at least one has not. Nothing was added."
                )
            self._labels.append(label)
            for one in row:
                yield one[None].to(self._device).clone(memory_format=torch.contiguous_format)

    def labels(self) -> Tensor:
        """Return the labels of the rows that have passed, int64 [n]."""
        given = torch.cat(self._labels) if self._labels else torch.zeros(0, dtype=torch.int64)
        if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
            raise InvalidArgumentError(
                f"Expected labels to be whole numbers, but got {given.dtype}. Nothing was added."
            )
        if bool(((given < 0) | (given >= self._num_classes)).any()):
            raise InvalidArgumentError(
                f"Expected every label to be from 0 to {self._num_classes - 1}, but at least one "
                f"is not. Number the classes from 0. Nothing was added."
            )
        return given.to("cpu", torch.int64)


def read_records(
    inputs: Incoming, labels: Any, num_classes: int, device: torch.device
) -> ArrivingRecords:
    """Read a batch (a tensor or an array) with labels, or a dataset or loader of pairs.

    Example:
        >>> arriving = read_records(torch.eye(2), [0, 1], 2, torch.device("cpu"))
        >>> [tuple(row.shape) for row in arriving.rows], arriving.labels().tolist()
        ([(1, 2), (1, 2)], [0, 1])
    """
    array = labels is not None and hasattr(inputs, "__array__")
    pairs = _pairs(_numbers(inputs) if array else inputs, labels)
    first = next(pairs, None)
    if first is None:
        raise InvalidArgumentError(
            "Expected records, or a batch of none that shows their shape, but got an empty "
            "dataset. Nothing was added."
        )

    def every() -> Iterator[tuple[Tensor, Tensor]]:
        yield first
        yield from pairs

    layout = (tuple(first[0].shape[1:]), str(first[0].dtype))
    return ArrivingRecords(layout, every(), num_classes, device)


def names_of(kind: str, given: Any, count: int | None) -> Sequence[Name]:
    """Return names as Python's own whole numbers and text.

    Example:
        >>> names_of("ids", torch.tensor([3, 4]), 2), names_of("ids", ["a", 1], None)
        ([3, 4], ['a', 1])
    """
    listed = given
    if hasattr(given, "tolist"):
        with contextlib.suppress(Exception):  # nested, sparse, without values: refused below
            listed = given.tolist()
    usable = isinstance(listed, Sequence | set | frozenset) and not isinstance(listed, str | bytes)
    if not usable or not _fits(len(listed), count) or None in (names := [*map(_plain, listed)]):
        raise InvalidArgumentError(
            f"Expected `{kind}` to be a list of whole numbers or text, one for each record, but "
            f"got something else. Nothing was changed."
        )
    return [name for name in names if name is not None]


def _fits(length: int, count: int | None) -> bool:
    return length <= MOST_RECORDS if count is None else length == count


def _plain(name: Any) -> Name | None:
    if isinstance(name, str):
        return str(name)
    whole = isinstance(name, Integral) and not isinstance(name, bool)
    return int(name) if whole else None


def _pairs(inputs: Any, labels: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of rows and their labels."""
    if isinstance(inputs, Tensor):
        if labels is None or not inputs.ndim:
            raise InvalidArgumentError(
                "Expected a batch of records with `labels`, one for each row, or a dataset of "
                "pairs. Nothing was added."
            )
        yield inputs.detach(), _label_row(labels)
        return
    if labels is not None:
        raise InvalidArgumentError(
            f"Expected `labels` with a tensor or an array of records only: a "
            f"{type(inputs).__name__} has pairs of inputs and labels itself. Nothing was added."
        )
    if isinstance(inputs, DataLoader):
        for batch in inputs:
            rows, targets = _pair(batch)
            yield _numbers(rows), _label_row(targets)
        return
    if isinstance(inputs, Mapping | str | bytes) or not hasattr(inputs, "__getitem__"):
        raise InvalidArgumentError(
            f"Expected a tensor of records, a dataset or a DataLoader, but got "
            f"{type(inputs).__name__}. Nothing was added."
        )
    for index in range(require_length("inputs", inputs)):
        row, target = _pair(inputs[index])
        yield _numbers(row)[None], _label_row([target])


def _numbers(given: Any) -> Tensor:
    """Return a record's inputs, or a batch of them, as a tensor."""
    try:
        return torch.as_tensor(given).detach()
    except (TypeError, ValueError, RuntimeError):  # its message may quote a record
        kind = type(given).__name__
    raise InvalidArgumentError(
        f"Expected inputs of records to be tensors or arrays of numbers, but got a {kind}. Turn "
        f"text and pictures into tensors first; `embed` takes those. Nothing was added."
    )


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise InvalidArgumentError(
        f"Expected pairs of inputs and a label, but got {type(item).__name__}. Nothing was added."
    )


def _label_row(labels: Any) -> Tensor:
    if isinstance(labels, list | tuple) and any(isinstance(label, Tensor) for label in labels):
        labels = [label.item() if label.ndim == 0 else label for label in labels]
    try:
        row = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        row = torch.zeros(())
    if row.ndim != 1:
        raise InvalidArgumentError(
            "Expected labels to be one whole number for each record. Nothing was added."
        )
    return row.detach() if row.numel() else torch.zeros(0, dtype=torch.int64)
