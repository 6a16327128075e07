"""Where a board keeps what its ledger does not: teams, tokens, uploads received, events.

The ledger is the truth about answers and quotas; a row here that it does not know is harmless. The
tables are not in the ledger's own database file, because a ledger with foreign tables is refused:
beside ``board.db`` stands ``board.service.db``; in PostgreSQL they have a schema of their own.
"""

import contextlib
import os
import sqlite3
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, final

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from torch_holdout.errors import LedgerError
from torch_holdout.ledger.backend import reason
from torch_holdout.ledger.postgres import connections
from torch_holdout.ledger.sqlite.backend import sqlite_engine
from torch_holdout.ledger.sqlite.mounts import unsafe_file_system

WAIT_SECONDS = 60
POSTGRES_SCHEMA = "torch_holdout_service"
_CREATION_LOCK = 0x7468_7376
metadata = sa.MetaData()

boards = sa.Table(
    "sv_boards",
    metadata,
    sa.Column("board", sa.String(60), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("made_at", sa.String(40), nullable=False),
    sa.Column("closed_at", sa.String(40)),  # as in the ledger, for a quick look
)

teams = sa.Table(
    "sv_teams",
    metadata,
    sa.Column("board", sa.String(60), primary_key=True),
    sa.Column("team", sa.String(40), primary_key=True),
    sa.Column("likeness", sa.String(80), nullable=False),  # names that look alike have the same
    sa.Column("added_at", sa.String(40), nullable=False),
    sa.Column("revoked_at", sa.String(40)),
    sa.UniqueConstraint("board", "likeness", name="sv_one_likeness"),
)

tokens = sa.Table(
    "sv_tokens",
    metadata,
    sa.Column("board", sa.String(60), primary_key=True),
    sa.Column("token", sa.String(8), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),  # SHA-256 of 256 random bits
    sa.Column("scope", sa.String(10), nullable=False),
    sa.Column("team", sa.String(40)),
    sa.Column("made_at", sa.String(40), nullable=False),
    sa.Column("expires_at", sa.String(40)),
    sa.Column("revoked_at", sa.String(40)),
)

submissions = sa.Table(
    "sv_submissions",
    metadata,
    sa.Column("board", sa.String(60), primary_key=True),
    sa.Column("team", sa.String(40), primary_key=True),
    sa.Column("submission", sa.String(64), primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("received_at", sa.String(40), nullable=False),
)

finalists = sa.Table(
    "sv_finalists",
    metadata,
    sa.Column("board", sa.String(60), primary_key=True),
    sa.Column("team", sa.String(40), primary_key=True),
    sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("submission", sa.String(64), nullable=False),
)

events = sa.Table(
    "sv_events",
    metadata,
    # Not BigInteger: SQLite counts up only in an INTEGER PRIMARY KEY.
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("board", sa.String(60), nullable=False),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("action", sa.String(60), nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("token", sa.String(8)),
    sa.Column("team", sa.String(40)),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("position", sa.Integer),  # of the ledger
)
sa.Index("sv_events_of_board", events.c.board, events.c.number)


class _Database(Protocol):
    address: str
    errors: tuple[type[Exception], ...]

    def make(self) -> None:
        """Make the tables where there are none."""

    def begin(self, *, reads_only: bool, durable: bool) -> sa.Connection:
        """Open a transaction."""

    def end(self) -> None:
        """Close all connections."""


@final
class Store:
    """The tables of all boards next to one ledger."""

    def __init__(self, ledger_url: str) -> None:
        parsed = make_url(ledger_url)
        self._database: _Database
        if parsed.drivername == "sqlite":
            self._database = _SqliteFile(Path(str(parsed.database)))
        else:
            self._database = _PostgresSchema(connections.connection_parameters(parsed))

    def make(self) -> None:
        """Make the tables where there are none."""
        try:
            self._database.make()
        except self._database.errors as error:
            failure = self._explained(error)
        else:
            return
        raise failure from None

    @contextlib.contextmanager
    def transaction(
        self, *, reads_only: bool = False, durable: bool = True
    ) -> Iterator[sa.Connection]:
        """Open a transaction that is committed when the block ends.

        One that is not ``durable`` may be lost in a power cut, and only then.
        """
        try:
            with self._database.begin(reads_only=reads_only, durable=durable) as connection:
                yield connection
                connection.commit()
        except self._database.errors as error:
            failure = self._explained(error)
        else:
            return
        raise failure from None

    def end(self) -> None:
        """Close all connections."""
        self._database.end()

    def _explained(self, error: Exception) -> LedgerError:
        return LedgerError(
            f"The tables of the service at {self._database.address} could not be used "
            f"({reason(error)[:200]}). Nothing was answered; the same request may be sent again."
        )


@final
class _SqliteFile:
    """A file next to the ledger's, mode 0600."""

    errors: tuple[type[Exception], ...] = (sa.exc.SQLAlchemyError, sqlite3.Error, OSError)

    def __init__(self, ledger: Path) -> None:
        self._path = ledger.with_name(f"{ledger.stem}.service.db")
        self.address = f"sqlite:///{self._path}"
        self._engine: sa.Engine | None = None

    def make(self) -> None:
        kind = unsafe_file_system(self._path)
        if kind is not None:
            raise LedgerError(
                f"Expected {self._path} on a local disk, but it is on {kind}. Use a local path."
            )
        if not self._path.parent.is_dir():
            raise LedgerError(
                f"Expected a folder for the ledger at {self._path.parent}, but there is none. Make "
                f"it, or name another one in [store]. Nothing was changed."
            )
        opened = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        os.close(opened)
        with contextlib.closing(sqlite3.connect(self._path)) as plain:
            plain.execute("PRAGMA journal_mode = WAL")
        with self.begin(reads_only=False, durable=True) as connection:
            metadata.create_all(connection)
            connection.commit()

    def begin(self, *, reads_only: bool, durable: bool) -> sa.Connection:
        if self._engine is None:
            self._engine = self._pooled()
        connection = self._engine.connect()
        try:
            driver: Any = connection.connection.driver_connection
            # In WAL mode nothing is damaged by NORMAL: the last transactions may be gone.
            level = "FULL" if durable else "NORMAL"
            driver.execute(f"PRAGMA synchronous = {level}").close()
            return _begun(connection.execution_options(reads_only=reads_only))
        except BaseException:
            connection.close()
            raise

    def end(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _pooled(self) -> sa.Engine:
        """Return an engine that keeps connections, never across a fork.

        When the last connection is closed, SQLite copies its log back: too dear for each request.
        """
        address = f"{self._path.absolute().as_uri()}?mode=rw"
        options: dict[str, Any] = {"uri": True, "check_same_thread": False}
        engine = sqlite_engine(
            creator=lambda: sqlite3.connect(address, timeout=WAIT_SECONDS, **options),
            poolclass=QueuePool,
            max_overflow=32,
        )

        @sa.event.listens_for(engine, "connect")
        def connected(_: object, record: Any) -> None:
            record.info["process"] = os.getpid()

        @sa.event.listens_for(engine, "checkout")
        def checked_out(_: object, record: Any, __: object) -> None:
            if record.info["process"] != os.getpid():
                raise sa.exc.DisconnectionError

        weakref.finalize(self, connections.end, engine, os.getpid())
        return engine


@final
class _PostgresSchema:
    """A schema of its own in the ledger's PostgreSQL database."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        driver = connections.load_driver()
        self.address = connections.canonical_address(parameters)
        self.errors: tuple[type[Exception], ...] = (sa.exc.SQLAlchemyError, driver.Error)
        self._engine = connections.pooled_engine(driver, parameters)
        weakref.finalize(self, connections.end, self._engine, os.getpid())

    def make(self) -> None:
        with self.begin(reads_only=False, durable=True) as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
            connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {POSTGRES_SCHEMA}")
            metadata.create_all(connection)
            connection.commit()

    def begin(self, *, reads_only: bool, durable: bool) -> sa.Connection:
        connection = self._engine.connect()
        try:
            driver: Any = connection.connection.driver_connection
            access = "READ ONLY" if reads_only else "READ WRITE"
            driver.execute(
                f"BEGIN ISOLATION LEVEL READ COMMITTED {access}; "
                f"SET LOCAL search_path = {POSTGRES_SCHEMA}, pg_temp; "
                f"SET LOCAL synchronous_commit = {'on' if durable else 'off'}; "
                f"SET LOCAL statement_timeout = '{WAIT_SECONDS}s'",
                prepare=False,
            )
            return _begun(connection)
        except BaseException as error:
            connection.invalidate(error)
            connection.close()
            raise

    def end(self) -> None:
        self._engine.dispose()


def _begun(connection: sa.Connection) -> sa.Connection:
    connection.begin()
    return connection
