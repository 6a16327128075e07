"""Accounts in a SQL database. One transaction per query, committed before anything is returned."""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, final

import sqlalchemy as sa

from torch_holdout.data_fingerprint import DataFingerprint
from torch_holdout.errors import HoldoutMismatchError, LedgerError
from torch_holdout.ledger.engines import backend_for, library_version, now
from torch_holdout.ledger.schema import PICO, holdouts, keys, queries, thresholds

Kind = Literal["release", "guess"]


@final
@dataclass(frozen=True, kw_only=True)
class Entry:
    """A query and its answer, as they are recorded; ``charge`` in picos of epsilon."""

    statistic: str
    query: str
    attempt: int
    kind: Kind
    grid_index: int | None
    value: float
    compared: bool
    opened: bool
    units: int
    charge: int | None
    seeded: bool


@final
@dataclass(frozen=True)
class Stored:
    """An answer given earlier."""

    position: int
    kind: Kind
    value: float
    grid_index: int | None


@final
@dataclass(frozen=True)
class Summary:
    """The counters of an account; all of them follow from the transcript."""

    registration: dict[str, Any]
    fingerprinted: bool
    budget: int
    queries: int
    releases: int
    rounds: int
    spent: float | None
    last_release: int


@final
class Account:
    """One holdout inside an open, exclusive transaction."""

    def __init__(self, connection: sa.Connection, row: Any) -> None:
        self._connection = connection
        self._row = row
        self.registration: dict[str, Any] = json.loads(row.registration)
        self.budget: int = row.budget
        self.releases: int = row.releases
        self.queries: int = row.queries

    @property
    def budget_left(self) -> int:
        """How many releases may still be made."""
        return self.budget - self.releases

    def find(self, statistic: str, query: str) -> Stored | None:
        """Return the first answer to a query, if it was asked before."""
        return self._one(
            queries.c.statistic == statistic, queries.c.query == query, queries.c.attempt == 0
        )

    def attempts(self, statistic: str, query: str) -> int:
        """Count how often a query has been answered."""
        found = self._connection.execute(
            sa.select(sa.func.count()).where(
                queries.c.holdout_id == self._row.id,
                queries.c.statistic == statistic,
                queries.c.query == query,
            )
        )
        return int(found.scalar_one())

    def last_release(self, statistic: str) -> Stored | None:
        """Return the latest release of a statistic."""
        return self._one(queries.c.statistic == statistic, queries.c.kind == "release")

    def threshold(self, units: int) -> int | None:
        """Return the open round's secret threshold."""
        found = self._connection.execute(
            sa.select(thresholds.c.threshold).where(*self._round(units))
        ).scalar_one_or_none()
        return None if found is None else int(found)

    def record(self, entry: Entry, threshold: int | None) -> int:
        """Write an answer, its charge and the next secret; return the budget that is left.

        After the last release every secret is erased: no round is open any more.
        """
        released = entry.kind == "release"
        if released and self.budget_left < 1:
            raise LedgerError("A release beyond the budget was stopped; nothing was recorded.")
        self.queries += 1
        self.releases += released
        row = asdict(entry) | {"asked_at": now(), "version": library_version()}
        chain = chained(self._row.chain, self.queries, row)
        self._connection.execute(
            queries.insert().values(
                holdout_id=self._row.id, position=self.queries, chain=chain, **row
            )
        )
        spent = None
        if self._row.spent is not None and entry.charge is not None:
            spent = self._row.spent + entry.charge
        self._connection.execute(
            holdouts.update()
            .where(holdouts.c.id == self._row.id)
            .values(
                queries=self.queries,
                releases=self.releases,
                rounds=self._row.rounds + entry.opened,
                spent=spent,
                chain=chain,
            )
        )
        self._keep_secret(entry.units, threshold)
        return self.budget_left

    def _keep_secret(self, units: int, threshold: int | None) -> None:
        stale = self._round(units) if self.budget_left else self._round(units)[:1]
        self._connection.execute(thresholds.delete().where(*stale))
        if threshold is not None and self.budget_left:
            self._connection.execute(
                thresholds.insert().values(
                    holdout_id=self._row.id, units=units, threshold=threshold
                )
            )

    def _round(self, units: int) -> tuple[sa.ColumnElement[bool], ...]:
        return (thresholds.c.holdout_id == self._row.id, thresholds.c.units == units)

    def _one(self, *conditions: sa.ColumnElement[bool]) -> Stored | None:
        row = self._connection.execute(
            sa.select(queries.c.position, queries.c.kind, queries.c.value, queries.c.grid_index)
            .where(queries.c.holdout_id == self._row.id, *conditions)
            .order_by(queries.c.position.desc())
            .limit(1)
        ).one_or_none()
        return None if row is None else Stored(*row)


