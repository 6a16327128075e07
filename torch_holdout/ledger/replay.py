"""Replays an account's rows. Opening raises at the first problem, ``verify`` lists all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from torch_holdout.ledger.chains import chained, damaged, first_link
from torch_holdout.ledger.holdouts import Entry
from torch_holdout.ledger.records import ChargeEntry
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration
from torch_holdout.ledger.schema import charges, queries, thresholds

StoredRow = Mapping[Any, Any]
Problem = tuple[int | None, str]  # a position, or None for the account itself
RowCheck = Callable[[StoredRow], Iterable[Problem]]


def holdout_problems(
    account: StoredRow,
    rows: Iterable[StoredRow],
    secrets: Callable[[], set[int]],
    check: RowCheck = lambda row: (),
) -> Iterator[Problem]:
    """Yield what does not fit: budget, order, chain, counters, open rounds.

    ``secrets`` returns the units that have a secret threshold; ``check`` adds problems of a row.
    """
    yield from _budget_problems(account)
    counted = {"queries": 0, "releases": 0, "rounds": 0, "spent": 0, "last_release": 0}
    open_rounds: set[int] = set()
    chain = Chain(account["name"], Entry)
    for row in rows:
        yield from chain.problems(row)
        yield from check(row)
        counted["queries"] += 1
        counted["rounds"] += bool(row["opened"])
        counted["spent"] += row["charge"] or 0
        if row["opened"]:
            open_rounds.add(row["units"])
        if row["kind"] == "release":
            open_rounds.discard(row["units"])
            counted["releases"] += 1
            counted["last_release"] = row["position"]
    yield from chain.end_problems(account["chain"])
    yield from _counter_problems(account, counted)
    if counted["releases"] > account["budget"]:
        yield None, "more was released than the budget allows"
    if counted["releases"] >= account["budget"]:
        open_rounds = set()
    yield from _secret_problems(open_rounds, secrets())


def records_problems(account: StoredRow, rows: Iterable[StoredRow]) -> Iterator[Problem]:
    """Yield what does not fit among charges of records: order, chain, counters, capacity."""
    counted = {"spent": 0, "queries": 0, "charges": 0, "variation": 0}
    chain = Chain(account["name"], ChargeEntry)
    for row in rows:
        yield from chain.problems(row)
        if row["charge"] < 0 or row["queries"] < 0:
            yield row["position"], "a negative charge or number of queries"
        counted["charges"] += 1
        counted["queries"] += row["queries"]
        counted["spent"] += row["charge"]
        counted["variation"] += row["variation"]
    yield from chain.end_problems(account["chain"])
    yield from _counter_problems(account, counted)
    if counted["spent"] > account["capacity"]:
        yield None, "more was charged than the capacity allows"


def require_holdout_fits(connection: sa.Connection, row: Any, address: str) -> None:
    """Raise ``LedgerError`` if an account's rows, counters, secrets and chain do not fit together.

    It finds damage and careless edits, not a rewrite of the whole chain.
    """
    own = stored_rows(connection, queries, row.id)
    problems = holdout_problems(row._mapping, own, lambda: secret_units(connection, row.id))
    raise_first(problems, row.name, address)


def require_records_fit(connection: sa.Connection, row: Any, address: str) -> None:
    """Raise ``LedgerError`` if an account's charges, counters and chain do not fit together."""
    own = stored_rows(connection, charges, row.id)
    raise_first(records_problems(row._mapping, own), row.name, address)


def stored_rows(connection: sa.Connection, table: sa.Table, identity: int) -> Iterable[StoredRow]:
    """Return an account's rows of a table, by position."""
    chosen = sa.select(table).where(owner_column(table) == identity).order_by(table.c.position)
    return connection.execute(chosen).mappings()


def owner_column(table: sa.Table) -> sa.Column[Any]:
    """Return the column that names the account of a row."""
    owners = ("holdout_id", "records_id", "board_id")
    return next(table.c[name] for name in owners if name in table.c)


def secret_units(connection: sa.Connection, identity: int) -> set[int]:
    """Return the units that have a secret threshold; the secrets themselves are not read."""
    kept = sa.select(thresholds.c.units).where(thresholds.c.holdout_id == identity)
    return set(connection.execute(kept).scalars())


def raise_first(problems: Iterator[Problem], name: str, address: str) -> None:
    """Raise ``LedgerError`` if there is a problem."""
    try:
        fits = next(problems, None) is None
    except UNREADABLE:
        fits = False
    if not fits:
        raise damaged(name, address)


class Chain:
    """Positions and links. After a break it goes on from the link that is stored."""

    def __init__(self, name: str, entry: type[Any]) -> None:
        self._link = first_link(name)
        self._fields = (*(field.name for field in fields(entry)), "asked_at", "version")
        self._position = 0

    def problems(self, row: StoredRow) -> list[Problem]:
        """Take the next row; return where it does not follow the one before."""
        problems: list[Problem] = []
        position = row["position"]
        missing = position - self._position - 1
        if missing > 0:
            last = position - 1
            which = f"position {last} is" if missing == 1 else f"positions up to {last} are"
            problems.append((self._position + 1, f"deleted, or never written: {which} missing"))
        elif missing < 0:
            problems.append((position, "an impossible position"))
        elif not self._follows(row):
            edited = "edited, inserted or out of order: it does not follow the row before"
            problems.append((position, edited))
        self._link, self._position = row["chain"], position
        return problems

    def end_problems(self, stored: str) -> Iterator[Problem]:
        """Yield a problem if the chain does not end with the stored link."""
        if self._link != stored:
            yield None, "the last row is not the one the account ends with: rows at the end changed"

    def _follows(self, row: StoredRow) -> bool:
        content = {key: row[key] for key in self._fields}
        try:
            return bool(chained(self._link, row["position"], content) == row["chain"])
        except (TypeError, ValueError):
            return False


def _budget_problems(account: StoredRow) -> Iterator[Problem]:
    try:
        registered = StoredRegistration.parse(account["registration"]).budget
    except UNREADABLE:
        yield None, "the registration cannot be read"
    else:
        if registered != account["budget"]:
            yield None, "the budget is not the registered one"


def _counter_problems(account: StoredRow, counted: dict[str, int]) -> Iterator[Problem]:
    for name, value in counted.items():
        if (account[name] or 0) != value:
            yield None, f"the counter {name!r} does not agree with the rows"


def _secret_problems(open_rounds: set[int], secrets: set[int]) -> Iterator[Problem]:
    for units in sorted(open_rounds - secrets):
        yield None, f"the open round of {units} units has lost its secret threshold"
    for units in sorted(secrets - open_rounds):
        yield None, f"there is a secret threshold for {units} units, but no round is open"
