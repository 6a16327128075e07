"""From a URL to a database that is ours, whole and safe to write to."""

import contextlib
import logging
import os
import sqlite3
import stat
import threading
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar, Protocol
from weakref import WeakValueDictionary

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool, StaticPool

from torch_holdout.errors import HoldoutWarning, LedgerError
from torch_holdout.ledger.schema import (
    ADDED,
    APPLICATION_ID,
    SCHEMA_VERSION,
    keys,
    ledger,
    metadata,
)
from torch_holdout.noise import fresh_secret

BUSY_SECONDS = 60
_MAGIC = b"SQLite format 3\x00"
_HEADER = 100  # bytes of an SQLite file's header; the application id stands at 68
_LOGGER = "torch_holdout"
_SUPPORTED = "sqlite:///file.db or memory://"


class Backend(Protocol):
    """A database and the way to open it."""

    address: str

    def connect(self, *, create: bool) -> sa.Engine:
        """Return an engine on a checked ledger; make one if there is none and ``create``."""

    def exclusive(self) -> contextlib.AbstractContextManager[Any]:
        """Keep other threads out where the database itself cannot."""

    def exists(self) -> bool:
        """Whether there is something to open."""


def backend_for(url: str) -> Backend:
    """Choose the backend for a URL; touches nothing yet.

    Example:
        >>> backend_for("sqlite:////tmp/holdout.db").address
        'sqlite:////tmp/holdout.db'
    """
    parsed = _parse(url)
    plain = not (parsed.database or parsed.username or parsed.port or parsed.query)
    if parsed.drivername == "memory" and plain:
        return MemoryBackend.named(parsed.host)
    if parsed.drivername == "sqlite":
        return SqliteBackend(_sqlite_path(parsed, url))
    raise LedgerError(f"Expected a ledger URL like {_SUPPORTED}, but got {parsed}.")


