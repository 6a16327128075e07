"""What can be wrong with one account's rows. Every check goes on after what it has found."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, final

from torch_holdout.accounting.filters import capacity_in_picos
from torch_holdout.errors import HoldoutError
from torch_holdout.ledger.chains import chained, first_link
from torch_holdout.ledger.holdouts import CHAINED
from torch_holdout.ledger.records import CHAINED_CHARGE
from torch_holdout.ledger.schema import PICO
from torch_holdout.mechanisms import Mechanism, mechanism_of

Row = Mapping[Any, Any]
Problems = Iterator[tuple[int | None, str]]


@final
class Rows:
    """An account's rows in order, counted as they are read."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._source = rows
        self.seen = 0

    def __iter__(self) -> Iterator[Row]:
        for row in self._source:
            self.seen += 1
            yield row


def holdout_problems(account: Row, rows: Rows, secrets: Callable[[], set[int]]) -> Problems:
    """Check a holdout's answers, sums, order, chain, counters, budget and open rounds."""
    terms = _Terms(account["registration"])
    yield from ((None, problem) for problem in terms.problems)
    if terms.budget is not None and terms.budget != account["budget"]:
        yield None, "the budget is not the registered one"
    counted = {"queries": 0, "releases": 0, "rounds": 0, "spent": 0, "last_release": 0}
    open_rounds: set[int] = set()
    attempts: dict[tuple[str, str], int] = {}
    chain = _Chain(account["name"], CHAINED)
    for row in rows:
        yield from chain.problems(row)
        yield from terms.row_problems(row)
        asked = (row["statistic"], row["query"])
        if row["attempt"] != attempts.get(asked, 0):
            yield row["position"], "answers to one query are not numbered in order"
        attempts[asked] = attempts.get(asked, 0) + 1
        _count(row, counted, open_rounds)
    yield from chain.end(account["chain"])
    if account["spent"] is None:
        if counted["spent"]:
            yield None, "the counter 'spent' does not agree with the rows"
        counted["spent"] = 0
    yield from _counter_problems(account, counted)
    if counted["releases"] > account["budget"]:
        yield None, "more was released than the budget allows"
    if counted["releases"] >= account["budget"]:
        open_rounds = set()
    yield from _secret_problems(open_rounds, secrets())


def records_problems(account: Row, rows: Rows) -> Problems:
    """Check the charges of training records: sums, order, chain, counters and capacity."""
    try:
        if account["capacity"] > _registered_capacity(account["registration"]):
            yield None, "the capacity is more than the registered epsilon gives"
    except (TypeError, KeyError, ValueError):
        yield None, "the registration cannot be read"
    counted = {"spent": 0, "queries": 0, "charges": 0, "variation": 0}
    chain = _Chain(account["name"], CHAINED_CHARGE)
    for row in rows:
        yield from chain.problems(row)
        if row["charge"] < 0 or row["queries"] < 0:
            yield row["position"], "a negative charge or number of queries"
        counted["charges"] += 1
        counted["queries"] += row["queries"]
        counted["spent"] += row["charge"]
        counted["variation"] += row["variation"]
    yield from chain.end(account["chain"])
    yield from _counter_problems(account, counted)
    if counted["spent"] > account["capacity"]:
        yield None, "more was charged than the capacity allows"


class _Chain:
    """Positions and links. After a break it goes on from the link that is stored."""

    def __init__(self, name: str, fields: tuple[str, ...]) -> None:
        self._link = first_link(name)
        self._fields = fields
        self._position = 0

    def problems(self, row: Row) -> Problems:
        position = row["position"]
        missing = position - self._position - 1
        if missing > 0:
            last = position - 1
            which = f"position {last} is" if missing == 1 else f"positions up to {last} are"
            yield self._position + 1, f"deleted, or never written: {which} missing"
        elif missing < 0:
            yield position, "a position that cannot be"
        content = {key: row[key] for key in self._fields}
        try:
            fits = chained(self._link, position, content) == row["chain"]
        except (TypeError, ValueError):
            fits = False
        if not fits and missing == 0:
            yield position, "edited, inserted or out of order: it does not follow the row before"
        self._link, self._position = row["chain"], position

    def end(self, stored: str) -> Problems:
        if self._link != stored:
            yield None, "the last row is not the one the account ends with: rows at the end changed"