@final
class Ledger:
    """The accounts behind one URL.

    Example:
        >>> ledger = Ledger("memory://")
        >>> ledger.register("val", {"statistics": {}}, budget=3, private=True, fingerprint=None)
        >>> with ledger.account("val") as account:
        ...     account.budget_left
        3
    """

    def __init__(self, url: str) -> None:
        self._backend = backend_for(url)
        self._connected: sa.Engine | None = None
        self.address = self._backend.address

    def register(
        self,
        name: str,
        registration: dict[str, Any],
        *,
        budget: int,
        private: bool,
        fingerprint: DataFingerprint | None,
        must_exist: bool = False,
    ) -> None:
        """Create the account, or check that it exists with the same parameters.

        Args:
            name: The holdout's name.
            registration: Everything that is fixed; any difference is refused, except that a
                statistic may be added whose units value is registered already.
            budget: Releases allowed.
            private: Whether the noise gives privacy at all.
            fingerprint: The data's fingerprint, or None.
            must_exist: Refuse to create: the account belongs to a handle that was copied, which
                may also know fewer statistics than have been added since.
        """
        with self._transaction() as connection:
            keyed = None if fingerprint is None else fingerprint.keyed(_key(connection))
            row = _locked(connection, name)
            if row is not None:
                _check_sums(connection, row, self.address)
                merged = _merged(name, row, registration, keyed, lenient=must_exist)
                connection.execute(
                    holdouts.update()
                    .where(holdouts.c.id == row.id)
                    .values(registration=canonical(merged))
                )
                return
            if must_exist:
                raise LedgerError(
                    f"Expected holdout {name!r} in {self.address}, where this handle was made, but "
                    f"it is gone. A new one would be a new budget, so none was made."
                )
            _refuse_renamed(connection, name, keyed)
            connection.execute(
                holdouts.insert().values(
                    name=name,
                    registration=canonical(registration),
                    fingerprint=keyed,
                    budget=budget,
                    queries=0,
                    releases=0,
                    rounds=0,
                    spent=0 if private else None,
                    chain=hashlib.sha256(name.encode()).hexdigest(),
                    created_at=now(),
                )
            )

    @contextlib.contextmanager
    def account(self, name: str) -> Iterator[Account]:
        """Open an account exclusively; leaving the block commits, an exception rolls back."""
        with self._transaction() as connection:
            row = _locked(connection, name)
            if row is None:
                raise LedgerError(f"Expected holdout {name!r} in {self.address}, but it is gone.")
            yield Account(connection, row)

    def summary(self, name: str) -> Summary:
        """Read an account's counters without blocking anyone."""
        with self._transaction(reads_only=True) as connection:
            row = connection.execute(
                sa.select(holdouts).where(holdouts.c.name == name)
            ).one_or_none()
            if row is None:
                raise LedgerError(f"Expected holdout {name!r} in {self.address}, but it is gone.")
            last = connection.execute(
                sa.select(sa.func.max(queries.c.position)).where(
                    queries.c.holdout_id == row.id, queries.c.kind == "release"
                )
            ).scalar_one()
            return Summary(
                registration=json.loads(row.registration),
                fingerprinted=row.fingerprint is not None,
                budget=row.budget,
                queries=row.queries,
                releases=row.releases,
                rounds=row.rounds,
                spent=None if row.spent is None else row.spent / PICO,
                last_release=last or 0,
            )

    def names(self) -> list[str]:
        """List the holdouts, oldest first."""
        with self._transaction(reads_only=True) as connection:
            found = connection.execute(sa.select(holdouts.c.name).order_by(holdouts.c.id))
            return [str(name) for name in found.scalars()]

    @contextlib.contextmanager
    def _transaction(self, *, reads_only: bool = False) -> Iterator[sa.Connection]:
        with self._backend.exclusive():
            if self._connected is None:
                self._connected = self._backend.connect()
            engine = self._connected.execution_options(reads_only=reads_only)
            try:
                with engine.begin() as connection:
                    yield connection
            except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
                reason = str(getattr(error, "orig", None) or type(error).__name__)
            else:
                return
        raise LedgerError(
            f"The ledger {self.address} could not be used ({reason}); nothing was released. If "
            f"another process holds it, try again; if the disk is full or the file damaged, repair "
            f"that first."
        )