class SqliteBackend:
    """An SQLite file: WAL, synchronous=FULL, mode 0600, never seen half made.

    A new ledger is built under another name and linked into place, so a file that exists is whole:
    an empty or foreign one is refused instead of being filled.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.address = f"sqlite:///{path}"

    def connect(self, *, create: bool) -> sa.Engine:
        """Make the file if there is none, check it, and return an engine."""
        if create and not self._path.exists():
            self._create()
        self._check_file()
        engine = _file_engine(self._path)
        if _check_content(engine, self.address) < SCHEMA_VERSION:
            _upgrade(engine, self.address)
        return engine

    def exclusive(self) -> contextlib.AbstractContextManager[Any]:
        """SQLite locks the file itself."""
        return contextlib.nullcontext()

    def exists(self) -> bool:
        """Whether there is a file."""
        return self._path.exists()

    def _create(self) -> None:
        folder = self._path.parent
        if not folder.is_dir():
            raise LedgerError(f"Expected the folder {folder} to exist for the ledger; create it.")
        draft = folder / f".{self._path.name}.{fresh_secret(8).hex()}.new"
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with contextlib.closing(sqlite3.connect(draft)) as plain:
                plain.execute("PRAGMA journal_mode = WAL")  # kept in the file
            with _file_engine(draft).begin() as connection:
                connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
                _fill(connection)
            # Losing the race to another process is fine: its file is whole.
            with contextlib.suppress(FileExistsError):
                os.link(draft, self._path)
        except (OSError, sa.exc.DBAPIError, sqlite3.Error) as error:
            raise LedgerError(
                f"Expected to create a ledger at {self._path}, but the file system refused "
                f"({_reason(error)}). Choose a writable folder on a local disk."
            ) from None
        finally:
            draft.unlink(missing_ok=True)

    def _check_file(self) -> None:
        if not self._path.is_file():
            raise LedgerError(f"Expected a ledger file at {self._path}, but that is no file.")
        mode = self._path.stat().st_mode
        # Root may write anywhere, so the mode is asked too: read-only was meant by someone.
        if not (mode & 0o222 and os.access(self._path, os.W_OK)):
            raise LedgerError(
                f"Expected to write to the ledger {self._path}, but it is read-only. Every answer "
                f"is recorded before it is given; make the file writable (chmod 600)."
            )
        try:
            with self._path.open("rb") as file:
                start = file.read(_HEADER)
        except OSError as error:
            raise LedgerError(f"Cannot read the ledger {self._path}: {_reason(error)}.") from None
        page = int.from_bytes(start[16:18], "big") or 1
        whole = self._path.stat().st_size % (65536 if page == 1 else page) == 0
        if len(start) < _HEADER or not start.startswith(_MAGIC) or not whole:
            raise LedgerError(
                f"Expected a ledger at {self._path}, but the file is empty, cut off or something "
                f"else. It was not touched. Restore it from a backup, or choose another path."
            )
        # Asked of the header itself: SQLite is not let near a file that is not ours.
        if int.from_bytes(start[68:72], "big") != APPLICATION_ID:
            raise LedgerError(
                f"Expected a torch_holdout ledger at {self._path}, but it is another program's "
                f"database. It was not touched. Choose another path."
            )
        if stat.S_IMODE(mode) & 0o077:
            warnings.warn(
                f"The ledger {self._path} can be read by other users (mode "
                f"{stat.S_IMODE(mode):o}). It holds the open round's secret threshold and is as "
                f"confidential as the holdout: chmod 600.",
                HoldoutWarning,
                stacklevel=2,
            )


class MemoryBackend:
    """A throw-away ledger of this process. ``memory://label`` is shared by label."""

    _named: ClassVar[WeakValueDictionary[str, "MemoryBackend"]] = WeakValueDictionary()

    def __init__(self, label: str) -> None:
        self.address = f"memory://{label}"
        self._process = os.getpid()
        self._engine: sa.Engine | None = None
        self._lock = threading.RLock()

    @classmethod
    def named(cls, label: str | None) -> "MemoryBackend":
        """Return the ledger of that label, a new one without a label."""
        label = label or fresh_secret(8).hex()
        found = cls._named.get(label)
        if found is None:
            found = cls._named[label] = cls(label)
        return found

    def connect(self, *, create: bool) -> sa.Engine:
        """Return the one engine; a new one is empty, so ``create`` does not matter."""
        with self.exclusive():
            if self._engine is None:
                engine = _engine(poolclass=StaticPool, connect_args={"check_same_thread": False})
                with engine.begin() as connection:
                    _fill(connection)
                self._engine = engine
            return self._engine

    def exists(self) -> bool:
        """Always: an empty one is made on first use, and costs nothing."""
        return True

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """One thread at a time, and only in the process that made it."""
        if os.getpid() != self._process:
            raise LedgerError(
                "Expected a memory:// ledger to stay in its process: a copy in another one would "
                "be a second budget. Use sqlite:///file.db to share a holdout."
            )
        with self._lock:
            yield


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError, TypeError, AttributeError):
        raise LedgerError(f"Expected a ledger URL like {_SUPPORTED}; this one is none.") from None
    if parsed.password is not None:
        raise LedgerError(
            f"Expected no password in the ledger URL, because URLs end up in logs and checkpoints "
            f"(it is not shown here either): {parsed}. Put it into PGPASSWORD "
            f"or a pgpass file."
        )
    return parsed


def _sqlite_path(url: URL, text: str) -> Path:
    if url.host or url.query or not url.database or url.database == ":memory:" or _odd(text):
        raise LedgerError(
            "Expected sqlite:///relative.db or sqlite:////absolute.db without options; for a "
            "throw-away ledger use memory://."
        )
    try:
        path = Path(url.database).expanduser().absolute()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise LedgerError(f"Expected a usable path in the ledger URL: {_reason(error)}.") from None
    return path


def _odd(url: str) -> bool:
    return "?" in url or not url.isprintable()


def _file_engine(path: Path) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        # Never creates: a ledger that was deleted under a running process must not come back empty.
        return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_SECONDS)

    # No connection outlives its transaction: nothing is carried over a fork.
    return _engine(creator=connect, poolclass=NullPool)


