"""Everything that can be wrong with a ledger, found without changing it.

What is said names accounts and positions, never a value or a secret. It finds damage and careless
edits; whoever can rewrite the whole chain, counters included, is not found out.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import sqlalchemy as sa

from torch_holdout._shared.text import counted
from torch_holdout.errors import LedgerError
from torch_holdout.ledger.backend import Backend, reason, stored_version
from torch_holdout.ledger.engines import backend_for
from torch_holdout.ledger.holdouts import Refusal
from torch_holdout.ledger.replay import Problem, owner_column, secret_units, stored_rows
from torch_holdout.ledger.schema import (
    WITH_RECORDS,
    WITH_RUNS,
    charges,
    holdouts,
    keys,
    queries,
    records,
    refusals,
    runs,
    thresholds,
)
from torch_holdout.ledger.verify.accounts import CountedRows, holdout_problems, records_problems


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
    """What was looked at, and what was found.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> ledger = Ledger("memory://")
        >>> found = verify(ledger.address)
        >>> isinstance(found, Verification), found.holdouts, found.findings
        (True, 0, [])
    """

    ledger: str
    schema_version: int
    holdouts: int
    records: int
    rows: int
    findings: list[Finding]


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
    backend = backend_for(url)
    return _Reader(backend).all()


class _Reader:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._engine = backend.reading()
        self._findings: list[Finding] = []
        self._seen = 0

    def all(self) -> Verification:
        version = self._version()
        self._part(None, lambda opened: ((None, p) for p in self._backend.problems(opened)))
        self._part(None, _secret_key_problems)
        if version >= WITH_RUNS:
            self._part(None, _label_problems)
        names: dict[str, list[Any]] = {"holdouts": [], "records": []}
        for kind, table, rows, check in _accounts(version):
            children = [rows, *_side_tables(kind, version)]
            self._part(None, partial(_table_problems, table=table, children=children))
            names[kind] = self._names(table)
            for identity, name in names[kind]:
                self._account(table, rows, check, identity, name)
        return Verification(
            ledger=self._backend.address,
            schema_version=version,
            holdouts=len(names["holdouts"]),
            records=len(names["records"]),
            rows=self._seen,
            findings=self._findings,
        )

    def _version(self) -> int:
        try:
            with self._open() as connection:
                return stored_version(connection, self._backend.address)
        except self._backend.errors as error:
            why = reason(error)
        raise LedgerError(f"Cannot read the ledger {self._backend.address} ({why:.200}).")

    def _names(self, table: sa.Table) -> list[Any]:
        names: list[Any] = []

        def read(connection: sa.Connection) -> Iterator[Problem]:
            names.extend(
                connection.execute(sa.select(table.c.id, table.c.name).order_by(table.c.id))
            )
            yield from ()

        self._part(None, read)
        return names

    def _account(
        self, table: sa.Table, rows: sa.Table, check: Any, identity: int, name: str
    ) -> None:
        def read(connection: sa.Connection) -> Iterator[Problem]:
            row = (
                connection.execute(sa.select(table).where(table.c.id == identity)).mappings().one()
            )
            own = connection.execution_options(yield_per=1000)
            counted = CountedRows(stored_rows(own, rows, identity))
            if table is holdouts:
                yield from check(row, counted, lambda: secret_units(connection, identity))
            else:
                yield from check(row, counted)
            self._seen += counted.seen

        self._part(name, read)

    def _part(
        self, account: str | None, check: Callable[[sa.Connection], Iterator[Problem]]
    ) -> None:
        """Run one check in its own transaction: what it trips over is a finding too."""
        try:
            with self._open() as connection:
                for position, problem in check(connection):
                    self._findings.append(Finding(account, position, problem))
        except self._backend.errors as error:
            self._findings.append(
                Finding(account, None, f"could not be read ({reason(error):.200})")
            )
        except (TypeError, ValueError, KeyError, ArithmeticError):
            self._findings.append(Finding(account, None, "could not be read: values of no kind"))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sa.Connection]:
        with (
            self._backend.exclusive(reads_only=True),
            self._backend.begin(self._engine, reads_only=True) as connection,
        ):
            yield connection


def _accounts(version: int) -> list[tuple[str, sa.Table, sa.Table, Any]]:
    kinds: list[tuple[str, sa.Table, sa.Table, Any]] = [
        ("holdouts", holdouts, queries, holdout_problems)
    ]
    if version >= WITH_RECORDS:
        kinds.append(("records", records, charges, records_problems))
    return kinds


def _side_tables(kind: str, version: int) -> list[sa.Table]:
    """Return what else belongs to accounts of a kind."""
    if kind != "holdouts":
        return []
    return [thresholds, *([runs, refusals] if version >= WITH_RUNS else [])]


def _secret_key_problems(connection: sa.Connection) -> Iterator[Problem]:
    purposes = connection.execute(sa.select(keys.c.purpose)).scalars().all()
    if list(purposes) != ["fingerprint"]:
        yield None, "expected one secret key for fingerprints: renamed data may not be recognised"


def _label_problems(connection: sa.Connection) -> Iterator[Problem]:
    """Look at what only people read: it must be readable."""
    if not all(isinstance(run, str) for run in connection.execute(sa.select(runs.c.run)).scalars()):
        yield None, "the name of a run is no text"
    late = connection.execute(sa.select(*list(refusals.c)[1:]))
    if not all(map(Refusal.fits, late)):
        yield None, "what was asked too late is miscounted"


def _table_problems(
    connection: sa.Connection, table: sa.Table, children: list[sa.Table]
) -> Iterator[Problem]:
    """Look for what only the whole table shows: orphans and twins."""
    for child in children:
        owner = owner_column(child)
        orphans = connection.execute(
            sa.select(sa.func.count()).where(owner.not_in(sa.select(table.c.id)))
        ).scalar_one()
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
            yield (
                None,
                f"{count} accounts in {table.name} have one {column.name}: {first!r}, {last!r}",
            )
