"""The parameters of a holdout as its ledger stores them, typed, and their comparison."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, final

from torch_holdout.bounds.ratios import Quotient
from torch_holdout.errors import HoldoutError, HoldoutMismatchError
from torch_holdout.ledger.chains import canonical, damaged
from torch_holdout.ledger.plans import as_planned
from torch_holdout.mechanisms import Mechanism, mechanism_of

UNREADABLE = (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError)
Value = TypeVar("Value")
IntervalKind = Literal["zero_one", "mean", "blocks"]
# By the registered kind of a statistic: which interval a closed account has.
_INTERVALS: dict[str, IntervalKind] = {
    "zero_one": "zero_one",
    "bounded_mean": "mean",
    "grouped_mean": "mean",
}
_OF_EXAMPLES = ("zero_one", "bounded_mean", "ratio")  # kinds whose units are the examples


class _Stored(Generic[Value]):
    """A value of ``content``; ``KeyError`` if it is missing, ``TypeError`` for another type.

    ``optional`` reads a missing value or null as None.
    """

    def __init__(self, *kinds: type, key: str = "", optional: bool = False) -> None:
        self._kinds, self._key, self._optional = kinds, key, optional

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = self._key or name

    def __get__(self, stored: Any, owner: type) -> Value:
        if self._optional and stored.content.get(self._key) is None:
            return None  # type: ignore[return-value]
        value: Value = stored.content[self._key]
        # To Python True is an int.
        if not isinstance(value, self._kinds) or isinstance(value, bool) != (bool in self._kinds):
            raise TypeError(self._key)  # never the value: this may be shown
        return value


@final
@dataclass(frozen=True)
class StoredStatistic:
    """One registered statistic; ``content`` is its stored JSON object.

    Reading raises ``KeyError`` or ``TypeError`` where a value is missing or of another type.
    """

    content: dict[str, Any]
    units = _Stored[int](int)  # parts that the mean is taken over
    grid = _Stored[int](int)  # answer intervals
    low = _Stored[float](int, float)
    high = _Stored[float](int, float)
    mode = _Stored[str](str)  # "min" or "max"
    blocks = _Stored[int | None](int, optional=True)  # None for a mean of examples or groups
    groups = _Stored[dict[str, Any] | None](dict, optional=True)  # of rows that belong together

    @property
    def cut(self) -> tuple[int, Any, str | None]:
        """Which examples make up a unit."""
        content, groups = self.content, self.groups
        if content.get("kind") == "logged_mean":  # batches, also those of each rank
            return self.units, (content.get("batch_size"), content.get("ranks")), None
        return self.units, content.get("seed"), None if groups is None else groups["digest"]

    @property
    def counts_examples(self) -> bool:
        """Whether every example is a unit."""
        return self._kind in _OF_EXAMPLES

    @property
    def counts_groups(self) -> bool:
        """Whether every group of examples is a unit."""
        return self._kind == "grouped_mean"

    @property
    def interval_kind(self) -> IntervalKind:
        """Which interval a closed account has: exact, by moments, or for any bounded units."""
        return _INTERVALS.get(self._kind, "blocks")

    @property
    def is_ratio(self) -> bool:
        """Whether it is a quotient of two means."""
        return self._kind == "ratio"

    @property
    def quotient(self) -> Quotient:
        """The bounds of a ratio and of its two parts."""
        return Quotient.of(self.content)

    @property
    def _kind(self) -> str:
        return str(self.content.get("kind"))

    @property
    def has_grid(self) -> bool:
        """Whether bounds and grid were registered, so that answers can be placed."""
        return {"low", "high", "grid"} <= set(self.content)

    def value_at(self, index: int) -> float:
        """Return the published value of a grid point, in user units."""
        return self.low + (self.high - self.low) * index / self.grid


def replaced_together(statistics: Iterable[StoredStatistic]) -> str:
    """Return what neighbouring holdouts differ in: one example, or one group of examples.

    Only if every statistic is a mean over the same groups does a whole group move no sum by more.

    Example:
        >>> groups = {"digest": "a"}
        >>> loss = StoredStatistic({"kind": "grouped_mean", "units": 5, "groups": groups})
        >>> accuracy = StoredStatistic({"kind": "zero_one", "units": 50})
        >>> replaced_together([loss]), replaced_together([loss, accuracy])
        ('group of examples', 'example')
    """
    known = list(statistics)
    grouped = all(statistic.counts_groups for statistic in known)
    same = len({statistic.cut for statistic in known}) == 1
    return "group of examples" if grouped and same else "example"


@final
@dataclass(frozen=True)
class StoredRegistration:
    """The fixed parameters of a holdout; ``content`` is the stored JSON object.

    Unknown keys and the order of keys are kept: ledgers compare them. Reading raises ``KeyError``
    or ``TypeError`` where a value is missing or of another type.

    Example:
        >>> text = '{"size":50,"statistics":{"val_acc":{"units":50}},"budget":3}'
        >>> stored = StoredRegistration.parse(text)
        >>> stored.size, stored.statistics["val_acc"].units, stored.text() == text
        (50, 50, True)
    """

    content: dict[str, Any]
    size = _Stored[int](int)  # examples
    budget = _Stored[int](int)  # releases
    resolution = _Stored[int](int)  # integer levels of one example's value
    seeded = _Stored[bool](bool)
    planned = _Stored[int | None](int, optional=True)  # queries of a plan
    mechanism_identity = _Stored[dict[str, Any]](dict, key="mechanism")
    _statistics = _Stored[dict[str, Any]](dict, key="statistics")
    _delta = _Stored[float](int, float, key="delta")

    def __post_init__(self) -> None:
        _ = self.units

    @classmethod
    def parse(cls, text: Any) -> "StoredRegistration":
        """Read the stored JSON text, or raise one of ``UNREADABLE``."""
        return cls(dict(json.loads(text)))

    @classmethod
    def of_account(cls, row: Any, address: str) -> "StoredRegistration":
        """Read an account's registration, or raise ``LedgerError``."""
        try:
            return cls.parse(row.registration)
        except UNREADABLE:
            raise damaged(row.name, address) from None

    @cached_property
    def quotients(self) -> dict[str, Quotient]:
        """The bounds of those statistics that are ratios, by name."""
        return {name: own.quotient for name, own in self.statistics.items() if own.is_ratio}

    def text(self) -> str:
        """Return the JSON text that is stored."""
        return canonical(self.content)

    @cached_property
    def statistics(self) -> dict[str, StoredStatistic]:
        """The registered statistics, by name."""
        return {name: StoredStatistic(content) for name, content in self._statistics.items()}

    @property
    def delta(self) -> float | None:
        """The delta that epsilon is stated at; None for pure epsilon."""
        return None if self.content["delta"] is None else self._delta

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
        except (HoldoutError, *UNREADABLE):  # no mechanism, or one of another library
            return False

    def with_statistics(self, added: dict[str, StoredStatistic]) -> "StoredRegistration":
        """Return the registration with more statistics after the registered ones."""
        new = {name: statistic.content for name, statistic in added.items()}
        return StoredRegistration(self.content | {"statistics": self.content["statistics"] | new})


