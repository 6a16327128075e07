"""The accounts behind one URL. One transaction per query, committed before anything returns."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import sqlalchemy as sa

from torch_holdout._fingerprints.data import DataFingerprint
from torch_holdout._noise.streams import fresh_secret
from torch_holdout.errors import HoldoutMismatchError, LedgerError
from torch_holdout.ledger.backend import damaged_ledger, now, stored_version
from torch_holdout.ledger.chains import canonical, damaged, first_link, parsed, public_mark
from torch_holdout.ledger.engines import backend_for
from torch_holdout.ledger.holdouts import Account, Kind, check_rows, parsed_registration
from torch_holdout.ledger.records import (
    Purpose,
    RecordsAccount,
    RecordsSummary,
    check_charges,
    new_records,
    records_summary,
)
from torch_holdout.ledger.schema import (
    PICO,
    SCHEMA_VERSION,
    WITH_RECORDS,
    WITH_RUNS,
    charges,
    holdouts,
    keys,
    ledger,
    queries,
    records,
    refusals,
    runs,
)
from torch_holdout.ledger.statements import LOCK_HOLDOUT, LOCK_RECORDS


@final
@dataclass(frozen=True)
class Summary:
    """The counters of an account; all of them follow from the transcript.

    Example:
        >>> ledger = Ledger("memory://")
        >>> mark = ledger.register(
        ...     "val", {"statistics": {}}, budget=3, private=True, fingerprint=None)
        >>> found = ledger.summary(mark)
        >>> isinstance(found, Summary), found.budget, found.releases
        (True, 3, 0)
    """

    name: str
    registration: dict[str, Any]
    fingerprinted: bool
    budget: int
    queries: int
    releases: int
    rounds: int
    spent: float | None
    last_release: int
    account: str


@final
@dataclass(frozen=True)
class Recorded:
    """An answer as it was published, when, and by which run it was asked for.

    Example:
        >>> Recorded(position=1, statistic="val_acc", kind="release", value=0.75).kind
        'release'
    """

    position: int
    statistic: str
    kind: Kind
    value: float
    asked_at: str = ""
    run: str | None = None


@final
@dataclass(frozen=True)
class Refusal:
    """Queries that came after the budget was gone, and got no answer.

    Example:
        >>> at = "2026-01-01T00:00:00+00:00"
        >>> Refusal(statistic="val_acc", run="seed 3", count=2, first_at=at, last_at=at).count
        2
    """

    statistic: str
    run: str | None
    count: int
    first_at: str
    last_at: str


@final
@dataclass(frozen=True)
class Charged:
    """What some queries cost the training records, in picos of the account's currency.

    Example:
        >>> Charged(position=1, purpose="prediction", detail="{}", queries=10, charge=5,
        ...         asked_at="2026-01-01T00:00:00+00:00").queries
        10
    """

    position: int
    purpose: Purpose
    detail: str
    queries: int
    charge: int
    asked_at: str


@final
class Ledger:
    """The accounts behind one URL.

    Args:
        url: Where.
        reads_only: Change nothing, not even the file of an older version, and open what may not be
            written to.

    Example:
        >>> ledger = Ledger("memory://")
        >>> account = ledger.register(
        ...     "val", {"statistics": {}, "budget": 3}, budget=3, private=True, fingerprint=None
        ... )
        >>> with ledger.account(account) as opened:
        ...     opened.budget_left
        3
    """

    def __init__(self, url: str, *, reads_only: bool = False) -> None:
        self._backend = backend_for(url)
        self._reads_only = reads_only
        self._version = SCHEMA_VERSION  # what is opened to be written to is upgraded first
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
        account: str | None = None,
    ) -> str:
        """Create the account, or check that it exists with the same parameters; return its id.

        Args:
            name: The holdout's name.
            registration: Everything that is fixed; any difference is refused, except that a
                statistic may be added whose units value is registered already (after the first
                query: with the same cut into units).
            budget: Releases allowed.
            private: Whether the noise gives privacy at all.
            fingerprint: The data's fingerprint, or None.
            account: The id that a copied handle carries: this very account must exist (it may
                have more statistics by now); no other is made or taken for it.
        """
        content = canonical(registration)  # what cannot be written must not leave a file behind
        with self._transaction(create=account is None) as connection:
            keyed = None if fingerprint is None else fingerprint.keyed(_key(connection))
            row = _found_or_free(connection, holdouts, name)
            if account is not None and (row is None or row.account != account):
                raise self._gone(name)
            if row is not None:
                check_rows(connection, row, self.address)
                stored = parsed_registration(row, self.address)
                merged = _merged(row, stored, registration, keyed, lenient=account is not None)
                if merged != stored:
                    _update(connection, row.id, registration=canonical(merged))
                return str(row.account)
            _refuse_renamed(connection, holdouts, name, keyed)
            account = fresh_secret(16).hex()
            connection.execute(
                holdouts.insert().values(
                    account=account,
                    name=name,
                    registration=content,
                    fingerprint=keyed,
                    budget=budget,
                    queries=0,
                    releases=0,
                    rounds=0,
                    last_release=0,
                    spent=0 if private else None,
                    chain=first_link(name),
                    created_at=now(),
                )
            )
        return account

    @contextlib.contextmanager
    def account(self, account: str, *, budget: int | None = None) -> Iterator[Account]:
        """Open an account exclusively; leaving the block commits, an exception rolls back.

        An account whose budget is not the handle's was edited, and is refused.
        """
        with self._transaction() as connection:
            row = connection.execute(LOCK_HOLDOUT, {"which": account}).one_or_none()
            if row is None:
                raise self._gone(account)
            if budget not in (None, row.budget):
                raise damaged(row.name, self.address)
            yield Account(connection, row)

    def summary(self, account: str, *, check: bool = False) -> Summary:
        """Read an account's counters without blocking anyone; ``check`` its rows first."""
        with self._transaction(reads_only=True) as connection:
            row = connection.execute(
                sa.select(holdouts).where(holdouts.c.account == account)
            ).one_or_none()
            if row is None:
                raise self._gone(account)
            if check:
                check_rows(connection, row, self.address)
            return Summary(
                name=row.name,
                registration=parsed_registration(row, self.address),
                fingerprinted=row.fingerprint is not None,
                budget=row.budget,
                queries=row.queries,
                releases=row.releases,
                rounds=row.rounds,
                spent=None if row.spent is None else row.spent / PICO,
                last_release=row.last_release,
                account=public_mark(row.account),
            )

    def releases(self, account: str) -> int:
        """Read how many releases an account has made."""
        with self._transaction(reads_only=True) as connection:
            count = connection.execute(
                sa.select(holdouts.c.releases).where(holdouts.c.account == account)
            ).scalar_one_or_none()
        if count is None:
            raise self._gone(account)
        return int(count)

    def answers(self, account: str) -> list[Recorded]:
        """List what has been answered, oldest first."""
        asked = (queries.c.position, queries.c.statistic, queries.c.kind, queries.c.value)
        of_query = (runs.c.holdout_id == queries.c.holdout_id) & (
            runs.c.position == queries.c.position
        )
        with self._transaction(reads_only=True) as connection:
            named = self._version >= WITH_RUNS
            wanted = sa.select(*asked, queries.c.asked_at, *([runs.c.run] if named else []))
            wanted = wanted.join(holdouts, holdouts.c.id == queries.c.holdout_id)
            found = connection.execute(
                (wanted.outerjoin(runs, of_query) if named else wanted)
                .where(holdouts.c.account == account)
                .order_by(queries.c.position)
            )
            answers = [Recorded(*row) for row in found]
        if not all(isinstance(answer.run, str | None) for answer in answers):
            raise damaged_ledger(self.address, ["the name of a run is no text"])
        return answers

    def refusals(self, account: str) -> list[Refusal]:
        """List what was asked after the budget was gone, by statistic and run."""
        asked = (refusals.c.statistic, refusals.c.run, refusals.c.count)
        with self._transaction(reads_only=True) as connection:
            if self._version < WITH_RUNS:
                return []
            rows = connection.execute(
                sa.select(*asked, refusals.c.first_at, refusals.c.last_at)
                .join(holdouts, holdouts.c.id == refusals.c.holdout_id)
                .where(holdouts.c.account == account)
                .order_by(refusals.c.first_at, refusals.c.statistic, refusals.c.run)
            ).all()
        if not all(is_refusal(row) for row in rows):
            raise damaged_ledger(self.address, ["what was asked too late is miscounted"])
        return [Refusal(row[0], row[1] or None, *row[2:]) for row in rows]

    def accounts(self) -> dict[str, str]:
        """Return the accounts' ids by the holdouts' names, oldest first."""
        with self._transaction(reads_only=True) as connection:
            found = connection.execute(
                sa.select(holdouts.c.name, holdouts.c.account).order_by(holdouts.c.id)
            )
            return {str(name): str(account) for name, account in found}

    def names(self) -> list[str]:
        """List the holdouts, oldest first."""
        return list(self.accounts())

    def register_records(
        self,
        name: str,
        registration: dict[str, Any],
        *,
        capacity: int,
        fingerprint: DataFingerprint | None,
        account: str | None = None,
    ) -> str:
        """Create an account of training records, or attach to it; return its id.

        Args:
            name: The records' name.
            registration: What is fixed. What stands under ``"derived"`` is stored when the account
                is made and not compared: the stored one counts.
            capacity: What may be charged in all, in picos.
            fingerprint: The data's fingerprint, or None.
            account: The id that a copied handle carries: this very account must exist.
        """
        content = canonical(registration)
        with self._transaction(create=account is None) as connection:
            keyed = None if fingerprint is None else fingerprint.keyed(_key(connection))
            row = _found_or_free(connection, records, name)
            if account is not None and (row is None or row.account != account):
                raise self._gone(name)
            if row is not None:
                check_charges(connection, row, self.address)
                stored = parsed(row, self.address)
                _require_same(row, stored, registration | {"derived": stored["derived"]}, keyed)
                return str(row.account)
            _refuse_renamed(connection, records, name, keyed)
            account = fresh_secret(16).hex()
            connection.execute(new_records(account, name, content, keyed, capacity))
        return account

    @contextlib.contextmanager
    def records(self, account: str) -> Iterator[RecordsAccount]:
        """Open a records account exclusively; leaving the block commits, an exception undoes."""
        with self._transaction() as connection:
            row = connection.execute(LOCK_RECORDS, {"which": account}).one_or_none()
            if row is None:
                raise self._gone(account)
            yield RecordsAccount(connection, row)

    def records_summary(self, account: str, *, check: bool = False) -> RecordsSummary:
        """Read a records account's counters without blocking anyone."""
        with self._transaction(reads_only=True) as connection:
            row = connection.execute(
                sa.select(records).where(records.c.account == account)
            ).one_or_none()
            if row is None:
                raise self._gone(account)
            if check:
                check_charges(connection, row, self.address)
            return records_summary(row, self.address)

    def charges(self, account: str) -> list[Charged]:
        """List what has been charged to training records, oldest first."""
        asked = (charges.c.position, charges.c.purpose, charges.c.detail, charges.c.queries)
        with self._transaction(reads_only=True) as connection:
            found = connection.execute(
                sa.select(*asked, charges.c.charge, charges.c.asked_at)
                .join(records, records.c.id == charges.c.records_id)
                .where(records.c.account == account)
                .order_by(charges.c.position)
            )
            return [Charged(*row) for row in found]

    def find_records(self, name: str) -> str | None:
        """Return the id of a records account, or None if there is none; makes nothing."""
        return self.records_accounts().get(name) if self._backend.exists() else None

    def records_accounts(self) -> dict[str, str]:
        """Return the records accounts' ids by name, oldest first."""
        with self._transaction(reads_only=True) as connection:
            if self._version < WITH_RECORDS:
                return {}
            found = connection.execute(
                sa.select(records.c.name, records.c.account).order_by(records.c.id)
            )
            return {str(name): str(account) for name, account in found}

    def _gone(self, which: str) -> LedgerError:
        return LedgerError(
            f"Expected {which!r} in {self.address}, where this handle was made, but it is "
            f"gone or replaced. A new one would be a new budget, so none was made or used."
        )

    @contextlib.contextmanager
    def _transaction(
        self, *, reads_only: bool = False, create: bool = False
    ) -> Iterator[sa.Connection]:
        if self._connected is None:
            with self._backend.exclusive(reads_only=self._reads_only):
                self._connected = (
                    self._reader() if self._reads_only else self._backend.connect(create=create)
                )
        committing = False
        with self._backend.exclusive(reads_only=reads_only):
            try:
                with self._backend.begin(self._connected, reads_only=reads_only) as connection:
                    yield connection
                    committing = not reads_only
                    connection.commit()
            except self._backend.errors as error:
                failure = self._backend.explain(error, committing=committing)
            else:
                return
        raise failure from None

    def _reader(self) -> sa.Engine:
        """Return an engine that changes nothing, on a ledger of any version that is not damaged."""
        engine = self._backend.reading()
        try:
            with self._backend.begin(engine, reads_only=True) as connection:
                self._version = stored_version(connection, self.address)
                problems = self._backend.problems(connection)
        except self._backend.errors as error:
            failure = self._backend.explain(error, committing=False)
        else:
            if problems:
                raise damaged_ledger(self.address, problems)
            return engine
        raise failure from None


