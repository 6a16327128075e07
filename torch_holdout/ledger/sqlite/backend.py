"""An SQLite file that is ours, whole and safe to write to."""

import contextlib
import os
import sqlite3
import stat
import time
import warnings
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from torch_holdout._noise.streams import fresh_secret
from torch_holdout.errors import HoldoutWarning, LedgerError
from torch_holdout.ledger.backend import (
    WAIT_SECONDS,
    Backend,
    damaged_ledger,
    fill,
    key_problems,
    opened,
    quiet_engine,
    reason,
    stored_version,
    tables_of,
    upgrade,
)
from torch_holdout.ledger.checked import Marks, Reached
from torch_holdout.ledger.schema import APPLICATION_ID, SCHEMA_VERSION, WITH_CHECKED
from torch_holdout.ledger.sqlite.file_locks import POLLS, may_write, turn_of
from torch_holdout.ledger.sqlite.logs import LedgerConnection, log_length
from torch_holdout.ledger.sqlite.mounts import is_shared, unsafe_file_system
from torch_holdout.ledger.sqlite.names import draft_of, refuse_second_name

DATABASE_ERRORS = (sa.exc.SQLAlchemyError, sqlite3.Error)
_MAGIC = b"SQLite format 3\x00"
_WHOLE_FILE = ""  # the account of its mark
_LARGE = 4 * 2**20  # bytes: a smaller file is read whole at every opening
_HEADER = 100  # bytes of an SQLite file's header; the application id stands at 68


