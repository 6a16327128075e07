"""Training examples for a mechanism that compares the holdout's value with the training value."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from torch.utils.data import Dataset, Subset

from torch_holdout._noise.fixed import fixed_permutation
from torch_holdout._shared.checks import plain_whole, require_length, require_whole
from torch_holdout._shared.distributed import rank_and_world
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.protocol import Door
from torch_holdout.training.requirements import listed


def fixed_subset(dataset: Dataset[Any], size: int, seed: int) -> Subset[Any]:
    """Return ``size`` examples chosen once by ``seed``, e.g. of the training set, as a guess.

    Train-time augmentation must be off in ``dataset``: the guess is the training value under the
    same conditions as the holdout's.

    Example:
        >>> one, other = (fixed_subset(list(range(100)), 5, seed=0) for _ in range(2))
        >>> one.indices == other.indices
        True
    """
    total = require_length("dataset", dataset)
    size, seed = plain_whole(size), plain_whole(seed)
    require_whole("size", size, 1, total)
    require_whole("seed", seed, -(2**63), 2**64 - 1)
    return Subset(dataset, fixed_permutation(total, seed)[:size].tolist())


def require_guesses(holdout: Door, loaders: Any) -> None:
    """Raise unless a mechanism that compares with training values has usable loaders for them."""
    for loader in () if loaders is None else listed(loaders):
        if not isinstance(loader, Iterable) or isinstance(loader, Iterator | dict | str):
            raise InvalidArgumentError(
                f"Expected `guess_dataloaders` to be a DataLoader or a list of them, which can be "
                f"read again for every evaluation, but got {type(loader).__name__}."
            )
    if holdout.mechanism.wants_guess() and loaders is None:
        raise InvalidArgumentError(
            f"Expected `guess_dataloaders` for holdout {holdout.name!r}, because its "
            f"mechanism compares with the training value. Pass e.g. guess_dataloaders="
            f"DataLoader(th.fixed_subset(train_set, 1000, seed=0), batch_size=500)."
        )
    sets = holdout.mechanism.estimation_sets
    given = len(list(listed(loaders)))
    if sets is not None and given != sets:
        raise InvalidArgumentError(
            f"Expected one guess loader for each of {sets} estimation sets, but got {given}."
        )


def guess_batches(trainer: Any, holdout: Door, loaders: Any) -> Iterator[tuple[Any, bool]]:
    """Yield this rank's batches of training examples, as Lightning would hand them over.

    With each comes whether its values count. Where the last round does not give every rank a batch,
    the others run the last one too, and drop what comes out: all ranks make the same number of
    passes, as sharded weights (``fully_shard``) need.
    """
    if loaders is None or not holdout.mechanism.wants_guess():
        return
    module = trainer.lightning_module
    chosen = list(listed(loaders))
    if holdout.mechanism.estimation_sets is not None:
        chosen = [chosen[holdout.estimation_set()]]
    for batch, counts in dealt(chain.from_iterable(chosen), *rank_and_world()):
        batch = trainer.precision_plugin.convert_input(batch)
        batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
        yield trainer.strategy.batch_to_device(batch, dataloader_idx=0), counts


def dealt(batches: Iterable[Any], rank: int, world: int) -> Iterator[tuple[Any, bool]]:
    """Yield every ``world``-th batch from ``rank`` on, and as many as any other rank gets.

    A batch that is yielded only to keep step comes with False.

    Example:
        >>> [list(dealt("abcd", rank, world=3)) for rank in range(3)]
        [[('a', True), ('d', True)], [('b', True), ('d', False)], [('c', True), ('d', False)]]
    """
    index = -1
    for index, batch in enumerate(batches):
        if index % world == rank:
            yield batch, True
    if (index + 1) % world and rank > index % world:
        yield batch, False