def is_refusal(row: Any) -> bool:
    """Whether a row counts late queries: its statistic, run, count and times are of their kinds."""
    statistic, run, count, first_at, last_at = row
    texts = all(isinstance(text, str) for text in (statistic, run, first_at, last_at))
    return texts and isinstance(count, int) and count > 0


def _locked(connection: sa.Connection, table: sa.Table, which: sa.ColumnElement[bool]) -> Any:
    return connection.execute(sa.select(table).where(which).with_for_update()).one_or_none()


def _found_or_free(connection: sa.Connection, table: sa.Table, name: str) -> Any:
    """Lock the account of a name; if there is none, lock the ledger, so that no one else adds it.

    Whoever makes an account looks again under the ledger's lock: also for the same data.
    """
    row = _locked(connection, table, table.c.name == name)
    if row is None:
        connection.execute(sa.select(ledger.c.schema_version).with_for_update())
        row = _locked(connection, table, table.c.name == name)
    return row


def _update(connection: sa.Connection, identity: int, **values: Any) -> None:
    connection.execute(holdouts.update().where(holdouts.c.id == identity).values(**values))


def _key(connection: sa.Connection) -> bytes:
    found = connection.execute(sa.select(keys.c.secret).where(keys.c.purpose == "fingerprint"))
    return bytes(found.scalar_one())


