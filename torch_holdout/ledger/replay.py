"""Replays an account's rows. Opening raises at the first problem, ``verify`` lists all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, ClassVar

import sqlalchemy as sa

from torch_holdout.ledger.chains import chained, damaged, first_link
from torch_holdout.ledger.checked import OFTEN, Marks, Reached
from torch_holdout.ledger.holdouts import Entry
from torch_holdout.ledger.records import ChargeEntry
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration
from torch_holdout.ledger.schema import charges, queries, thresholds

StoredRow = Mapping[Any, Any]
Problem = tuple[int | None, str]  # a position, or None for the account itself
RowCheck = Callable[[StoredRow], Iterable[Problem]]


class Progress:
    """How far an account was replayed, and what was counted; it can go on where another stood."""

    counters: ClassVar[tuple[str, ...]]
    entry: ClassVar[type[Any]]

    def __init__(self, name: str, since: Reached | None = None) -> None:
        state: dict[str, Any] = {"counted": {}, "open": []}
        if since is not None:
            state = since.state
        self.chain = Chain(name, self.entry, since)
        self.counted = {name: int(state["counted"].get(name, 0)) for name in self.counters}
        self.open_rounds = set(state["open"])

    @property
    def reached(self) -> Reached:
        """Where it stands."""
        state = {"counted": self.counted, "open": sorted(self.open_rounds)}
        return Reached(self.chain.position, self.chain.link, state)


class HoldoutProgress(Progress):
    """A holdout's."""

    counters = ("queries", "releases", "rounds", "spent", "last_release")
    entry = Entry

    def take(self, row: StoredRow) -> None:
        """Count an answer."""
        self.counted["queries"] += 1
        self.counted["rounds"] += bool(row["opened"])
        self.counted["spent"] += row["charge"] or 0
        if row["opened"]:
            self.open_rounds.add(row["units"])
        if row["kind"] == "release":
            self.open_rounds.discard(row["units"])
            self.counted["releases"] += 1
            self.counted["last_release"] = row["position"]


class RecordsProgress(Progress):
    """That of training records."""

    counters = ("spent", "queries", "charges", "variation")
    entry = ChargeEntry

    def take(self, row: StoredRow) -> None:
        """Count a charge."""
        self.counted["charges"] += 1
        for name in ("spent", "queries", "variation"):
            self.counted[name] += row["charge" if name == "spent" else name]


def holdout_problems(
    account: StoredRow,
    rows: Iterable[StoredRow],
    secrets: Callable[[], set[int]],
    check: RowCheck = lambda row: (),
    progress: HoldoutProgress | None = None,
) -> Iterator[Problem]:
    """Yield what does not fit: budget, order, chain, counters, open rounds.

    ``secrets`` returns the units that have a secret threshold; ``check`` adds problems of a row;
    with ``progress`` the rows are those after it.
    """
    yield from _budget_problems(account)
    progress = progress or HoldoutProgress(account["name"])
    for row in rows:
        yield from progress.chain.problems(row)
        yield from check(row)
        progress.take(row)
    yield from progress.chain.end_problems(account["chain"])
    yield from _counter_problems(account, progress.counted)
    releases, open_rounds = progress.counted["releases"], progress.open_rounds
    if releases > account["budget"]:
        yield None, "more was released than the budget allows"
    if releases >= account["budget"]:
        open_rounds = set()
    yield from _secret_problems(open_rounds, secrets())


def records_problems(
    account: StoredRow, rows: Iterable[StoredRow], progress: RecordsProgress | None = None
) -> Iterator[Problem]:
    """Yield what does not fit among charges of records: order, chain, counters, capacity."""
    progress = progress or RecordsProgress(account["name"])
    for row in rows:
        yield from progress.chain.problems(row)
        if row["charge"] < 0 or row["queries"] < 0:
            yield row["position"], "a negative charge or number of queries"
        progress.take(row)
    yield from progress.chain.end_problems(account["chain"])
    yield from _counter_problems(account, progress.counted)
    if progress.counted["spent"] > account["capacity"]:
        yield None, "more was charged than the capacity allows"


