"""The interface of a ledger's database, and the parts that all databases share."""

import contextlib
import logging
from collections.abc import Iterable
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import sqlalchemy as sa

from torch_holdout._noise.streams import fresh_secret
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import headers
from torch_holdout.ledger.checked import Marks
from torch_holdout.ledger.schema import (
    ADDED,
    SCHEMA_VERSION,
    WITH_HEADERS,
    keys,
    ledger,
    metadata,
)
from torch_holdout.ledger.statements import change

WAIT_SECONDS = 60  # for another process's transaction
_LOGGER = "torch_holdout"


class Backend(Protocol):
    """A database and the way to open it."""

    address: str
    errors: tuple[type[Exception], ...]

    def connect(self, *, create: bool) -> sa.Engine:
        """Return an engine on a checked ledger; with ``create``, make a missing one."""

    def begin(self, engine: sa.Engine, *, reads_only: bool) -> sa.Connection:
        """Open a transaction. Nothing has been asked yet, so only this may be tried again."""
        return opened(engine, reads_only=reads_only)

    def explain(self, error: Exception, *, committing: bool) -> LedgerError:
        """Return an error for a failure inside a transaction, without a row's content."""
        why = str(getattr(error, "orig", None) or type(error).__name__)
        return LedgerError(
            f"The ledger {self.address} could not be used ({why}); nothing was released. If "
            f"another process holds it, try again; if the disk is full, or the file damaged or "
            f"gone, repair that first."
        )

    def exclusive(self, *, reads_only: bool) -> contextlib.AbstractContextManager[Any]:
        """Keep other threads out where the database itself cannot; by default it can."""
        return contextlib.nullcontext()

    def exists(self) -> bool:
        """Whether there is something to open."""

    def reading(self) -> sa.Engine:
        """Return an engine that changes nothing, on a ledger that may be damaged."""

    def problems(self, connection: sa.Connection) -> list[str]:
        """Return problems of the database itself: its tables and settings, not its rows."""

    def opening_problems(self, connection: sa.Connection, marks: Marks | None) -> list[str]:
        """Return those that are looked for at every opening."""
        return self.problems(connection)

    def life(self, connection: sa.Connection) -> str | None:
        """Return what the marks of earlier replays hold for; None if none can hold now."""


def opened(engine: sa.Engine, **options: Any) -> sa.Connection:
    """Return a connection on which a transaction was begun."""
    connection = engine.connect().execution_options(**options)
    try:
        connection.begin()
    except BaseException:
        connection.close()
        raise
    return connection


def quiet_engine(url: str, **options: Any) -> sa.Engine:
    """Return an engine that logs no rows: they hold secrets, whatever level is set."""
    logging.getLogger(f"sqlalchemy.engine.Engine.{_LOGGER}").setLevel(logging.WARNING)
    options |= {"execution_options": {"preserve_rowcount": True}}  # of inserts, too
    return sa.create_engine(url, hide_parameters=True, logging_name=_LOGGER, **options)


def fill(connection: sa.Connection) -> None:
    """Create an empty ledger."""
    metadata.create_all(connection, checkfirst=False)
    made = {"created_at": now(), "created_by": library_version()}
    change(connection, ledger.insert().values(schema_version=SCHEMA_VERSION, **made))
    change(connection, keys.insert().values(purpose="fingerprint", secret=fresh_secret()))
    headers.start(connection)


def tables_of(schema_version: int) -> list[sa.Table]:
    """Return the tables that a ledger of some version has."""
    later = {t for number, added in ADDED.items() if number > schema_version for t in added}
    return [table for table in metadata.tables.values() if table not in later]


def stored_version(connection: sa.Connection, address: str, oldest: int = 1) -> int:
    """Return a ledger's schema version; raise if it is not known."""
    stored = connection.execute(sa.select(ledger.c.schema_version)).scalar_one()
    if not oldest <= stored <= SCHEMA_VERSION:
        raise LedgerError(
            f"Expected a ledger of schema version {oldest} to {SCHEMA_VERSION}, but {address} has "
            f"version {stored}. Update torch_holdout to open it."
        )
    return int(stored)


def upgrade(connection: sa.Connection, address: str) -> None:
    """Add the tables of later versions and the headers of all accounts; nothing else changes."""
    # Read again under the lock: another process may have been faster.
    stored = connection.execute(sa.select(ledger.c.schema_version).with_for_update()).scalar_one()
    for later in range(stored + 1, SCHEMA_VERSION + 1):
        metadata.create_all(connection, tables=list(ADDED[later]), checkfirst=False)
    if stored < WITH_HEADERS:
        headers.cover_all(connection, address)
    change(connection, ledger.update().values(schema_version=SCHEMA_VERSION))


def key_problems(connection: sa.Connection) -> list[str]:
    """Return a problem if the key of the fingerprints is lost."""
    lost = connection.execute(sa.select(keys.c.secret)).first() is None
    return ["its secret key is lost"] if lost else []


def damaged_ledger(address: str, problems: Iterable[str]) -> LedgerError:
    """Return the error for a damaged ledger."""
    return LedgerError(
        f"Expected an intact ledger at {address}, but it is damaged ({'; '.join(problems)}). It "
        f"was not repaired, because a repair could refund budget. Restore it from a backup."
    )


def now() -> str:
    """Return the time, as the ledger writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


@lru_cache(maxsize=1)
def library_version() -> str:
    """Name and version of this library."""
    try:
        return f"torch_holdout {version('torch-holdout')}"
    except PackageNotFoundError:  # a source tree that is not installed
        return "torch_holdout"


def cause_of(error: Exception) -> BaseException | None:
    """Return the driver's own error behind one of SQLAlchemy."""
    return error.orig if isinstance(error, sa.exc.DBAPIError) else error


def reason(error: Exception) -> str:
    """Return the message of an operating system or a database."""
    cause = cause_of(error)
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