def _merged(
    row: Any, stored: dict[str, Any], given: dict[str, Any], keyed: str | None, *, lenient: bool
) -> dict[str, Any]:
    """Return the stored registration with the statistics that were added, or refuse."""
    # Other cuts into as many units have a certificate of another theorem: not after an answer.
    part = _cut if row.queries else _units
    known = {part(statistic) for statistic in stored["statistics"].values()}
    added = {
        key: statistic
        for key, statistic in given["statistics"].items()
        if key not in stored["statistics"] and part(statistic) in known
    }
    if added and row.queries and stored.get("mechanism", {}).get("kind") == "ladder":
        raise HoldoutMismatchError(
            f"Expected the statistics of holdout {row.name!r} to be fixed before its first query, "
            f"but {list(added)} would be new: a Ladder's certificate counts on that. Give them a "
            f"holdout of their own. Nothing was charged."
        )
    merged = stored | {"statistics": stored["statistics"] | added}
    if lenient:
        given = given | {"statistics": merged["statistics"] | given["statistics"]}
    _require_same(row, merged, given, keyed)
    return merged


def _units(statistic: dict[str, Any]) -> object:
    return statistic["units"]


def _cut(statistic: dict[str, Any]) -> object:
    return statistic["units"], statistic.get("seed")


def _require_same(
    row: Any, stored: dict[str, Any], given: dict[str, Any], keyed: str | None
) -> None:
    differences = [
        f"{path}: stored {old}, given {new}" for path, old, new in _differences(stored, given)
    ]
    if keyed is not None and row.fingerprint != keyed:
        differences.append(
            "fingerprint: the data is not the data it was made with"
            if row.fingerprint
            else "fingerprint: it was made without one"
        )
    if differences:
        raise HoldoutMismatchError(
            f"Expected {row.name!r} to be opened with the parameters of its making, but: "
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


def _refuse_renamed(
    connection: sa.Connection, table: sa.Table, name: str, keyed: str | None
) -> None:
    if keyed is None:
        return
    twin = connection.execute(
        sa.select(table.c.name).where(table.c.fingerprint == keyed)
    ).scalar_one_or_none()
    if twin is not None:
        raise HoldoutMismatchError(
            f"Expected new data for the new name {name!r}, but this data is already "
            f"{twin!r}; another name does not refill its budget. Open it by that name."
        )