class _Terms:
    """What the registration says every answer must look like."""

    def __init__(self, text: Any) -> None:
        self.problems: list[str] = []
        found = _parsed(text)
        self._statistics: dict[str, Any] = {}
        self._mechanism: Mechanism | None = None
        self.budget: int | None = None
        try:
            self._statistics = dict(found["statistics"])
            self.budget = int(found["budget"])
            units_known = all(isinstance(s["units"], int) for s in self._statistics.values())
            if not units_known:
                raise ValueError
        except (TypeError, KeyError, ValueError):
            self.problems.append("the registration cannot be read")
            return
        if "mechanism" in found:
            self._read_mechanism(found)

    def row_problems(self, row: Row) -> Problems:
        position = row["position"]
        if row["kind"] not in ("release", "guess"):
            yield position, "neither a release nor a guess"
        statistic = self._statistics.get(row["statistic"])
        if statistic is None:
            if not self.problems:
                yield position, "its statistic is not registered"
            return
        if row["units"] != statistic["units"]:
            yield position, "its units are not the registered ones"
        elif self._mechanism is not None and row["charge"] != self._charge(row):
            yield position, "its charge is not what the registered mechanism costs"
        if not _published(row, statistic):
            yield position, "its value is not the registered grid's"

    def _read_mechanism(self, found: dict[str, Any]) -> None:
        try:
            self._mechanism = mechanism_of(found["mechanism"])
        except (HoldoutError, TypeError, AttributeError):
            self.problems.append("the registered mechanism cannot be read")
        same = [
            s["units"] == found.get("size")
            for s in self._statistics.values()
            if s.get("kind") == "bounded_mean"
        ]
        if not all(same):
            self.problems.append("the registered size is not that of its statistics")

    def _charge(self, row: Row) -> int | None:
        if self._mechanism is None:
            return None
        step = self._mechanism.charge_per_step(row["units"])
        steps = (row["kind"] == "release") + bool(row["opened"])
        return None if math.isinf(step) else steps * math.ceil(step * PICO)


def _published(row: Row, statistic: Mapping[str, Any]) -> bool:
    """Whether a release lies on the grid, where its index says, and nothing else has an index."""
    index = row["grid_index"]
    if (index is not None) != (row["kind"] == "release"):
        return False
    if index is None or not {"low", "high", "grid"} <= set(statistic):
        return True
    low, high, grid = statistic["low"], statistic["high"], statistic["grid"]
    expected = low + (high - low) * index / grid
    return 0 <= index <= grid and math.isclose(
        row["value"], expected, rel_tol=1e-9, abs_tol=1e-9 * (high - low)
    )


def _count(row: Row, counted: dict[str, int], open_rounds: set[int]) -> None:
    counted["queries"] += 1
    counted["rounds"] += bool(row["opened"])
    counted["spent"] += row["charge"] or 0
    if row["opened"]:
        open_rounds.add(row["units"])
    if row["kind"] == "release":
        open_rounds.discard(row["units"])
        counted["releases"] += 1
        counted["last_release"] = row["position"]


def _counter_problems(account: Row, counted: dict[str, int]) -> Problems:
    for name, value in counted.items():
        if (account[name] or 0) != value:
            yield None, f"the counter {name!r} does not agree with the rows"


def _secret_problems(open_rounds: set[int], secrets: set[int]) -> Problems:
    for units in sorted(open_rounds - secrets):
        yield None, f"the open round of {units} units has lost its secret threshold"
    for units in sorted(secrets - open_rounds):
        yield None, f"there is a secret threshold for {units} units, but no round is open"


def _registered_capacity(text: Any) -> int:
    found = json.loads(text)
    order = found["derived"]["order"]
    at = math.inf if order is None else float(order)
    return capacity_in_picos(found["epsilon"], found["delta"], at)


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None
