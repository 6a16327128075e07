"""Training examples for a mechanism that compares the holdout's value with the training value."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from torch_holdout._shared.distributed import rank_and_world
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.training.requirements import listed, require_loaders


def require_guesses(holdout: ReusableHoldout, loaders: Any) -> None:
    """Raise unless a mechanism that compares with training values has loaders for them."""
    require_loaders(loaders)
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


def guess_batches(trainer: Any, holdout: ReusableHoldout, loaders: Any) -> Iterator[Any]:
    """Yield this rank's batches of training examples, as Lightning would hand them over."""
    if loaders is None or not holdout.mechanism.wants_guess():
        return
    rank, world = rank_and_world()
    module = trainer.lightning_module
    chosen = list(listed(loaders))
    if holdout.mechanism.estimation_sets is not None:
        chosen = [chosen[holdout.estimation_set()]]
    for index, batch in enumerate(chain.from_iterable(chosen)):
        if index % world == rank:
            batch = trainer.precision_plugin.convert_input(batch)
            batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
            yield trainer.strategy.batch_to_device(batch, dataloader_idx=0)
