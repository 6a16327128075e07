"""A PostgreSQL database: one budget for many machines."""

import os
import time
import weakref
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import sqlalchemy as sa
from sqlalchemy.engine import URL

from torch_holdout.errors import LedgerError
from torch_holdout.ledger.backend import (
    WAIT_SECONDS,
    Backend,
    cause_of,
    damaged_ledger,
    fill,
    stored_version,
    upgrade,
)
from torch_holdout.ledger.postgres import connections, schema
from torch_holdout.ledger.schema import SCHEMA_VERSION

_CREATION_LOCK = 0x7468_6F6C  # one process at a time makes or upgrades the tables
# Seconds between tries to reach a server that has answered before: it may be restarting.
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 5.0)
_BEGIN = (
    "SET LOCAL synchronous_commit = on; "
    f"SET LOCAL search_path = {schema.SCHEMA}, pg_temp; "
    f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'; "
    f"SET LOCAL statement_timeout = '{connections.STATEMENT_SECONDS}s'; "
    f"SET LOCAL idle_in_transaction_session_timeout = '{connections.STATEMENT_SECONDS}s'"
)
# Writers lock their account's row first, so that whatever they read next is the latest; readers
# look at one moment.
_BEGIN_WRITING = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {_BEGIN}"
_BEGIN_READING = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_BEGIN}"


