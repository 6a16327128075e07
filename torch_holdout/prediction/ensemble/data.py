"""Batches with the same number of records from every part, in an order that the seed decides."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, TensorDataset, default_collate

from torch_holdout._noise.streams import permutations
from torch_holdout._shared.checks import require_instance, require_whole
from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.ensemble.sharding import ShardsMembers
from torch_holdout.prediction.partition import Key, Partition

BLANK = -1  # the index of a record that is all zeros
_WINDOW = 2**21  # how many indices are drawn ahead
_BLOCK = 1024  # short parts draw several of their orders at once

AsPair = Callable[[Any], tuple[Any, Any]]


@final
@dataclass(frozen=True)
class PartitionedBatch:
    """What a ``PartitionedDataModule`` hands to the ensemble: [members, records, ...] tensors."""

    input: Any
    target: Any


class ReadsBatches(ABC):
    """A module that looks at a batch on the host, before it goes to the device."""

    @abstractmethod
    def look_at_batch(self, pair: tuple[Any, Any], num_members: int) -> None:
        """Check a flat batch, part after part."""


class PartitionedDataHooks:
    """Serve every member of an ensemble its own part, all in one batch.

    The number of steps is declared, not read off the parts: short parts go round, in a new order
    each time, so one record more changes nothing for the other members. A part without records is
    served blank ones (zeros), silently: which parts are empty is private.

    Args:
        train_set: The records: a dataset with a length. A ``TensorDataset``, and one with
            ``__getitems__``, is read once per step.
        parts: The partition, the same as the ensemble's.
        batch_size: Records of each part in a step.
        steps_per_epoch: Steps in an epoch.
        keys: The keys of all records, if the partition's key is a function; else it is called on
            every record once.
        as_pair: Makes ``(input, target)`` of a record; without it, records are such pairs. Records
            are then read one by one, or through ``__getitems__``.
        num_workers: Processes that read records.
        pin_memory: Whether batches are put into pinned memory.

    Example:
        >>> from torch_holdout.prediction import PartitionedDataModule
        >>> records = TensorDataset(torch.zeros(100, 3), torch.zeros(100))
        >>> parts = Partition(num_parts=5, key="index", seed=7)
        >>> data = PartitionedDataModule(records, parts, batch_size=4, steps_per_epoch=10)
        >>> inputs, targets = next(iter(data.train_dataloader()))
        >>> inputs.shape, len(data.train_dataloader())
        (torch.Size([20, 3]), 10)
    """

    trainer: Any

    def __init__(
        self,
        train_set: Any,
        parts: Partition,
        *,
        batch_size: int,
        steps_per_epoch: int,
        keys: Iterable[Key] | Tensor | None = None,
        as_pair: AsPair | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        super().__init__()
        require_instance("parts", parts, Partition)
        require_whole("batch_size", batch_size, 1, 2**24)
        require_whole("steps_per_epoch", steps_per_epoch, 1, 2**31)
        require_whole("num_workers", num_workers, 0, 2**10)
        if not isinstance(train_set, Sized) or len(train_set) == 0:
            raise InvalidArgumentError(
                "Expected a dataset with a length and at least one record, but got an empty one, "
                "or a stream. Pass a map-style dataset."
            )
        self.train_set: Any = train_set
        self.parts = parts
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch
        self.as_pair = as_pair
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self._keys = keys
        self._assignment: list[Tensor] | None = None

    def assignment(self) -> list[Tensor]:
        """Return the dataset indices of each part. Private: the sizes of parts are."""
        if self._assignment is None:
            self._assignment = self.parts.assign(self.train_set, self._keys)
        return self._assignment

    def sampler(self) -> "PartSampler":
        """Return the order of this process's records."""
        members = self._members()
        return PartSampler(
            self.assignment()[members.start : members.stop],
            first=members.start,
            batch_size=self.batch_size,
            steps=self.steps_per_epoch,
            seed=self.parts.seed,
            started=self._steps_done,
        )

    # ---- what Lightning calls

    def train_dataloader(self) -> "PartLoader":
        """Return the loader of flat batches, part after part."""
        return PartLoader(
            _Gathered(self.train_set, self.as_pair),
            sampler=self.sampler(),
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
        )

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Let the ensemble check the batch while it is on the host."""
        module = self.trainer.lightning_module
        if self.trainer.training and isinstance(module, ReadsBatches):
            module.look_at_batch(batch, len(self._members()))
        return batch

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """View the flat batch as [members, records, ...]."""
        if not self.trainer.training:
            return batch
        members = len(self._members())
        stacked = tree_map(lambda leaf: leaf.view(members, -1, *leaf.shape[1:]), tuple(batch))
        return PartitionedBatch(*stacked)

    # ---- inside

    def _members(self) -> range:
        strategy = None if self.trainer is None else self.trainer.strategy
        if isinstance(strategy, ShardsMembers):
            return strategy.members(self.parts.num_parts)
        return range(self.parts.num_parts)

    def _steps_done(self) -> int:
        """Return how many steps of the epoch a resumed fit has done, as Lightning counts them."""
        if self.trainer is None:
            return 0
        done = int(self.trainer.fit_loop.epoch_loop.batch_progress.current.ready)
        return done if done < self.steps_per_epoch else 0


@final
class PartLoader(DataLoader[Any]):
    """A loader that starts when its first batch is asked for.

    Lightning makes the iterator before it says which epoch it is; workers would read ahead from the
    wrong one.
    """

    def __iter__(self) -> Any:
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        yield from super().__iter__()

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the sampler finds its place from the Trainer's own counters."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing; that this exists tells Lightning that the loader can be resumed."""


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


class _Gathered(Dataset[Any]):
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
    def collated() -> tuple[Any, Any]:
        inputs, targets = default_collate(pairs)
        return inputs, targets

    def refusal(kind: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"Expected records that make one batch (tensors of equal shapes, or numbers), but "
            f"putting them together raised {kind}. Its message is withheld, because it may tell of "
            f"records. Pad or convert them in the dataset, or in `as_pair`."
        )

    return errors_by_type(collated, refusal)


def _blanked(leaf: Any, mask: Tensor) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.masked_fill(mask.view(-1, *[1] * (leaf.ndim - 1)), 0)


def _as_it_is(batch: Any) -> Any:
    return batch