def canonical(content: dict[str, Any]) -> str:
    """Write JSON in one way only, so that it can be compared and hashed."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True)


def chained(previous: str, position: int, row: dict[str, Any]) -> str:
    """Link a row to all rows before it, so that an edited or deleted row is noticed."""
    content = canonical({"position": position, **dict(sorted(row.items()))})
    return hashlib.sha256(f"{previous}{content}".encode()).hexdigest()


def _locked(connection: sa.Connection, name: str) -> Any:
    return connection.execute(
        sa.select(holdouts).where(holdouts.c.name == name).with_for_update()
    ).one_or_none()


def _key(connection: sa.Connection) -> bytes:
    found = connection.execute(sa.select(keys.c.secret).where(keys.c.purpose == "fingerprint"))
    return bytes(found.scalar_one())


def _merged(
    name: str, row: Any, given: dict[str, Any], keyed: str | None, *, lenient: bool
) -> dict[str, Any]:
    """Return the stored registration with the statistics that were added, or refuse."""
    stored: dict[str, Any] = json.loads(row.registration)
    known = {statistic["units"] for statistic in stored["statistics"].values()}
    added = {
        key: statistic
        for key, statistic in given["statistics"].items()
        if key not in stored["statistics"] and statistic["units"] in known
    }
    stored["statistics"] |= added
    if lenient:
        given = given | {"statistics": stored["statistics"] | given["statistics"]}
    differences = [
        f"{path}: stored {old}, given {new}" for path, old, new in _differences(stored, given)
    ]
    if keyed is not None and row.fingerprint != keyed:
        differences.append(
            "fingerprint: the data is not the data this holdout was made with"
            if row.fingerprint
            else "fingerprint: the holdout was made without one"
        )
    if differences:
        raise HoldoutMismatchError(
            f"Expected holdout {name!r} to be opened with the parameters it was made with, but: "
            + "; ".join(differences)
            + ". Use the stored ones, or give new data a new name. Nothing was charged."
        )
    return stored


def _differences(
    stored: dict[str, Any], given: dict[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for key in [*stored, *(key for key in given if key not in stored)]:
        old, new = stored.get(key, "nothing"), given.get(key, "nothing")
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}", old, new


def _refuse_renamed(connection: sa.Connection, name: str, keyed: str | None) -> None:
    if keyed is None:
        return
    twin = connection.execute(
        sa.select(holdouts.c.name).where(holdouts.c.fingerprint == keyed)
    ).scalar_one_or_none()
    if twin is not None:
        raise HoldoutMismatchError(
            f"Expected new data for the new holdout {name!r}, but this data is already holdout "
            f"{twin!r}; another name does not refill its budget. Open it by that name."
        )


def _check_sums(connection: sa.Connection, row: Any, address: str) -> None:
    total, released, opened, charged = connection.execute(
        sa.select(
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(sa.case((queries.c.kind == "release", 1), else_=0)), 0),
            sa.func.coalesce(sa.func.sum(sa.case((queries.c.opened, 1), else_=0)), 0),
            sa.func.coalesce(sa.func.sum(queries.c.charge), 0),
        ).where(queries.c.holdout_id == row.id)
    ).one()
    spent = 0 if row.spent is None else row.spent
    if (total, released, opened, int(charged)) != (row.queries, row.releases, row.rounds, spent):
        raise LedgerError(
            f"Expected the rows of holdout {row.name!r} in {address} to add up, but they do not: "
            f"rows were edited or lost. Nothing was repaired. Restore the ledger from a backup."
        )
