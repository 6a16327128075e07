"""Checks of a ledger from end to end, read only; opening one calls the same replay.

A finding names accounts and positions, never a value or a secret. Damage and careless edits are
found; a rewrite of the whole chain, counters included, is not.
"""

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import sqlalchemy as sa

from torch_holdout._shared.text import counted
from torch_holdout.accounting.filters import capacity_in_picos
from torch_holdout.accounting.picos import steps_in_picos
from torch_holdout.errors import HoldoutError, LedgerError
from torch_holdout.ledger import schema
from torch_holdout.ledger.backend import Backend, reason, stored_version
from torch_holdout.ledger.board_replay import board_problems
from torch_holdout.ledger.engines import backend_for
from torch_holdout.ledger.headers import chain_problems, header_problems
from torch_holdout.ledger.holdouts import Refusal
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration, StoredStatistic
from torch_holdout.ledger.replay import (
    Problem,
    StoredRow,
    holdout_problems,
    owner_column,
    records_problems,
    secret_units,
    stored_rows,
)
from torch_holdout.ledger.run_replay import run_problems
from torch_holdout.mechanisms import Mechanism


@final
@dataclass(frozen=True)
class Finding:
    """Something that does not fit: where, and what.

    Example:
        >>> print(Finding(account="val", position=3, problem="its charge is negative"))
        'val', position 3: its charge is negative
    """

    account: str | None
    position: int | None
    problem: str

    def __str__(self) -> str:
        where = "the ledger" if self.account is None else repr(self.account)
        at = "" if self.position is None else f", position {self.position}"
        return f"{where}{at}: {self.problem}"


@final
@dataclass(frozen=True)
class Verification:
    """The result of a check: how much was read, and the findings.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> checked = verify(Ledger("memory://").address)
        >>> isinstance(checked, Verification), checked.holdouts, checked.findings
        (True, 0, [])
    """

    ledger: str
    schema_version: int
    holdouts: int
    records: int
    rows: int
    findings: list[Finding]
    boards: int = 0

    @property
    def looked_at(self) -> str:
        """How much was read, in words."""
        boards = f"{counted(self.boards, 'board')}, " if self.boards else ""
        return (
            f"{counted(self.holdouts, 'holdout')}, {boards}"
            f"{counted(self.records, 'account')} of training records, "
            f"{counted(self.rows, 'row')}, schema version {self.schema_version}"
        )


def verify(url: str) -> Verification:
    """Check a ledger from end to end; read only.

    Raises:
        LedgerError: It cannot be opened at all.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> ledger = Ledger("memory://")
        >>> verify(ledger.address).findings
        []
    """
    return _Reader(backend_for(url)).all()


class _Reader:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._engine = backend.reading()
        self._findings: list[Finding] = []
        self._seen = 0
        self._with_headers = self._with_sealed = False

    def all(self) -> Verification:
        version = self._version()
        with_runs = version >= schema.WITH_RUNS
        self._with_headers = version >= schema.WITH_HEADERS
        self._part(None, lambda opened: ((None, p) for p in self._backend.problems(opened)))
        self._part(None, _secret_key_problems)
        if with_runs:
            self._part(None, _label_problems)
        if self._with_headers:
            self._part(None, lambda opened: ((None, p) for p in chain_problems(opened)))
        self._with_sealed = version >= schema.WITH_SEALED
        labels = [schema.runs, schema.refusals] if with_runs else []
        if self._with_sealed:
            labels += [schema.run_ends, schema.sealed_runs, schema.run_events, schema.closed_sums]
            labels += [schema.secret_sums, schema.secret_runs]
        holdouts = self._accounts(schema.holdouts, [schema.queries, schema.thresholds, *labels])
        with_records = version >= schema.WITH_RECORDS
        records = self._accounts(schema.records, [schema.charges]) if with_records else 0
        boards = 0
        if version >= schema.WITH_BOARDS:
            boards = self._accounts(schema.boards, [schema.board_events, schema.analysts])
        return Verification(
            self._backend.address, version, holdouts, records, self._seen, self._findings, boards
        )

    def _version(self) -> int:
        try:
            with self._open() as connection:
                return stored_version(connection, self._backend.address)
        except self._backend.errors as error:
            why = reason(error)
        raise LedgerError(f"Cannot read the ledger {self._backend.address} ({why:.200}).")

    def _accounts(self, table: sa.Table, children: list[sa.Table]) -> int:
        """Check the accounts of a table, whose rows are in the first child; return their number."""
        names: list[Any] = []

        def read_names(connection: sa.Connection) -> Iterable[Problem]:
            names.extend(
                connection.execute(sa.select(table.c.id, table.c.name).order_by(table.c.id))
            )
            return ()

        self._part(None, lambda connection: _table_problems(connection, table, children))
        self._part(None, read_names)
        for identity, name in names:
            self._account(table, children[0], identity, name)
        return len(names)

    def _account(self, table: sa.Table, rows: sa.Table, identity: int, name: str) -> None:
        def read(connection: sa.Connection) -> Iterator[Problem]:
            chosen = sa.select(table).where(table.c.id == identity)
            account = connection.execute(chosen).mappings().one()
            if self._with_headers:
                unlike = header_problems(connection, table, account["account"])
                yield from ((None, problem) for problem in unlike)
            if table is schema.boards:
                yield from board_problems(connection, account, self._counted)
                return
            streamed = connection.execution_options(yield_per=1000)
            own = self._counted(stored_rows(streamed, rows, identity))
            if table is schema.holdouts:
                terms = _Terms(account["registration"])
                yield from ((None, problem) for problem in terms.problems)
                secrets = partial(secret_units, connection, identity)
                yield from holdout_problems(account, own, secrets, terms.row_problems)
                if self._with_sealed:
                    events = schema.run_events.c.holdout_id == identity
                    count = sa.select(sa.func.count()).where(events)
                    self._seen += int(connection.execute(count).scalar_one())
                    yield from run_problems(connection, account)
            else:
                yield from _capacity_problems(account)
                yield from records_problems(account, own)

        self._part(name, read)

    def _counted(self, rows: Iterable[StoredRow]) -> Iterator[StoredRow]:
        for row in rows:
            self._seen += 1
            yield row

    def _part(
        self, account: str | None, check: Callable[[sa.Connection], Iterable[Problem]]
    ) -> None:
        """Run one check in its own transaction; an error in it is a finding too."""
        try:
            with self._open() as connection:
                for position, problem in check(connection):
                    self._findings.append(Finding(account, position, problem))
        except self._backend.errors as error:
            unread = f"could not be read ({reason(error):.200})"
            self._findings.append(Finding(account, None, unread))
        except UNREADABLE:
            self._findings.append(Finding(account, None, "unreadable: a value has the wrong type"))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sa.Connection]:
        with (
            self._backend.exclusive(reads_only=True),
            self._backend.begin(self._engine, reads_only=True) as connection,
        ):
            yield connection


