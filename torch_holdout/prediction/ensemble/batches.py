"""Batches with the same number of records from every part, in an order that the seed decides."""

import math
from collections.abc import Callable, Iterator
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import Dataset, Sampler, Subset, TensorDataset, default_collate

from torch_holdout._noise.fixed import permutations
from torch_holdout.errors import InvalidArgumentError

BLANK = -1  # the index of a record that is all zeros
_WINDOW = 2**21  # how many indices are drawn ahead
_BLOCK = 1024  # short parts draw several of their orders at once

AsPair = Callable[[Any], tuple[Any, Any]]


@final
class PartSampler(Sampler[Any]):
    """Yield the indices of one step at a time, part after part.

    Example:
        >>> halves = [torch.tensor([0, 2]), torch.tensor([1, 3])]
        >>> sampler = PartSampler(halves, first=0, batch_size=3, steps=1, seed=0)
        >>> [sorted(set(part.tolist())) for part in torch.from_numpy(next(iter(sampler))).split(3)]
        [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        parts: list[Tensor],
        *,
        first: int,
        batch_size: int,
        steps: int,
        seed: int,
        started: Callable[[], int] = int,
    ) -> None:
        self.parts = parts
        self.first = first
        self.batch_size = batch_size
        self.steps = steps
        self.seed = seed
        self.epoch = 0
        self._started = started

    def set_epoch(self, epoch: int) -> None:
        """Take the number of the epoch; Lightning calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        streams = [
            _PartStream(part, (self.seed, self.epoch, self.first + position))
            for position, part in enumerate(self.parts)
        ]
        done = self._started()
        ahead = max(1, _WINDOW // (len(streams) * self.batch_size))
        for start in range(0, self.steps, ahead):
            steps = min(ahead, self.steps - start)
            drawn = torch.stack([stream.take(steps * self.batch_size) for stream in streams])
            window = drawn.view(len(streams), steps, self.batch_size).transpose(0, 1)
            for step in range(max(done - start, 0), steps):
                yield window[step].flatten().numpy()


class _PartStream:
    """The records of one part, over and over, in a new order each time."""

    def __init__(self, part: Tensor, key: tuple[int, ...]) -> None:
        self._part = part if len(part) else torch.tensor([BLANK])
        self._key = key
        self._blocks = 0
        self._rest = part[:0]

    def take(self, count: int) -> Tensor:
        """Return the next indices."""
        pieces, held = [self._rest], len(self._rest)
        while held < count:
            pieces.append(self._block())
            held += len(pieces[-1])
        drawn = torch.cat(pieces)
        self._rest = drawn[count:]
        return drawn[:count]

    def _block(self) -> Tensor:
        size = len(self._part)
        rows = math.ceil(_BLOCK / size)
        order = permutations(rows, size, *self._key, self._blocks)
        self._blocks += 1
        return self._part[order.flatten()]


class GatheredRecords(Dataset[Any]):
    """A dataset that is read by arrays of indices: one flat batch for each."""

    def __init__(self, dataset: Any, as_pair: AsPair | None) -> None:
        self._dataset = dataset
        self._as_pair = as_pair
        self._base, self._places = _unwrapped(dataset)

    def __getitem__(self, indices: Any) -> Any:
        blank = indices == BLANK
        indices = np.where(blank, 0, indices) if (any_blank := bool(blank.any())) else indices
        batch = self._columns(indices) if self._by_column() else self._records(indices.tolist())
        if any_blank:
            mask = torch.from_numpy(blank)
            batch = tree_map(lambda leaf: _blanked(leaf, mask), batch)
        return batch

    def _by_column(self) -> bool:
        return self._base is not None and self._as_pair is None

    def _columns(self, indices: Any) -> tuple[Any, Any]:
        places = torch.from_numpy(indices)
        if self._places is not None:
            places = self._places[places]
        base = cast(TensorDataset, self._base)
        return _pair(tuple(column.index_select(0, places) for column in base.tensors))

    def _records(self, indices: list[int]) -> tuple[Any, Any]:
        gather = getattr(self._dataset, "__getitems__", None)
        records = gather(indices) if gather else [self._dataset[index] for index in indices]
        as_pair = self._as_pair or _pair
        return _collated([as_pair(record) for record in records])


def _unwrapped(dataset: Any) -> tuple[TensorDataset | None, Tensor | None]:
    """Return the columns behind a dataset of tensors, or a subset of one, and which rows it has."""
    places: Tensor | None = None
    while type(dataset) is Subset:
        inner = torch.as_tensor(list(dataset.indices), dtype=torch.int64)
        places = inner if places is None else inner[places]
        dataset = dataset.dataset
    return (dataset, places) if type(dataset) is TensorDataset else (None, None)


def _pair(record: Any) -> tuple[Any, Any]:
    if not isinstance(record, tuple | list) or len(record) != 2:
        raise InvalidArgumentError(
            f"Expected every record to be a pair (input, target), but got a "
            f"{type(record).__name__}. Pass as_pair=, a function that makes the pair of a record."
        )
    return record[0], record[1]


def _collated(pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    try:
        inputs, targets = default_collate(pairs)
        return inputs, targets
    except Exception as error:  # also one of ours: a record's own class may raise it
        kind = type(error).__name__
    raise InvalidArgumentError(
        f"Expected records that make one batch (tensors of equal shapes, or numbers), but putting "
        f"them together raised {kind}. Its message is withheld, because it may tell of records. "
        f"Pad or convert them in the dataset, or in `as_pair`."
    )


def _blanked(leaf: Any, mask: Tensor) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.masked_fill(mask.view(-1, *[1] * (leaf.ndim - 1)), 0)
