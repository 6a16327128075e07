"""The accounts behind one URL. One transaction per query, committed before anything returns."""

import contextlib
import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, final

import sqlalchemy as sa

from torch_holdout._fingerprints.data import DataFingerprint, KeyedData
from torch_holdout._fingerprints.records import Hashes
from torch_holdout._fingerprints.sketch import Sketch, keyed_hashes
from torch_holdout._noise.streams import fresh_secret
from torch_holdout._shared.checks import require_instance, require_text
from torch_holdout.ledger import schema, statements
from torch_holdout.ledger.backend import damaged_ledger, now
from torch_holdout.ledger.boards_ledger import BoardsLedger
from torch_holdout.ledger.chains import canonical, damaged, first_link, parsed
from torch_holdout.ledger.headers import covered, has_header
from torch_holdout.ledger.holdouts import Account, Recorded, Refusal, Summary
from torch_holdout.ledger.plans import require_makeable
from torch_holdout.ledger.records import Charged, RecordsAccount, RecordsSummary
from torch_holdout.ledger.registration import StoredRegistration, merged, require_same
from torch_holdout.ledger.replay import owner_column, require_holdout_fits, require_records_fit
from torch_holdout.ledger.run_replay import require_runs_fit
from torch_holdout.ledger.same_data import (
    KnownData,
    data_difference,
    has_sketch,
    keyed_data,
    ledger_key,
    require_new_data,
    store_data,
    store_sketch,
    stored_sketch,
)
from torch_holdout.ledger.sealed_runs import (
    has_events,
    how_closed,
    read_runs,
    read_symbols,
)