class _Terms:
    """The form of every answer, as the registration fixes it."""

    def __init__(self, text: Any) -> None:
        self.problems: list[str] = []
        self._registered: StoredRegistration | None = None
        self._mechanism: Mechanism | None = None
        self._attempts: dict[tuple[str, str], int] = {}
        try:
            self._registered = StoredRegistration.parse(text)
        except UNREADABLE:
            return  # the replay finds it too
        if "mechanism" in self._registered.content:
            self._read_mechanism(self._registered)

    def _read_mechanism(self, registered: StoredRegistration) -> None:
        try:
            self._mechanism = registered.mechanism()
        except (HoldoutError, TypeError, AttributeError):
            self.problems.append("the registered mechanism cannot be read")
        size = registered.content.get("size")
        of_examples = [s.units for s in registered.statistics.values() if s.counts_examples]
        if any(units != size for units in of_examples):
            self.problems.append("the registered size is not that of its statistics")

    def row_problems(self, row: StoredRow) -> Iterator[Problem]:
        yield from ((row["position"], problem) for problem in self._answer_problems(row))
        asked = (row["statistic"], row["query"])
        if row["attempt"] != self._attempts.get(asked, 0):
            yield row["position"], "answers to one query are not numbered in order"
        self._attempts[asked] = self._attempts.get(asked, 0) + 1

    def _answer_problems(self, row: StoredRow) -> Iterator[str]:
        if row["kind"] not in ("release", "guess"):
            yield "neither a release nor a guess"
        if self._registered is None:
            return
        statistic = self._registered.statistics.get(row["statistic"])
        if statistic is None:
            yield "its statistic is not registered"
            return
        if row["units"] != statistic.units:
            yield "its units are not the registered ones"
        elif self._mechanism is not None and row["charge"] != _charge(row, self._mechanism):
            yield "its charge is not what the registered mechanism costs"
        if not _published(row, statistic):
            yield "its value is not the registered grid's"


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


def _capacity_problems(account: StoredRow) -> Iterator[Problem]:
    try:
        fixed = json.loads(account["registration"])
        order = fixed["derived"]["order"]
        at = math.inf if order is None else float(order)
        if account["capacity"] > capacity_in_picos(fixed["epsilon"], fixed["delta"], at):
            yield None, "the capacity is more than the registered epsilon gives"
    except (TypeError, KeyError, ValueError):
        yield None, "the registration cannot be read"


def _secret_key_problems(connection: sa.Connection) -> Iterator[Problem]:
    purposes = connection.execute(sa.select(schema.keys.c.purpose)).scalars().all()
    if list(purposes) != ["fingerprint"]:
        yield None, "expected one secret key for fingerprints: renamed data may not be recognised"


def _label_problems(connection: sa.Connection) -> Iterator[Problem]:
    """Check what only people read: it must be readable."""
    names = connection.execute(sa.select(schema.runs.c.run)).scalars()
    if not all(isinstance(run, str) for run in names):
        yield None, "the name of a run is not text"
    late = connection.execute(sa.select(*list(schema.refusals.c)[1:]))
    if not all(map(Refusal.fits, late)):
        yield None, "queries after the budget was gone are miscounted"


def _table_problems(
    connection: sa.Connection, table: sa.Table, children: list[sa.Table]
) -> Iterator[Problem]:
    """Yield what only the whole table shows: orphans and twins."""
    for child in children:
        orphaned = owner_column(child).not_in(sa.select(table.c.id))
        orphans = connection.execute(sa.select(sa.func.count()).where(orphaned)).scalar_one()
        if orphans:
            yield None, f"{counted(orphans, 'row')} of {child.name} without an account"
    for column in (table.c.fingerprint, table.c.name, table.c.account):
        twins = connection.execute(
            sa.select(sa.func.min(table.c.name), sa.func.max(table.c.name), sa.func.count())
            .where(column.is_not(None))
            .group_by(column)
            .having(sa.func.count() > 1)
        )
        for first, last, count in twins:
            have = f"{count} accounts in {table.name} have one {column.name}"
            yield None, f"{have}: {first!r}, {last!r}"
