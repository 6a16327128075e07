"""The data module that serves every member of an ensemble its own part."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from torch_holdout._noise.generators import lent_generators
from torch_holdout._shared.checks import require_instance, require_length, require_whole
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.ensemble.batches import AsPair, GatheredRecords, PartSampler
from torch_holdout.prediction.partition import Key, Partition


@final
@dataclass(frozen=True)
class PartitionedBatch:
    """A batch for the ensemble: [members, records, ...] tensors."""

    input: Any
    target: Any


class ReadsBatches(ABC):
    """A module that looks at a batch on the host, before it goes to the device."""

    @abstractmethod
    def look_at_batch(self, pair: tuple[Any, Any], num_members: int) -> None:
        """Check a flat batch, part after part."""


class ShardsMembers(ABC):
    """A strategy that gives each process some of the members."""

    @abstractmethod
    def members(self, num_parts: int) -> range:
        """Return the members of this process."""


class PartitionedDataHooks:
    """Serve every member its own part, for either Lightning package."""

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
        """Serve every member of an ensemble its own part, all in one batch.

        The number of steps is declared, not read off the parts: short parts go round, in a new
        order each time, so one record more changes nothing for the other members. A part without
        records is served blank ones (zeros), silently: which parts are empty is private.

        Args:
            train_set: The records: a dataset with a length. A ``TensorDataset``, and one with
                ``__getitems__``, is read once per step.
            parts: The partition, the same as the ensemble's.
            batch_size: Records of each part in a step.
            steps_per_epoch: Steps in an epoch.
            keys: The keys of all records; else the partition's key function reads every record.
            as_pair: Makes ``(input, target)`` of a record; without it, records are such pairs.
            num_workers: Processes that read records.
            pin_memory: Whether batches are put into pinned memory.

        Example:
            >>> import torch
            >>> from torch_holdout.prediction import Partition, PartitionedDataModule
            >>> records = torch.utils.data.TensorDataset(torch.zeros(100, 3), torch.zeros(100))
            >>> parts = Partition(num_parts=5, key="index", seed=7)
            >>> data = PartitionedDataModule(records, parts, batch_size=4, steps_per_epoch=10)
            >>> inputs, targets = next(iter(data.train_dataloader()))
            >>> inputs.shape, len(data.train_dataloader())
            (torch.Size([20, 3]), 10)
        """
        super().__init__()
        require_instance("parts", parts, Partition)
        require_whole("batch_size", batch_size, 1, 2**24)
        require_whole("steps_per_epoch", steps_per_epoch, 1, 2**31)
        require_whole("num_workers", num_workers, 0, 2**10)
        if require_length("train_set", train_set) == 0:
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
            # Reading records for their keys may draw, as an augmentation does: how many records
            # there are must not decide what is drawn for others in training.
            with lent_generators("keys"):
                self._assignment = self.parts.assign(self.train_set, self._keys)
        return self._assignment

    def sampler(self) -> PartSampler:
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

    # ---- hooks of Lightning

    def train_dataloader(self) -> "PartLoader":
        """Return the loader of flat batches, part after part."""
        return PartLoader(
            GatheredRecords(self.train_set, self.as_pair),
            sampler=self.sampler(),
            batch_size=None,
            collate_fn=_unchanged,
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

    def _members(self) -> range:
        strategy = None if self.trainer is None else self.trainer.strategy
        if isinstance(strategy, ShardsMembers):
            return strategy.members(self.parts.num_parts)
        return range(self.parts.num_parts)

    def _steps_done(self) -> int:
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


def _unchanged(batch: Any) -> Any:
    return batch