def merged(
    row: Any,
    stored: StoredRegistration,
    given: StoredRegistration,
    unlike: str | None,
    *,
    asked: bool,
    lenient: bool,
) -> StoredRegistration:
    """Return the stored registration with the statistics that were added, or raise.

    ``unlike`` says how the data that the account is opened with differs, if it does; ``asked``
    whether it was asked anything yet; ``lenient`` allows statistics that are stored and not given.
    """
    given = _as_stored(StoredRegistration(as_planned(stored.content, given.content)), stored)
    known = {_part(statistic, asked) for statistic in stored.statistics.values()}
    added = {
        name: statistic
        for name, statistic in given.statistics.items()
        if name not in stored.statistics and _part(statistic, asked) in known
    }
    if added and asked and stored.fixes_statistics():
        raise HoldoutMismatchError(
            f"Expected the statistics of holdout {row.name!r} to be fixed before its first query, "
            f"but {list(added)} would be new: its certificate counts on that. Give them a holdout "
            f"of their own. Nothing was charged."
        )
    whole = stored.with_statistics(added)
    wanted = given.content
    if lenient:
        wanted = wanted | {"statistics": whole.content["statistics"] | wanted["statistics"]}
    require_same(row, whole.content, wanted, unlike)
    return whole


def before_zero_one(identity: dict[str, Any]) -> dict[str, Any]:
    """Return a statistic's identity as it was when ``ZeroOne`` was stored as a bounded mean.

    Accounts of that time keep it for good, and with it the interval of a mean; the keys of queries
    are made from it, so that their answers are found again.

    Example:
        >>> before_zero_one({"kind": "zero_one", "low": 0.0, "high": 1.0, "mode": "max"})
        {'kind': 'bounded_mean', 'low': 0.0, 'high': 1.0, 'mode': 'max'}
    """
    return identity | {"kind": "bounded_mean"} if identity.get("kind") == "zero_one" else identity


def _as_stored(given: StoredRegistration, stored: StoredRegistration) -> StoredRegistration:
    """Return what is given, with the kind that ``ZeroOne`` has in the stored registration."""
    old = {
        name: StoredStatistic(before_zero_one(statistic.content))
        for name, statistic in given.statistics.items()
        if name in stored.statistics and _same_mean(stored.statistics[name], statistic)
    }
    return given.with_statistics(old)


def _same_mean(stored: StoredStatistic, given: StoredStatistic) -> bool:
    mean, old = stored.content, before_zero_one(given.content)
    return all(mean.get(key) == old.get(key) for key in ("kind", "low", "high", "mode"))


def _part(statistic: StoredStatistic, asked: bool) -> object:
    # Other cuts into as many units have a certificate of another theorem: not after an answer.
    return statistic.cut if asked else statistic.units


def require_same(
    row: Any, stored: dict[str, Any], given: dict[str, Any], unlike: str | None
) -> None:
    """Raise unless an account is opened with its own parameters and data (``unlike``: others)."""
    differences = [
        f"{path}: stored {old}, given {new}" for path, old, new in _differences(stored, given)
    ]
    if unlike is not None:
        differences.append(unlike)
    if differences:
        raise HoldoutMismatchError(
            f"Expected {row.name!r} to be opened with the parameters it was created with, but: "
            + "; ".join(differences)
            + ". Use the stored ones, or give new data a new name. Nothing was charged."
        )


def _differences(
    stored: dict[str, Any], given: dict[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for key in [*stored, *(key for key in given if key not in stored)]:
        old, new = stored.get(key, "nothing"), given.get(key, "nothing")
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}", old, new