@final
class Ledger(BoardsLedger):
    """The accounts behind one URL.

    With ``reads_only`` nothing is changed, not even the file of an older version, and a ledger
    without write permission can be opened.

    Example:
        >>> ledger = Ledger("memory://")
        >>> account = ledger.register(
        ...     "val", {"statistics": {}, "budget": 3}, budget=3, private=True, fingerprint=None
        ... )
        >>> with ledger.account(account) as opened:
        ...     opened.budget_left
        3
    """

    def register(
        self,
        name: str,
        registration: dict[str, Any],
        *,
        budget: int,
        private: bool,
        fingerprint: DataFingerprint | None,
        account: str | None = None,
        refusal: str | None = None,
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
            refusal: Why none may be created with these parameters; None if one may.
        """
        content = canonical(registration)  # what cannot be written must not leave a file behind
        with self._transaction(create=account is None) as connection:
            keyed = keyed_data(connection, fingerprint)
            row = self._locked(connection, schema.holdouts, name, account, keyed)
            if row is None:
                require_makeable(refusal)
                own = {"registration": content, "budget": budget}
                own["spent"] = 0 if private else None
                return self._made(connection, schema.holdouts, name, own, keyed)
            marks = self._marks(connection)
            require_holdout_fits(connection, row, self.address, marks, writes=True)
            require_runs_fit(connection, row, self.address)
            stored = StoredRegistration.of_account(row, self.address)
            given = StoredRegistration(registration)
            unlike = data_difference(connection, row, keyed)
            asked = row.queries > 0 or has_events(connection, row.id)
            known = account is not None
            whole = merged(row, stored, given, unlike, asked=asked, lenient=known)
            if whole != stored or not has_header(connection, row.account):
                same = schema.holdouts.update().where(schema.holdouts.c.id == row.id)
                with covered(connection, schema.holdouts, row.account, self.address):
                    statements.change(connection, same.values(registration=whole.text()))
            self._sketch(connection, schema.holdouts, row.account, keyed)
            return str(row.account)

    @contextlib.contextmanager
    def account(self, account: str, *, budget: int | None = None) -> Iterator[Account]:
        """Open an account exclusively; leaving the block commits, an exception rolls back.

        An account whose budget is not the handle's was edited, and is refused.
        """
        with self._transaction() as connection:
            row = self._row(connection, statements.LOCK_HOLDOUT, account)
            if budget is not None and (not isinstance(budget, int) or budget != row.budget):
                raise damaged(row.name, self.address)
            yield Account(connection, row)

    def summary(self, account: str, *, check: bool = False) -> Summary:
        """Read an account's counters; ``check`` its rows first."""
        with self._transaction(reads_only=True) as connection:
            row = self._row(connection, statements.HOLDOUT, account)
            if check is not False:
                require_holdout_fits(connection, row, self.address, self._marks(connection))
                if self._version >= schema.WITH_SEALED:
                    require_runs_fit(connection, row, self.address)
            return self._summary(connection, row)

    def known_data(self, account: str, hashes: Hashes) -> KnownData:
        """Return how many of some records are among those an account knows."""
        with self._transaction(reads_only=True) as connection:
            row = self._row(connection, statements.HOLDOUT, account)
            sketch = stored_sketch(connection, account)
            registered = row.fingerprint is not None
            if sketch is None:
                return KnownData(registered, None)
            keyed = keyed_hashes(hashes, ledger_key(connection))
            return KnownData(registered, sketch.compared_with(keyed))

    def learn_data(self, account: str, hashes: Hashes) -> bool:
        """Keep the sketch of all records of a dataset; false if the account has one."""
        with self._transaction() as connection:
            self._row(connection, statements.LOCK_HOLDOUT, account)
            if stored_sketch(connection, account) is not None:
                return False
            keyed = keyed_hashes(hashes, ledger_key(connection))
            with covered(connection, schema.holdouts, account, self.address):
                store_sketch(connection, account, Sketch.of(keyed, len(hashes)))
            return True

    def releases(self, account: str) -> int:
        """Read how many releases an account has made."""
        with self._transaction(reads_only=True) as connection:
            return int(self._row(connection, statements.RELEASES, account).releases)

    def answers(self, account: str, after: int = 0, limit: int | None = None) -> list[Recorded]:
        """Return the answers after a position, oldest first; at most ``limit``."""
        asked = schema.queries.c
        wanted = (asked.position, asked.statistic, asked.kind, asked.value, asked.asked_at)
        with self._transaction(reads_only=True) as connection:
            if self._version < schema.WITH_RUNS:
                chosen = _of_account(account, *wanted)
            else:
                run = schema.runs.c
                same = (run.holdout_id == asked.holdout_id) & (run.position == asked.position)
                chosen = _of_account(account, *wanted, run.run).outerjoin(schema.runs, same)
            if after > 0:
                chosen = chosen.where(asked.position > after)
            ordered = chosen.order_by(asked.position).limit(limit)
            answers = [Recorded(*row) for row in connection.execute(ordered)]
        if not all(isinstance(answer.run, str | None) for answer in answers):
            raise damaged_ledger(self.address, ["the name of a run is not text"])
        return answers

    def answer(self, account: str, position: int) -> tuple[Summary, Recorded, int] | None:
        """Return counters, the answer at a position and how many releases came before it, or None.

        Read at once and without the other rows, so that it takes as long for many answers as for
        few.
        """
        with self._transaction(reads_only=True) as connection:
            row = self._row(connection, statements.HOLDOUT, account)
            summary = self._summary(connection, row)
            if not 0 < position <= summary.queries:
                return None
            where = {"holdout": row.id, "position": position}
            answer = connection.execute(statements.ANSWER_AT, where).one()
            names = list(summary.registered.statistics)
            before = connection.execute(
                statements.RELEASES_BEFORE, where | {"statistics": names}
            ).scalar_one()
        return summary, Recorded(*answer), int(before)

    def totals(self, account: str) -> dict[tuple[str, str], int]:
        """Count the answers by statistic and kind; no answer is read."""
        asked = schema.queries.c
        counts = _of_account(account, asked.statistic, asked.kind, sa.func.count())
        with self._transaction(reads_only=True) as connection:
            rows = connection.execute(counts.group_by(asked.statistic, asked.kind))
            return {(str(statistic), str(kind)): int(count) for statistic, kind, count in rows}

    def refusals(self, account: str) -> list[Refusal]:
        """Return the queries after the budget was gone, by statistic and run."""
        asked = schema.refusals.c
        wanted = (asked.statistic, asked.run, asked.count, asked.first_at, asked.last_at)
        with self._transaction(reads_only=True) as connection:
            if self._version < schema.WITH_RUNS:
                return []
            chosen = _of_account(account, *wanted)
            rows = connection.execute(
                chosen.order_by(asked.first_at, asked.statistic, asked.run)
            ).all()
        if not all(map(Refusal.fits, rows)):
            raise damaged_ledger(self.address, ["queries after the budget was gone are miscounted"])
        return [Refusal(row[0], row[1] or None, *row[2:]) for row in rows]

    def accounts(self) -> dict[str, str]:
        """Return the accounts' ids by the holdouts' names, oldest first."""
        with self._transaction(reads_only=True) as connection:
            return _ids(connection, schema.holdouts)

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
            keyed = keyed_data(connection, fingerprint)
            row = self._locked(connection, schema.records, name, account, keyed)
            if row is None:
                own = {"registration": content, "capacity": capacity}
                return self._made(connection, schema.records, name, own, keyed)
            marks = self._marks(connection)
            require_records_fit(connection, row, self.address, marks, writes=True)
            stored = parsed(row, self.address)
            unlike = data_difference(connection, row, keyed)
            require_same(row, stored, registration | {"derived": stored["derived"]}, unlike)
            if not has_header(connection, row.account):
                with covered(connection, schema.records, row.account, self.address):
                    pass
            self._sketch(connection, schema.records, row.account, keyed)
            return str(row.account)

    @contextlib.contextmanager
    def records(self, account: str) -> Iterator[RecordsAccount]:
        """Open a records account exclusively; leaving the block commits, an exception undoes."""
        with self._transaction() as connection:
            yield RecordsAccount(
                connection, self._row(connection, statements.LOCK_RECORDS, account)
            )

    def records_summary(self, account: str, *, check: bool = False) -> RecordsSummary:
        """Read a records account's counters."""
        with self._transaction(reads_only=True) as connection:
            row = self._row(connection, statements.RECORDS, account)
            if check is not False:
                require_records_fit(connection, row, self.address, self._marks(connection))
            return RecordsSummary.of_row(row, self.address)

    def charges(self, account: str) -> list[Charged]:
        """Return the charges to training records, oldest first."""
        asked = schema.charges.c
        wanted = (asked.position, asked.purpose, asked.detail, asked.queries, asked.charge)
        with self._transaction(reads_only=True) as connection:
            chosen = _of_account(account, *wanted, asked.asked_at).order_by(asked.position)
            return [Charged(*row) for row in connection.execute(chosen)]

    def find_records(self, name: str) -> str | None:
        """Return the id of a records account, or None if there is none; makes nothing."""
        known = isinstance(name, str) and self._backend.exists()
        return self.records_accounts().get(name) if known else None

    def records_mark(self, account: str, content: bytes) -> str:
        """Return a mark of a records account and some content, under the ledger's secret.

        Without the ledger it tells nothing about either, so it may be stored elsewhere.
        """
        require_text("account", account)
        require_instance("content", content, bytes)
        with self._transaction(reads_only=True) as connection:
            marked = b"records mark " + account.encode(errors="surrogatepass") + b" " + content
            return hmac.new(ledger_key(connection), marked, hashlib.sha256).hexdigest()

    def records_accounts(self) -> dict[str, str]:
        """Return the records accounts' ids by name, oldest first."""
        with self._transaction(reads_only=True) as connection:
            if self._version < schema.WITH_RECORDS:
                return {}
            return _ids(connection, schema.records)

    def _summary(self, connection: sa.Connection, row: Any) -> Summary:
        known = self._version >= schema.WITH_HEADERS and has_sketch(connection, row.account)
        summary = Summary.of_row(row, self.address, sketched=known)
        if self._version < schema.WITH_SEALED or not has_events(connection, row.id):
            return summary
        return replace(
            summary,
            runs=tuple(read_runs(connection, row.id)),
            symbols=tuple(read_symbols(connection, row.id)),
            closed=how_closed(connection, row.id),
        )

    def _locked(
        self,
        connection: sa.Connection,
        table: sa.Table,
        name: str,
        account: str | None,
        keyed: KeyedData | None,
    ) -> Any:
        """Lock and return the row of a name; None if there is none, nor one for the same data."""
        row = self._locked_row(connection, table, name, account)
        if row is None and keyed is not None:
            require_new_data(connection, table, name, keyed)
        return row

    def _made(
        self,
        connection: sa.Connection,
        table: sa.Table,
        name: str,
        columns: dict[str, Any],
        keyed: KeyedData | None,
    ) -> str:
        account = fresh_secret(16).hex()
        shared = {"account": account, "name": name, "chain": first_link(name), "created_at": now()}
        data = {"fingerprint": None if keyed is None else keyed.fingerprint}
        with covered(connection, table, account, self.address):
            statements.change(connection, table.insert().values(shared | columns | data))
            store_data(connection, account, keyed)
        return account

    def _sketch(
        self, connection: sa.Connection, table: sa.Table, account: str, keyed: KeyedData | None
    ) -> None:
        """Give an account of an older version, opened with its own data, its sketch."""
        if keyed is not None and stored_sketch(connection, account) is None:
            with covered(connection, table, account, self.address):
                store_sketch(connection, account, Sketch.of(keyed.hashes, keyed.size))


def _ids(connection: sa.Connection, table: sa.Table) -> dict[str, str]:
    accounts = connection.execute(sa.select(table.c.name, table.c.account).order_by(table.c.id))
    return {str(name): str(account) for name, account in accounts}


def _of_account(account: str, *columns: Any) -> sa.Select[Any]:
    rows, known = columns[0].table, isinstance(account, str) and account.isascii()
    owner = schema.records if rows is schema.charges else schema.holdouts
    joined = sa.select(*columns).join(owner, owner.c.id == owner_column(rows))
    return joined.where(owner.c.account == (account if known else ""))
