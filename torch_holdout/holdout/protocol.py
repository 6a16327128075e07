"""What the guard and the metric ask of a holdout, wherever its values are computed."""

import inspect
from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard

from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.checks import Role
from torch_holdout.holdout.results import Answer
from torch_holdout.mechanisms import Mechanism
from torch_holdout.statistics import Statistic


class Accumulator(Protocol):
    """What a pass adds its batches to; only the door that made it can read it."""

    _seen: int

    @property
    def goes_by_place(self) -> bool:
        """Whether rows are told apart by their places in the dataset alone."""

    def update(self, *arguments: Any, **named: Any) -> None:
        """Add one batch."""


class Door(Protocol):
    """A holdout that answers through a mechanism: in this process, or a board in another.

    The guard and the metric know a holdout by these names alone.
    """

    @property
    def name(self) -> str:
        """The name of the holdout."""

    @property
    def size(self) -> int:
        """The number of examples, each of which a pass sees once."""

    @property
    def budget(self) -> int:
        """The number of answers that may read the holdout."""

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        """The statistics that are answered, by name."""

    @property
    def mechanism(self) -> Mechanism:
        """The rule that answers."""

    @property
    def address(self) -> str:
        """The address of its ledger or board, without a password."""

    @property
    def account(self) -> str:
        """A public mark, to tell it from another of the same name."""

    @property
    def asked_for(self) -> tuple[str, ...]:
        """The names that a step returns values under."""

    @property
    def budget_left(self) -> int:
        """The number of releases that may still be made."""

    @property
    def questions_left(self) -> int | None:
        """How many passes may still be asked about, whatever is answered; None for any number."""

    @property
    def exhausted(self) -> bool:
        """Whether nothing more is answered."""

    def require_values(self) -> None:
        """Raise unless the passes of a training are answered."""

    def status(self) -> Any:
        """Return its public state."""

    def accumulator(
        self, name: str, *, role: Role = "holdout", rank: int = 0, world: int = 1
    ) -> Accumulator:
        """Return what one statistic's values of a pass are added to."""

    def estimation_set(self) -> int:
        """Return which set of training examples the next guess comes from."""

    def release(
        self,
        name: str,
        sums: Any,
        *,
        query: str | WeightsFingerprint,
        guess: Any = None,
    ) -> Answer:
        """Answer one query for one statistic."""

    def release_all(
        self,
        sums: Mapping[str, Any],
        *,
        query: str | WeightsFingerprint,
        guesses: Mapping[str, Any] | None = None,
    ) -> dict[str, Answer]:
        """Answer one query for every statistic."""


_MEMBERS = [name for name in vars(Door) if not name.startswith("_")]


def is_door(value: object) -> TypeGuard[Door]:
    """Whether an object can stand where the guard and the metric expect a holdout.

    Its class is asked: a property's value may open a ledger, or a connection.
    """
    nothing = object()
    own = [inspect.getattr_static(type(value), name, nothing) for name in _MEMBERS]
    return all(member is not nothing for member in own)


def require_door(name: str, value: object) -> None:
    """Raise unless an object is a holdout."""
    if not is_door(value):
        raise InvalidArgumentError(
            f"Expected `{name}` to be of type ReusableHoldout, or what th.remote(url).holdout() "
            f"returns, but got {type(value).__name__}."
        )
