"""Loaders for a pass: this process's share of the holdout, and training examples as a guess."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, SequentialSampler
from transformers.trainer_pt_utils import LengthGroupedSampler

from torch_holdout._shared.distributed import rank_and_world
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.training.guesses import dealt
from torch_holdout.training.requirements import listed


def own_share(loader: Any, batch_size: int) -> Any:
    """Return a loader of this process's examples: number rank, rank + world, ... of the dataset.

    accelerate's own shares repeat the first examples to fill the last batch. A loader that it has
    not divided stays as it is: every process then has all examples, or shares made by the user.
    """
    rank, world = rank_and_world()
    if world == 1:
        return loader
    if isinstance(loader, DataLoaderDispatcher):
        raise InvalidArgumentError(
            "Expected a holdout whose examples have numbers, because several processes divide "
            "them, but its dataset can only be iterated. Give eval_dataset a length and items by "
            "number, or evaluate in one process. Nothing was charged."
        )
    divided = getattr(loader, "batch_sampler", None)
    if not isinstance(divided, BatchSamplerShard):
        return loader
    sampler = getattr(divided.batch_sampler, "sampler", None)
    if not isinstance(sampler, SequentialSampler | LengthGroupedSampler):
        raise InvalidArgumentError(
            f"Expected the holdout's loader to read the dataset in order on several processes, "
            f"but its sampler is {type(sampler).__name__}. Return the loader from "
            f"get_eval_dataloader without accelerator.prepare(), with a DistributedSampler. "
            f"Nothing was charged."
        )
    share: DistributedSampler[Any] = DistributedSampler(
        loader.dataset, num_replicas=world, rank=rank, shuffle=False
    )
    return rebuilt(loader, batch_size, share)


def first_batch(loader: Any) -> Iterator[Any]:
    """Yield a first batch, read in this process; none of a loader that may be read only once.

    accelerate's loaders take part in accumulating gradients while they are iterated, so another one
    reads it.
    """
    batches = getattr(loader, "batch_sampler", None)
    if not isinstance(loader, DataLoader) or batches is None:
        return
    if isinstance(loader.dataset, IterableDataset):
        return
    plain: DataLoader[Any] = DataLoader(
        loader.dataset, batch_sampler=batches, collate_fn=loader.collate_fn
    )
    yield from islice(plain, 1)


def rebuilt(loader: Any, batch_size: int, sampler: Any = None) -> DataLoader[Any]:
    """Return a plain loader of the same dataset, as accelerate got it."""
    return DataLoader(
        loader.dataset,
        batch_size=batch_size,
        sampler=sampler,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
    )


def require_guess_sets(holdout: ReusableHoldout, guess_dataset: Any) -> list[Any]:
    """Return the sets of training examples; raise unless they suit the mechanism."""
    sets = [] if guess_dataset is None else list(listed(_as_sets(guess_dataset, holdout)))
    if holdout.mechanism.wants_guess() and not sets:
        raise InvalidArgumentError(
            f"Expected `guess_dataset` for holdout {holdout.name!r}, because its mechanism "
            f"compares with the training value. Pass e.g. guess_dataset=th.fixed_subset("
            f"train_set, 1000, seed=0). Nothing was charged."
        )
    wanted = holdout.mechanism.estimation_sets
    if wanted is not None and len(sets) != wanted:
        raise InvalidArgumentError(
            f"Expected one guess dataset for each of {wanted} estimation sets, but got "
            f"{len(sets)}. Nothing was charged."
        )
    return sets


def guess_batches(
    trainer: Any, holdout: ReusableHoldout, sets: list[Any]
) -> Iterator[tuple[Any, bool]]:
    """Yield this process's batches of training examples, and whether their values count."""
    if not sets or not holdout.mechanism.wants_guess():
        return
    if holdout.mechanism.estimation_sets is not None:
        sets = [sets[holdout.estimation_set()]]
    size = trainer.args.eval_batch_size
    loaders = [rebuilt(trainer.get_test_dataloader(each), size) for each in sets]
    yield from dealt(chain.from_iterable(loaders), *rank_and_world())


def _as_sets(guess_dataset: Any, holdout: ReusableHoldout) -> Any:
    """Return several sets as they are, and one in a list: a list may be a dataset."""
    several = holdout.mechanism.estimation_sets is not None
    return guess_dataset if several else [guess_dataset]
