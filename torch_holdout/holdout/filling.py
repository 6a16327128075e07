"""Plain values of a whole pass, put into sealed sums."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from torch_holdout._shared.checks import require_instance
from torch_holdout._shared.distributed import on_any_rank
from torch_holdout.errors import HoldoutError
from torch_holdout.holdout.checks import Role, owner_of
from torch_holdout.holdout.registration import Registration
from torch_holdout.statistics import SealedSums
from torch_holdout.statistics.arrays import is_number

_Result = TypeVar("_Result")


def empty_sums(
    registration: Registration, address: str, name: str, role: Role, rank: int, world: int
) -> SealedSums:
    """Return an empty sealed sum of one statistic, marked as this holdout's."""
    statistic, levels = registration.statistic(name), registration.levels
    owner = owner_of(registration, address, name, role)
    size = registration.size
    return statistic.accumulator(levels, owner=owner, size=size, rank=rank, world=world)


def filled(values: Mapping[str, Any], empty: Callable[[str], SealedSums]) -> dict[str, SealedSums]:
    """Return sealed sums for each statistic; those that are sealed already, as they are."""
    require_instance("values", values, Mapping)
    return {name: filled_one(given, partial(empty, name)) for name, given in values.items()}


def filled_one(values: Any, empty: Callable[[], SealedSums]) -> SealedSums:
    """Return values, or a tuple of a statistic's arguments, as sealed sums."""
    if isinstance(values, SealedSums):
        return values
    sums = empty()
    sums.update(*values if are_arguments(values) else (values,))
    return sums


def on_every_rank(action: Callable[[], _Result]) -> _Result:
    """Run an action; raise on every rank if it raises on one, so that none waits for it."""
    problem: HoldoutError | None = None
    try:
        result = action()
    except HoldoutError as error:
        problem = error
    if on_any_rank(problem is not None):
        raise problem or HoldoutError(
            "Another rank could not ask; nothing was released or charged."
        )
    return result


def are_arguments(values: Any) -> bool:
    """Whether a tuple is several arguments, and not one number for each example."""
    numbers = isinstance(values, tuple) and all(each is None or is_number(each) for each in values)
    return isinstance(values, tuple) and not numbers
