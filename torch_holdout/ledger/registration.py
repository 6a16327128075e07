"""The parameters of a holdout as its ledger stores them, typed."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, final

from torch_holdout.errors import HoldoutError
from torch_holdout.ledger.chains import canonical, damaged
from torch_holdout.mechanisms import Mechanism, mechanism_of

UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError)
Value = TypeVar("Value")


@final
@dataclass(frozen=True)
class StoredStatistic:
    """One registered statistic; ``content`` is its stored JSON object.

    Properties raise ``KeyError`` or ``TypeError`` where a value is missing or of another type.
    """

    content: dict[str, Any]

    @property
    def units(self) -> int:
        """Over how many parts the mean runs."""
        return _typed(self.content, "units", int)

    @property
    def grid(self) -> int:
        """The number of answer intervals."""
        return _typed(self.content, "grid", int)

    @property
    def low(self) -> float:
        """The lower bound, in user units."""
        return _number(self.content, "low")

    @property
    def high(self) -> float:
        """The upper bound, in user units."""
        return _number(self.content, "high")

    @property
    def mode(self) -> str:
        """Which direction is better, ``"min"`` or ``"max"``."""
        return _typed(self.content, "mode", str)

    @property
    def blocks(self) -> int | None:
        """How many blocks a metric that is no mean was cut into, None for a mean of examples."""
        return _optional(self.content, "blocks")

    @property
    def cut(self) -> tuple[int, Any]:
        """What says which examples make up a unit."""
        return self.units, self.content.get("seed")

    @property
    def counts_examples(self) -> bool:
        """Whether every example is a unit."""
        return bool(self.content.get("kind") == "bounded_mean")

    @property
    def has_grid(self) -> bool:
        """Whether bounds and grid were registered, so that answers can be placed."""
        return {"low", "high", "grid"} <= set(self.content)

    def value_at(self, index: int) -> float:
        """Return the published value of a grid point, in user units."""
        return self.low + (self.high - self.low) * index / self.grid


@final
@dataclass(frozen=True)
class StoredRegistration:
    """What is fixed when a holdout is made; ``content`` is the stored JSON object.

    What a ledger was given is kept as it is, unknown keys and the order of keys included: ledgers
    compare it. Properties raise ``KeyError`` or ``TypeError`` where a value is missing or of
    another type.

    Example:
        >>> text = '{"size":50,"statistics":{"val_acc":{"units":50}},"budget":3}'
        >>> stored = StoredRegistration.parse(text)
        >>> stored.size, stored.statistics["val_acc"].units, stored.text() == text
        (50, 50, True)
    """

    content: dict[str, Any]

    def __post_init__(self) -> None:
        for statistic in self.statistics.values():
            _ = statistic.units

    @classmethod
    def make(
        cls,
        *,
        size: int,
        statistics: dict[str, dict[str, Any]],
        mechanism: dict[str, Any],
        budget: int,
        delta: float | None,
        resolution: int,
        seeded: bool,
        planned: int | None,
    ) -> "StoredRegistration":
        """Return the registration of a new holdout; the properties have the arguments' names."""
        return cls(
            {
                "size": size,
                "statistics": statistics,
                "mechanism": mechanism,
                "budget": budget,
                "delta": delta,
                "resolution": resolution,
                "relation": "replace-one",
                "seeded": seeded,
                **({} if planned is None else {"planned": planned}),
            }
        )

    @classmethod
    def parse(cls, text: Any) -> "StoredRegistration":
        """Read the stored JSON text; raise one of ``UNREADABLE`` if it is no registration."""
        return cls(dict(json.loads(text)))

    @classmethod
    def of_account(cls, row: Any, address: str) -> "StoredRegistration":
        """Read an account's registration, or raise ``LedgerError``."""
        try:
            return cls.parse(row.registration)
        except UNREADABLE:
            raise damaged(row.name, address) from None

    def text(self) -> str:
        """Return the JSON text that is stored."""
        return canonical(self.content)

    @cached_property
    def statistics(self) -> dict[str, StoredStatistic]:
        """The registered statistics, by name."""
        stored = _typed(self.content, "statistics", dict)
        return {name: StoredStatistic(content) for name, content in stored.items()}

    @property
    def size(self) -> int:
        """How many examples the holdout has."""
        return _typed(self.content, "size", int)

    @property
    def budget(self) -> int:
        """How many releases are allowed."""
        return _typed(self.content, "budget", int)

    @property
    def delta(self) -> float | None:
        """At which delta epsilon is stated; None for pure epsilon."""
        return None if self.content["delta"] is None else _number(self.content, "delta")

    @property
    def resolution(self) -> int:
        """Integer levels of one example's value."""
        return _typed(self.content, "resolution", int)

    @property
    def seeded(self) -> bool:
        """Whether the noise comes from a test seed."""
        return _typed(self.content, "seeded", bool)

    @property
    def planned(self) -> int | None:
        """The number of queries of a plan."""
        return _optional(self.content, "planned")

    @property
    def mechanism_identity(self) -> dict[str, Any]:
        """The mechanism's name and parameters."""
        return _typed(self.content, "mechanism", dict)

    @property
    def units(self) -> set[int]:
        """The units values of all statistics."""
        return {statistic.units for statistic in self.statistics.values()}

    def mechanism(self) -> Mechanism:
        """Return the registered mechanism; raise ``LedgerError`` if this version knows none."""
        return mechanism_of(self.mechanism_identity)

    def fixes_statistics(self) -> bool:
        """Whether the mechanism allows no new statistics after the first query."""
        try:
            return self.mechanism().fixes_statistics
        except (HoldoutError, *UNREADABLE):  # none is registered, or one of another library
            return False

    def with_statistics(self, added: dict[str, StoredStatistic]) -> "StoredRegistration":
        """Return the registration with more statistics after the registered ones."""
        new = {name: statistic.content for name, statistic in added.items()}
        return StoredRegistration(self.content | {"statistics": self.content["statistics"] | new})


def _typed(content: dict[str, Any], key: str, kind: type[Value]) -> Value:
    value = content[key]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(key)  # never the value: this may be shown
    return value


def _number(content: dict[str, Any], key: str) -> float:
    return _typed(content, key, int if isinstance(content[key], int) else float)


def _optional(content: dict[str, Any], key: str) -> int | None:
    return None if content.get(key) is None else _typed(content, key, int)