def require_holdout_fits(
    connection: sa.Connection, row: Any, address: str, marks: Marks | None, *, writes: bool = False
) -> None:
    """Raise ``LedgerError`` if an account's rows, counters, secrets and chain do not fit together.

    It finds damage and careless edits of what came after the last mark, not a rewrite of the whole
    chain; ``verify`` reads all rows. With ``writes`` a new mark is made when it is worth it.
    """
    since = last_reached(connection, queries, row, marks)
    progress = HoldoutProgress(row.name, since)
    own = stored_rows(connection, queries, row.id, after=progress.chain.position)
    secrets = partial(secret_units, connection, row.id)
    problems = holdout_problems(row._mapping, own, secrets, progress=progress)
    raise_first(problems, row.name, address)
    keep_reached(row, marks if writes else None, since, progress.reached)


def require_records_fit(
    connection: sa.Connection, row: Any, address: str, marks: Marks | None, *, writes: bool = False
) -> None:
    """Raise ``LedgerError`` if an account's charges, counters and chain do not fit together."""
    since = last_reached(connection, charges, row, marks)
    progress = RecordsProgress(row.name, since)
    own = stored_rows(connection, charges, row.id, after=progress.chain.position)
    raise_first(records_problems(row._mapping, own, progress), row.name, address)
    keep_reached(row, marks if writes else None, since, progress.reached)


def last_reached(
    connection: sa.Connection, table: sa.Table, row: Any, marks: Marks | None
) -> Reached | None:
    """Return where the last replay stood, if its mark holds and its last row is there still."""
    since = None if marks is None else marks.of(row.account)
    if since is None:
        return None
    at = (owner_column(table) == row.id) & (table.c.position == since.position)
    link = connection.execute(sa.select(table.c.chain).where(at)).scalar_one_or_none()
    return since if link == since.link else None


def keep_reached(row: Any, marks: Marks | None, since: Reached | None, reached: Reached) -> None:
    """Mark where a replay stands that has found nothing, if it has read enough since the last."""
    seen = reached.position - (0 if since is None else since.position)
    if marks is not None and seen >= OFTEN:
        marks.keep(row.account, reached)


def stored_rows(
    connection: sa.Connection, table: sa.Table, identity: int, after: int | None = None
) -> Iterable[StoredRow]:
    """Return an account's rows of a table, by position; only those after one, if it is given."""
    chosen = sa.select(table).where(owner_column(table) == identity).order_by(table.c.position)
    if after:
        chosen = chosen.where(table.c.position > after)
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

    def __init__(self, name: str, entry: type[Any], since: Reached | None = None) -> None:
        self.link, self.position = first_link(name), 0
        if since is not None:
            self.link, self.position = since.link, since.position
        self._fields = (*(field.name for field in fields(entry)), "asked_at", "version")

    def problems(self, row: StoredRow) -> list[Problem]:
        """Take the next row; return where it does not follow the one before."""
        problems: list[Problem] = []
        position = row["position"]
        missing = position - self.position - 1
        if missing > 0:
            last = position - 1
            which = f"position {last} is" if missing == 1 else f"positions up to {last} are"
            problems.append((self.position + 1, f"deleted, or never written: {which} missing"))
        elif missing < 0:
            problems.append((position, "an impossible position"))
        elif not self._follows(row):
            edited = "edited, inserted or out of order: it does not follow the row before"
            problems.append((position, edited))
        self.link, self.position = row["chain"], position
        return problems

    def end_problems(self, stored: str) -> Iterator[Problem]:
        """Yield a problem if the chain does not end with the stored link."""
        if self.link != stored:
            yield None, "the last row is not the one the account ends with: rows at the end changed"

    def _follows(self, row: StoredRow) -> bool:
        content = {key: row[key] for key in self._fields}
        try:
            return bool(chained(self.link, row["position"], content) == row["chain"])
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