class PostgresBackend(Backend):
    """Tables in the schema ``torch_holdout`` of a PostgreSQL database.

    A writer locks its account's row until the commit, and the server answers the commit only when
    it is on disk. Between transactions a process keeps one connection, never across a fork.

    What is deleted is not gone: the secret threshold of a finished round stays in dead rows until
    a vacuum, and in the write-ahead log and backups. The server is as confidential as the holdout.
    """

    _named: ClassVar[WeakValueDictionary[str, "PostgresBackend"]] = WeakValueDictionary()

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.address = connections.canonical_address(parameters)
        self._driver = connections.load_driver()
        self.errors: tuple[type[Exception], ...] = (sa.exc.SQLAlchemyError, self._driver.Error)
        self._engine = connections.pooled_engine(self._driver, parameters)
        self._reached = False
        weakref.finalize(self, connections.end, self._engine, os.getpid())

    @classmethod
    def named(cls, url: URL) -> "PostgresBackend":
        """Return this process's backend for a URL: ledgers with one address share connections."""
        parameters = connections.connection_parameters(url)
        address = connections.canonical_address(parameters)
        backend = cls._named.get(address)
        if backend is None:
            backend = cls._named[address] = cls(parameters)
        return backend

    def connect(self, *, create: bool) -> sa.Engine:
        """Make the tables if there are none, check them, and return the engine."""
        try:
            if create and not self.exists():
                self._create()
            with self.begin(self._engine, reads_only=True) as connection:
                self._check_server(connection)
                self._check_access(connection)
                problems = self.problems(connection)
                old = not problems and stored_version(connection, self.address) < SCHEMA_VERSION
            if old:
                self._upgrade()
        except self.errors as error:
            failure = self.explain(error, committing=False)
        else:
            if problems:
                raise damaged_ledger(self.address, problems)
            return self._engine
        raise failure from None

    def begin(self, engine: sa.Engine, *, reads_only: bool) -> sa.Connection:
        """Open a transaction; a lost connection is replaced, because nothing was asked on it."""
        for pause in _PAUSES:
            try:
                return self._begin(engine, reads_only=reads_only)
            except self.errors as error:
                if not self._worth_another_try(error):
                    raise
            time.sleep(pause)
        return self._begin(engine, reads_only=reads_only)

    def explain(self, error: Exception, *, committing: bool) -> LedgerError:
        """Return an error of one sentence, without the password or a row's content."""
        cause = cause_of(error)
        if committing:
            return LedgerError(
                f"The connection to {self.address} failed while a charge was being recorded "
                f"({connections.said(cause)}); nothing was released. status() shows whether it was "
                f"charged; asking the same query again then costs nothing."
            )
        return LedgerError(f"{connections.sentence(cause, self.address)} Nothing was released.")

    def exists(self) -> bool:
        """Whether the database has the ledger's tables."""
        try:
            with self.begin(self._engine, reads_only=True) as connection:
                return bool(schema.catalogue(connection, schema.LEDGER_TABLE))
        except self.errors as error:
            failure = self.explain(error, committing=False)
        raise failure from None

    def reading(self) -> sa.Engine:
        """Return the engine; who reads begins a transaction that cannot write."""
        if not self.exists():
            raise self._missing()
        return self._engine

    def problems(self, connection: sa.Connection) -> list[str]:
        """Return where the tables differ from those of a ledger."""
        return schema.schema_problems(connection, self.address)

    def life(self, connection: sa.Connection) -> str:
        """Return when the server was started: after a crash everything is checked anew."""
        started = sa.text("SELECT extract(epoch FROM pg_postmaster_start_time())::text")
        return str(connection.execute(started).scalar_one())

    def _missing(self) -> LedgerError:
        return LedgerError(
            f"Expected a ledger at {self.address}, but the database has none, and none was created."
        )

    def _begin(self, engine: sa.Engine, *, reads_only: bool) -> sa.Connection:
        connection = engine.connect()
        try:
            driver: Any = connection.connection.driver_connection
            # One message; it cannot be prepared, because it is several statements.
            driver.execute(_BEGIN_READING if reads_only else _BEGIN_WRITING, prepare=False)
            connection.begin()
        except BaseException as error:
            connection.invalidate(error)
            connection.close()
            raise
        self._reached = True
        return connection

    def _worth_another_try(self, error: Exception) -> bool:
        cause = cause_of(error)
        if not isinstance(cause, self._driver.OperationalError):
            return False
        return connections.is_busy(cause) or (self._reached and not connections.is_final(cause))

    def _create(self) -> None:
        """Make the schema and its tables, or find that another process has."""
        with self.begin(self._engine, reads_only=False) as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
            if not schema.catalogue(connection, schema.LEDGER_TABLE):
                self._check_server(connection)
                self._make_room(connection)
                fill(connection)
            connection.commit()

    def _upgrade(self) -> None:
        with self.begin(self._engine, reads_only=False) as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
            upgrade(connection, self.address)
            connection.commit()

    def _make_room(self, connection: sa.Connection) -> None:
        """Make the schema, or use an empty one that an administrator has made for this role."""
        sizes = schema.catalogue(connection, schema.SIZE)
        if not sizes:
            connection.exec_driver_sql(f"CREATE SCHEMA {schema.SCHEMA}")
        elif sizes != [(0,)]:
            raise damaged_ledger(self.address, [f"the schema {schema.SCHEMA} has other tables"])

    def _check_server(self, connection: sa.Connection) -> None:
        unsafe, copy = connection.execute(
            sa.text("SELECT current_setting('fsync') <> 'on', pg_is_in_recovery()")
        ).one()
        if unsafe or copy:
            why = "it is a read-only copy" if copy else "its fsync is off: a crash could refund"
            raise LedgerError(
                f"Expected a PostgreSQL server at {self.address} that keeps what it has "
                f"committed, but {why}. Use a primary server with fsync = on."
            )

    def _check_access(self, connection: sa.Connection) -> None:
        usable = schema.catalogue(connection, schema.USABLE)
        if not usable:
            raise self._missing()
        missing = (
            schema.missing_privileges(connection)
            if usable[0][0]
            else [(schema.SCHEMA, "", "USAGE")]
        )
        if missing:
            name, owner, privilege = missing[0]
            whose = f" of {owner!r}" if owner else ""
            raise LedgerError(
                f"Expected to use the ledger at {self.address}, but its {name}{whose} belongs to "
                f"someone else and {privilege} on it is not granted. Ask its owner, or use your "
                f"own database. Nothing was released."
            )
