"""What can be wrong with one account's rows. Every check goes on after what it has found."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

from torch_holdout.accounting.filters import capacity_in_picos
from torch_holdout.accounting.picos import steps_in_picos
from torch_holdout.errors import HoldoutError
from torch_holdout.ledger import replay
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration, StoredStatistic
from torch_holdout.ledger.replay import Problem, StoredRow
from torch_holdout.mechanisms import Mechanism


@final
class CountedRows:
    """An account's rows in order, counted as they are read."""

    def __init__(self, rows: Iterable[StoredRow]) -> None:
        self._source = rows
        self.seen = 0

    def __iter__(self) -> Iterator[StoredRow]:
        for row in self._source:
            self.seen += 1
            yield row


def holdout_problems(
    account: StoredRow, rows: CountedRows, secrets: Callable[[], set[int]]
) -> Iterator[Problem]:
    """Check a holdout's answers, sums, order, chain, counters, budget and open rounds."""
    terms = _Terms(account["registration"])
    yield from ((None, problem) for problem in terms.problems)
    yield from replay.holdout_problems(account, rows, secrets, terms.row_problems)


def records_problems(account: StoredRow, rows: CountedRows) -> Iterator[Problem]:
    """Check the charges of training records: sums, order, chain, counters and capacity."""
    try:
        if account["capacity"] > _registered_capacity(account["registration"]):
            yield None, "the capacity is more than the registered epsilon gives"
    except (TypeError, KeyError, ValueError):
        yield None, "the registration cannot be read"
    yield from replay.records_problems(account, rows)


class _Terms:
    """What the registration says every answer must look like."""

    def __init__(self, text: Any) -> None:
        self.problems: list[str] = []
        self._registered: StoredRegistration | None = None
        self._mechanism: Mechanism | None = None
        self._attempts: dict[tuple[str, str], int] = {}
        try:
            self._registered = StoredRegistration.parse(text)
        except UNREADABLE:
            return  # the replay says so
        if "mechanism" in self._registered.content:
            self._read_mechanism(self._registered)

    def row_problems(self, row: StoredRow) -> Iterator[Problem]:
        yield from self._answer_problems(row)
        asked = (row["statistic"], row["query"])
        if row["attempt"] != self._attempts.get(asked, 0):
            yield row["position"], "answers to one query are not numbered in order"
        self._attempts[asked] = self._attempts.get(asked, 0) + 1

    def _answer_problems(self, row: StoredRow) -> Iterator[Problem]:
        position = row["position"]
        if row["kind"] not in ("release", "guess"):
            yield position, "neither a release nor a guess"
        if self._registered is None:
            return
        statistic = self._registered.statistics.get(row["statistic"])
        if statistic is None:
            yield position, "its statistic is not registered"
            return
        if row["units"] != statistic.units:
            yield position, "its units are not the registered ones"
        elif self._mechanism is not None and row["charge"] != _charge(row, self._mechanism):
            yield position, "its charge is not what the registered mechanism costs"
        if not _published(row, statistic):
            yield position, "its value is not the registered grid's"

    def _read_mechanism(self, registered: StoredRegistration) -> None:
        try:
            self._mechanism = registered.mechanism()
        except (HoldoutError, TypeError, AttributeError):
            self.problems.append("the registered mechanism cannot be read")
        size = registered.content.get("size")
        of_examples = [s.units for s in registered.statistics.values() if s.counts_examples]
        if any(units != size for units in of_examples):
            self.problems.append("the registered size is not that of its statistics")


def _charge(row: StoredRow, mechanism: Mechanism) -> int | None:
    steps = (row["kind"] == "release") + bool(row["opened"])
    return steps_in_picos(mechanism.charge_per_step(row["units"]), steps)


def _published(row: StoredRow, statistic: StoredStatistic) -> bool:
    """Whether a release lies on the grid, where its index says, and nothing else has an index."""
    index = row["grid_index"]
    if (index is not None) != (row["kind"] == "release"):
        return False
    if index is None or not statistic.has_grid:
        return True
    width = statistic.high - statistic.low
    return 0 <= index <= statistic.grid and math.isclose(
        row["value"], statistic.value_at(index), rel_tol=1e-9, abs_tol=1e-9 * width
    )


def _registered_capacity(text: Any) -> int:
    registered = json.loads(text)
    order = registered["derived"]["order"]
    at = math.inf if order is None else float(order)
    return capacity_in_picos(registered["epsilon"], registered["delta"], at)