def _engine(**options: Any) -> sa.Engine:
    # Rows hold secrets: they must not be logged, whatever level is set for SQLAlchemy.
    logging.getLogger(f"sqlalchemy.engine.Engine.{_LOGGER}").setLevel(logging.WARNING)
    engine = sa.create_engine("sqlite://", hide_parameters=True, logging_name=_LOGGER, **options)
    _install_pragmas(engine)
    return engine


def _install_pragmas(engine: sa.Engine) -> None:
    @sa.event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # transactions are begun below, by hand
        for pragma in (
            "synchronous = FULL",
            "secure_delete = ON",
            "foreign_keys = ON",
            "trusted_schema = OFF",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        reads_only = connection.get_execution_options().get("reads_only", False)
        connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")

    @sa.event.listens_for(engine, "commit")
    def still_open(connection: sa.Connection) -> None:
        # Python's commit() does nothing, silently, if the database has ended the transaction.
        if not connection.connection.in_transaction:
            raise sqlite3.OperationalError("the transaction was lost before it was committed")


def _fill(connection: sa.Connection) -> None:
    metadata.create_all(connection)
    connection.execute(
        ledger.insert().values(
            schema_version=SCHEMA_VERSION, created_at=now(), created_by=library_version()
        )
    )
    connection.execute(keys.insert().values(purpose="fingerprint", secret=fresh_secret()))


def _check_content(engine: sa.Engine, address: str) -> int:
    """Refuse a ledger that is damaged or of a later version; return its version."""
    found = 0
    try:
        with engine.connect().execution_options(reads_only=True) as connection:
            found = connection.execute(sa.select(ledger.c.schema_version)).scalar_one()
            if not 1 <= found <= SCHEMA_VERSION:
                raise LedgerError(
                    f"Expected a ledger of schema version 1 to {SCHEMA_VERSION}, but {address} has "
                    f"version {found}. Update torch_holdout to open it."
                )
            damage = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
            if _parts(connection) != _expected_parts(found):
                damage = "tables, indexes or triggers are not those of a ledger"
            if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                damage = "rows without their account"
            if connection.execute(sa.select(keys.c.secret)).first() is None:
                damage = "its secret key is lost"
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        damage = _reason(error)
    if damage != "ok":
        raise LedgerError(
            f"Expected an intact ledger at {address}, but it is damaged ({damage}). It was not "
            f"repaired, because a repair could refund budget. Restore it from a backup."
        )
    return int(found)


def _upgrade(engine: sa.Engine, address: str) -> None:
    """Add what later versions have; what is there stays as it is."""
    try:
        with engine.begin() as connection:
            # Read again under the lock: another process may have been faster.
            version = connection.execute(sa.select(ledger.c.schema_version)).scalar_one()
            for later in range(version + 1, SCHEMA_VERSION + 1):
                metadata.create_all(connection, tables=list(ADDED[later]), checkfirst=False)
            connection.execute(ledger.update().values(schema_version=SCHEMA_VERSION))
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        reason = _reason(error)
    else:
        return
    raise LedgerError(
        f"Expected to bring the ledger {address} to schema version {SCHEMA_VERSION}, but the "
        f"database refused ({reason}). Nothing was changed."
    )


def _parts(connection: sa.Connection) -> set[tuple[str, str]]:
    found = connection.exec_driver_sql("SELECT type, name FROM sqlite_master")
    return {(kind, name) for kind, name in found if not name.startswith("sqlite_")}


def _expected_parts(version: int) -> set[tuple[str, str]]:
    later = {table for number, added in ADDED.items() if number > version for table in added}
    tables = [table for table in metadata.tables.values() if table not in later]
    indexes = {("index", str(index.name)) for table in tables for index in table.indexes}
    return {("table", table.name) for table in tables} | indexes


def now() -> str:
    """The time, as the ledger writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


@lru_cache(maxsize=1)
def library_version() -> str:
    """Name and version of this library."""
    try:
        return f"torch_holdout {version('torch-holdout')}"
    except PackageNotFoundError:  # a source tree that is not installed
        return "torch_holdout"


def _reason(error: Exception) -> str:
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