class SqliteBackend(Backend):
    """An SQLite file: WAL, every commit on disk, mode 0600, never seen half made.

    A new ledger is built under another name and linked into place, so a file that exists is whole:
    an empty or foreign one is refused instead of being filled.
    """

    errors: tuple[type[Exception], ...] = DATABASE_ERRORS

    def __init__(self, url: URL, text: str) -> None:
        self._path = _path(url, text)
        self.address = f"sqlite:///{self._path}"

    def connect(self, *, create: bool) -> sa.Engine:
        """Make the file if there is none, check it, and return an engine."""
        self._refuse_unsafe()
        if create and not self._path.exists():
            self._create()
        with turn_of(self._path).threads:
            self._check_file()
        engine = _file_engine(self._path)
        with self.exclusive(reads_only=False):
            if self._check_content(engine) < SCHEMA_VERSION:
                self._upgrade(engine)
            self._mark_content(engine)
        return engine

    def begin(self, engine: sa.Engine, *, reads_only: bool) -> sa.Connection:
        """Open a transaction, unless the file has a second name by now."""
        turn = turn_of(self._path)
        refuse_second_name(turn.path)
        if turn.pin is not None:
            turn.pin.notice_log()
        if not reads_only or log_length(turn.path):  # a reader leaves a full log as it is
            turn.keep_log()
        return opened(engine, reads_only=reads_only, turn=turn)

    def exclusive(self, *, reads_only: bool) -> contextlib.AbstractContextManager[Any]:
        """Let one thread of one process use the file at a time, readers too."""
        return turn_of(self._path).hold(reads_only=reads_only)

    def exists(self) -> bool:
        """Whether there is a file."""
        return self._path.exists()

    def reading(self) -> sa.Engine:
        """Return an engine that changes nothing, not even the file of an older version."""
        self._refuse_unsafe()
        with turn_of(self._path).threads:
            self._check_header()
        self._warn_of_readers()
        engine = _file_engine(self._path, access=self._reading_access())
        sa.event.listen(engine, "connect", lambda own, _: own.execute("PRAGMA query_only = ON"))
        return engine

    def opening_problems(self, connection: sa.Connection, marks: Marks | None) -> list[str]:
        """Return the same, but read a large file whole only if it was not before."""
        if self._is_large() and marks is not None and marks.of(_WHOLE_FILE) is not None:
            return self._part_problems(connection)
        return self.problems(connection)

    def life(self, connection: sa.Connection) -> str | None:
        """Return which file it is; None if its log is not empty: it was not closed cleanly."""
        path = turn_of(self._path).path
        found = path.stat()
        return None if log_length(path) else f"{found.st_dev}:{found.st_ino}"

    def problems(self, connection: sa.Connection) -> list[str]:
        """Return the damage that SQLite finds, and differences from a ledger's tables."""
        problems = []
        damage = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        if damage != "ok":
            problems.append(str(damage))
        if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
            problems.append("rows without their account")
        return problems + self._part_problems(connection)

    def _part_problems(self, connection: sa.Connection) -> list[str]:
        version = stored_version(connection, self.address)
        problems = []
        if _parts(connection) != _expected_parts(version):
            problems.append("tables, indexes or triggers are not those of a ledger")
        return problems + key_problems(connection)

    def _is_large(self) -> bool:
        return self._path.stat().st_size > _LARGE

    def _reading_access(self) -> str:
        # Where it may, SQLite is let write its own side files: without them it would not see what
        # others write, and would leave some behind.
        if may_write(self._path):
            return "mode=rw"
        waiting = self._path.with_name(f"{self._path.name}-wal").exists()
        return "mode=ro" if waiting else "mode=ro&immutable=1"

    def _check_content(self, engine: sa.Engine) -> int:
        version = 0
        try:
            if log_length(turn_of(self._path).path):  # it was not closed cleanly
                self._forget_marks(engine)
            with self.begin(engine, reads_only=True) as connection:
                version = stored_version(connection, self.address)
                damage = self.opening_problems(connection, self._marks(connection))
        except DATABASE_ERRORS as error:
            damage = [reason(error)]
        if damage:
            raise damaged_ledger(self.address, damage)
        return version

    def _marks(self, connection: sa.Connection) -> Marks | None:
        life = self.life(connection)
        known = stored_version(connection, self.address) >= WITH_CHECKED
        return Marks(connection, life) if known and life is not None else None

    def _forget_marks(self, engine: sa.Engine) -> None:
        """Drop all marks and empty the log, in this order: what was not checked has none."""
        with self.begin(engine, reads_only=False) as connection:
            if stored_version(connection, self.address) >= WITH_CHECKED:
                Marks(connection, "").forget()
            connection.commit()

    def _mark_content(self, engine: sa.Engine) -> None:
        """Mark a large file that was read whole and has no damage."""
        if not self._is_large():
            return
        with self.begin(engine, reads_only=False) as connection:
            marks = self._marks(connection)
            if marks is not None and marks.of(_WHOLE_FILE) is None:
                marks.keep(_WHOLE_FILE, Reached(0, "", {}))
            connection.commit()

    def _upgrade(self, engine: sa.Engine) -> None:
        try:
            with self.begin(engine, reads_only=False) as connection:
                upgrade(connection, self.address)
                connection.commit()
        except DATABASE_ERRORS as error:
            why = reason(error)
        else:
            return
        raise LedgerError(
            f"Expected to bring the ledger {self.address} to schema version {SCHEMA_VERSION}, but "
            f"the database refused ({why}). Nothing was changed."
        )

    def _refuse_unsafe(self) -> None:
        kind = unsafe_file_system(self._path)
        if kind is not None:
            what = (
                f"on a network file system ({kind})"
                if is_shared(kind)
                else f"on a file system ({kind}) that is not known to be one: it may be a network's"
            )
            raise LedgerError(
                f"Expected the ledger {self._path} on a local disk, but it is {what}, where "
                f"SQLite's locks do not hold between machines and a budget could be spent twice. "
                f"Use a local path (in a container: a volume of its own machine), or PostgreSQL "
                f"for many machines: postgresql+psycopg://user@host/database."
            )

    def _create(self) -> None:
        folder = self._path.parent
        if not folder.is_dir():
            raise LedgerError(f"Expected the folder {folder} to exist for the ledger; create it.")
        draft = draft_of(self._path, fresh_secret(8).hex())
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with contextlib.closing(sqlite3.connect(draft)) as plain:
                plain.execute("PRAGMA journal_mode = WAL")  # kept in the file
            with _file_engine(draft).begin() as connection:
                connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
                fill(connection)
            # Losing the race to another process is fine: its file is whole.
            with contextlib.suppress(FileExistsError):
                os.link(draft, self._path)
        except (OSError, sa.exc.DBAPIError, sqlite3.Error) as error:
            raise LedgerError(
                f"Expected to create a ledger at {self._path}, but the file system refused "
                f"({reason(error)}). Choose a writable folder on a local disk."
            ) from None
        finally:
            draft.unlink(missing_ok=True)

    def _check_file(self) -> None:
        self._check_header()
        mode = self._path.stat().st_mode
        # Root may write anywhere, so the mode is asked too: read-only was meant by someone.
        if not (mode & 0o222 and os.access(self._path, os.W_OK)):
            raise LedgerError(
                f"Expected to write to the ledger {self._path}, but it is read-only. Every answer "
                f"is recorded before it is given; make the file writable (chmod 600)."
            )
        self._warn_of_readers()

    def _warn_of_readers(self) -> None:
        mode = stat.S_IMODE(self._path.stat().st_mode)
        if mode & 0o077:
            warnings.warn(
                f"The ledger {self._path} can be read by other users (mode {mode:o}). It holds the "
                f"open round's secret threshold and is as confidential as the holdout: chmod 600.",
                HoldoutWarning,
                stacklevel=2,
            )

    def _check_header(self) -> None:
        if not self._path.is_file():
            raise LedgerError(
                f"Expected a ledger file at {self._path}, but that is not a file. Give the path "
                f"that is in the run's URL after sqlite:///."
            )
        try:
            with self._path.open("rb") as file:
                start = file.read(_HEADER)
        except OSError as error:
            raise LedgerError(f"Cannot read the ledger {self._path}: {reason(error)}.") from None
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


