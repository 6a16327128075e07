"""Transactions on one ledger: opened, committed before anything returns, errors explained."""

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from torch_holdout.errors import LedgerError
from torch_holdout.ledger import schema
from torch_holdout.ledger.backend import damaged_ledger, stored_version
from torch_holdout.ledger.checked import Marks
from torch_holdout.ledger.engines import backend_for


class OpenLedger:
    """A connection to the database behind one URL, made on first use."""

    def __init__(self, url: str, *, reads_only: bool = False) -> None:
        self._backend = backend_for(url)
        self._reads_only = reads_only
        self._version = schema.SCHEMA_VERSION  # what is opened to be written to is upgraded first
        self._connected: sa.Engine | None = None
        self.address = self._backend.address

    def _row(self, connection: sa.Connection, statement: sa.Select[Any], account: str) -> Any:
        known = isinstance(account, str) and account.isascii()
        row = connection.execute(statement, {"which": account}).one_or_none() if known else None
        if row is None:
            raise self._gone("an account")  # never its id
        return row

    def _locked_row(
        self, connection: sa.Connection, table: sa.Table, name: str, account: str | None
    ) -> Any:
        """Lock and return the row of a name; None if there is none and it may be made.

        If there is none, the ledger is locked, so that no one else adds it, and looked at again.
        """
        named = sa.select(table).where(table.c.name == name).with_for_update()
        row = connection.execute(named).one_or_none()
        if row is None:
            connection.execute(sa.select(schema.ledger.c.schema_version).with_for_update())
            row = connection.execute(named).one_or_none()
        if account is not None and (row is None or row.account != account):
            raise self._gone(repr(name))
        return row

    def _marks(self, connection: sa.Connection) -> Marks | None:
        """Return the marks of what was replayed before; None if none can hold."""
        if self._version < schema.WITH_CHECKED:
            return None
        life = self._backend.life(connection)
        return None if life is None else Marks(connection, life)

    def _gone(self, which: str) -> LedgerError:
        return LedgerError(
            f"Expected {which} in {self.address}, where this handle was created, but it is "
            f"gone or replaced. A new one would be a new budget, so none was created or used."
        )

    @contextlib.contextmanager
    def _transaction(
        self, *, reads_only: bool = False, create: bool = False
    ) -> Iterator[sa.Connection]:
        if self._connected is None:
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
            with (
                self._backend.exclusive(reads_only=True),
                self._backend.begin(engine, reads_only=True) as connection,
            ):
                self._version = stored_version(connection, self.address)
                problems = self._backend.opening_problems(connection, self._marks(connection))
        except self._backend.errors as error:
            failure = self._backend.explain(error, committing=False)
        else:
            if problems:
                raise damaged_ledger(self.address, problems)
            return engine
        raise failure from None
