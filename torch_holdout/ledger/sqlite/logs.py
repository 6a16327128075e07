"""A commit to an SQLite ledger: two fsyncs, and nothing is left in the log.

No connection outlives its transaction. When the last one is closed SQLite removes the log
(``-wal``), so that each commit makes a new one: five fsyncs. To remove it SQLite needs some bytes
of the ledger for itself. A process that uses a ledger therefore holds a shared *open file
description lock* on these bytes, which POSIX does not drop when another handle is closed: the log
stays, as an empty file. A transaction is written to it and made durable, then to the ledger, which
is made durable too; then the log is emptied. What SQLite promises holds at every moment: the log
is on disk before the ledger changes, and the ledger before the log is emptied.

Where a system has no such locks SQLite does all of it, with five.
"""

import contextlib
import os
import sqlite3
import struct
import sys
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_TO_REMOVE = (0x4000_0002, 510)  # SQLite's "shared" bytes: it needs all of them to remove a log
_MODE, _WITH_LOG = 18, b"\x02\x02"  # in the header of a file: how it is written and read
_CAN_PIN = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")


class Pin:
    """A process's hold on the log of one ledger file.

    Taken and released while no connection of this process is open on the file: to close a handle
    drops the locks of all the others.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._log = _log_of(path)
        self._handle = handle
        self._named: tuple[int, int] | None = None  # the log whose name is known to be on disk
        self.identity = _identity(os.fstat(handle))

    @classmethod
    def taken(cls, path: Path) -> "Pin | None":
        """Hold the log of a ledger; return None where that cannot be done."""
        if not _CAN_PIN:
            return None
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(path, flags)
        except OSError:  # it is gone, or may only be read: SQLite will say so
            return None
        if _share(handle) and _has_log(handle):
            return cls(path, handle)
        os.close(handle)  # someone is alone on it, or its journal was changed, or locks lack
        return None

    def holds(self, path: Path) -> bool:
        """Whether the file of that name is still the one that is held."""
        with contextlib.suppress(OSError):
            return _identity(path.stat()) == self.identity
        return False

    def log(self) -> tuple[int, int] | None:
        """Return which file is the log now; None if there is none."""
        with contextlib.suppress(OSError):
            return _identity(self._log.stat())
        return None

    def notice_log(self) -> None:
        """Notice, before a connection is opened, whether it makes a new log.

        A new one may have the number of one that was removed.
        """
        if self.log() is None:
            self._named = None

    def settle(self, connection: sqlite3.Connection, log: tuple[int, int] | None) -> None:
        """Make what was committed durable: in the log, then in the ledger; empty the log.

        ``log`` is the file that the transaction was begun with. If another one has its name by now,
        or none, SQLite makes durable what it has written. A failure of either is one of the commit.
        After it nothing can be lost, so what a full disk or a foreign reader prevents is left to
        the next commit.
        """
        if log is None or self.log() != log:
            _settle_unnamed(connection)
        elif log_length(self._path):
            self._keep_log()
            with contextlib.suppress(sqlite3.Error, OSError):
                _run(connection, "busy_timeout = 0", "wal_checkpoint(PASSIVE)")
                os.fdatasync(self._handle)
                # SQLite does what is left, if anything is, and does it durably.
                _run(connection, "synchronous = FULL", "wal_checkpoint(TRUNCATE)")

    def release(self) -> None:
        """Let go."""
        os.close(self._handle)

    def _keep_log(self) -> None:
        try:
            with self._log.open("rb") as log:  # SQLite holds no locks on it that this could drop
                os.fdatasync(log.fileno())
                named = _identity(os.fstat(log.fileno()))
            if named != self._named:  # it is new, and so is its name
                _sync_folder(self._log.parent)
                self._named = named
        except OSError as error:
            raise sqlite3.OperationalError(f"the log could not be kept: {error.strerror}") from None


class LedgerConnection(sqlite3.Connection):
    """A connection whose commit is durable when it returns."""

    _pin: Pin | None = None
    _log: tuple[int, int] | None = None

    def settle_with(self, pin: Pin) -> None:
        """Let a pin make durable what is written, not SQLite; before a transaction begins."""
        self._pin = pin
        _run(self, "synchronous = OFF", "wal_autocheckpoint = 0")

    def has_begun(self) -> None:
        """Remember which log a transaction is written to."""
        self._log = None if self._pin is None else self._pin.log()

    def commit(self) -> None:
        """Commit; what was written is on disk."""
        super().commit()
        if self._pin is not None:
            self._pin.settle(self, self._log)


def _settle_unnamed(connection: sqlite3.Connection) -> None:
    _run(connection, "busy_timeout = 0", "synchronous = FULL")
    if _run(connection, "wal_checkpoint(TRUNCATE)") != [0]:
        raise sqlite3.OperationalError("the log was removed, and a reader is in the way")


def _run(connection: sqlite3.Connection, *pragmas: str) -> list[object]:
    """Run pragmas; return the first value that each gives, if it gives one."""
    rows = [connection.execute(f"PRAGMA {pragma}").fetchone() for pragma in pragmas]
    return [row[0] for row in rows if row is not None]


def log_length(path: Path) -> int:
    """Return how many bytes are in the log of a ledger; 0 without one.

    Example:
        >>> log_length(Path("no such holdout.db"))
        0
    """
    with contextlib.suppress(FileNotFoundError):
        return _log_of(path).stat().st_size
    return 0


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _has_log(handle: int) -> bool:
    """Whether changes go to a log: no one can change that while the ledger is held."""
    return os.pread(handle, 2, _MODE) == _WITH_LOG


def _share(handle: int) -> bool:
    asked = struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, *_TO_REMOVE, 0)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, asked)
    except OSError:
        return False
    return True