def _path(url: URL, text: str) -> Path:
    odd = url.host or url.query or "?" in text or not text.isprintable()
    if odd or not url.database or url.database == ":memory:":
        raise LedgerError(
            "Expected sqlite:///relative.db or sqlite:////absolute.db without options; for a "
            "throw-away ledger use memory://."
        )
    try:
        path = Path(url.database).expanduser().absolute()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise LedgerError(f"Expected a usable path in the ledger URL: {reason(error)}.") from None
    return path


def _file_engine(path: Path, *, access: str = "mode=rw") -> sa.Engine:
    # Never creates: a ledger that was deleted under a running process must not come back empty.
    address = f"{path.as_uri()}?{access}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=WAIT_SECONDS, factory=LedgerConnection)

    # No connection outlives its transaction: none is carried over a fork, and none is open beside
    # another process's.
    engine = sqlite_engine(creator=connect, poolclass=NullPool)

    @sa.event.listens_for(engine, "commit")
    def still_alone(connection: sa.Connection) -> None:
        turn = connection.get_execution_options().get("turn")
        if turn is not None:  # none is a draft's
            turn.require_held()

    return engine


def sqlite_engine(**options: Any) -> sa.Engine:
    """Return an engine with the settings of a ledger."""
    engine = quiet_engine("sqlite://", **options)

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
        driver: Any = connection.connection.driver_connection
        options = connection.get_execution_options()
        if options.get("reads_only", False):
            driver.execute("BEGIN")
            return
        turn = options.get("turn")
        if turn is None or turn.pin is None:
            _begin_writing(driver)
        else:
            driver.settle_with(turn.pin)
            _begin_writing(driver)
            driver.has_begun()

    @sa.event.listens_for(engine, "commit")
    def still_open(connection: sa.Connection) -> None:
        # Python's commit() does nothing, silently, if the database has ended the transaction.
        if not connection.connection.in_transaction:
            raise sqlite3.OperationalError("the transaction was lost before it was committed")

    return engine


def _begin_writing(driver: sqlite3.Connection) -> None:
    """Wait for the lock with short, even pauses.

    SQLite's own pauses grow to 100 ms, and newcomers overtake those that sleep: some then wait for
    seconds.
    """
    driver.execute("PRAGMA busy_timeout = 0").close()
    deadline = time.monotonic() + WAIT_SECONDS
    tries = 0
    while True:
        try:
            driver.execute("BEGIN IMMEDIATE").close()
            break
        except sqlite3.OperationalError as error:
            if str(error) != "database is locked" or time.monotonic() > deadline:
                raise
        time.sleep(POLLS[min(tries, len(POLLS) - 1)])
        tries += 1
    driver.execute(f"PRAGMA busy_timeout = {WAIT_SECONDS * 1000}").close()


def _parts(connection: sa.Connection) -> set[tuple[str, str]]:
    parts = connection.exec_driver_sql("SELECT type, name FROM sqlite_master")
    return {(kind, name) for kind, name in parts if not name.startswith("sqlite_")}


def _expected_parts(version: int) -> set[tuple[str, str]]:
    tables = tables_of(version)
    indexes = {("index", str(index.name)) for table in tables for index in table.indexes}
    return {("table", table.name) for table in tables} | indexes
