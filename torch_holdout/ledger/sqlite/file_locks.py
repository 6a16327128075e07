"""One transaction at a time on one SQLite file: among threads, processes, and never across a fork.

POSIX drops all of a process's locks on a file when the process closes *any* of its handles to that
file, and SQLite uses such locks. A thread that copies the ledger, or uploads it as an artifact,
takes them from an open transaction, even of a reader: another process would then write beside it.
So every transaction, readers too, holds a lock of its own, on a file beside the ledger: ``flock``
belongs to an open handle, not to the process, and ends with the process, however that ends.

A fork beside an open transaction would copy SQLite's own locks into the child: it waits.
"""

import contextlib
import errno
import io
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from torch_holdout.errors import LedgerError
from torch_holdout.ledger.backend import WAIT_SECONDS, reason
from torch_holdout.ledger.sqlite.logs import Pin

try:
    import fcntl
except ImportError:  # on Windows locks belong to a handle, SQLite's too
    fcntl = None  # type: ignore[assignment]

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_PATIENCE_SECONDS = 5  # with the process that is next in line
_MOST_PINS = 64  # each is an open file; a process with more ledgers lets go of the first ones
POLLS = (0.001, 0.002, 0.003, 0.005)  # seconds between tries; the last one is repeated


class Turn:
    """The lock of one ledger file in this process, by any name of the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._file: io.FileIO | None = None
        self._depth = 0
        self.process = os.getpid()
        self.threads = threading.RLock()
        self.pin: Pin | None = None

    @contextlib.contextmanager
    def hold(self, *, reads_only: bool) -> Iterator["Turn"]:
        """Keep every other thread and process from the file; a thread may nest."""
        with self.threads:
            self._depth += 1
            try:
                if self._file is None and fcntl is not None:
                    self._file = self._locked(reads_only)
                yield self
            finally:
                self._depth -= 1
                if not self._depth:
                    self._release()

    def keep_log(self) -> None:
        """Hold the ledger's log from now on, before a connection is opened."""
        if self._depth > 1:
            return  # one is open
        if self.pin is not None and not self.pin.holds(self.path):
            self.forget_log()
        if self.pin is None and (taken := Pin.taken(self.path)) is not None:
            self.pin = taken
            _pinned[self.path] = self
            for turn in list(_pinned.values())[:-_MOST_PINS]:
                turn._forget_log_if_idle()

    def forget_log(self) -> None:
        """Let SQLite remove the log again."""
        pin, self.pin = self.pin, None
        _pinned.pop(self.path, None)
        if pin is not None:
            pin.release()

    def _forget_log_if_idle(self) -> None:
        if self.threads.acquire(blocking=False):
            try:
                if not self._depth:
                    self.forget_log()
            finally:
                self.threads.release()

    def require_held(self) -> None:
        """Raise, before a commit, if the lock no longer keeps others out."""
        if os.getpid() != self.process:
            why = "a transaction was carried over a fork"
        elif self._file is not None and not self._is_current(self._file):
            why = f"{self._lock_path.name} was deleted; leave it where it is"
        else:
            return
        raise LedgerError(
            f"Expected to be alone on the ledger {self.path} until the commit, but {why}. Nothing "
            f"was released or charged."
        )

    def _release(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        if os.getpid() == self.process:  # else it is the parent's lock, of a copied handle
            fcntl.flock(file, fcntl.LOCK_UN)  # a child may have a copy, so closing is not enough
        file.close()

    def _locked(self, reads_only: bool) -> io.FileIO | None:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                file = self._opened()
            except OSError as error:
                if reads_only and self.path.exists() and not may_write(self.path):
                    return None  # such a reader changes nothing, not even SQLite's side files
                raise self._refused(error) from None
            if self._waited(file, deadline):
                return file

    def _waited(self, file: io.FileIO, deadline: float) -> bool:
        """Wait for the lock; return False, with the file closed, if it was deleted meanwhile."""
        held = False
        try:
            _stand_in_line(file)
            if not _tried(partial(_is_taken, file), deadline):
                raise LedgerError(
                    f"Expected the ledger {self.path} to be free within {WAIT_SECONDS} seconds, "
                    f"but another process holds it. Try again. Nothing was released or charged."
                )
            _leave_line(file)
            held = self._is_current(file)
        except OSError as error:
            raise self._refused(error) from None
        finally:
            if not held:
                file.close()
        return held

    def _refused(self, error: OSError) -> LedgerError:
        return LedgerError(
            f"Expected to lock the ledger {self.path} by the file {self._lock_path.name} beside "
            f"it, but the file system refused ({reason(error)}). Use a folder on a local disk "
            f"that you may write to. Nothing was released or charged."
        )

    def _opened(self) -> io.FileIO:
        """Open the lock file; make it with the ledger's owner and mode if there is none."""
        with contextlib.suppress(FileNotFoundError):
            try:
                return io.FileIO(os.open(self._lock_path, os.O_RDWR | _FLAGS), "r+")
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
            return io.FileIO(os.open(self._lock_path, os.O_RDONLY | _FLAGS))  # flock needs no more
        ledger = self.path.stat()
        new = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS
        with contextlib.suppress(FileExistsError):
            file = io.FileIO(os.open(self._lock_path, new, 0o600), "r+")
            with contextlib.suppress(PermissionError):
                os.fchmod(file.fileno(), ledger.st_mode & 0o666)
                os.fchown(file.fileno(), ledger.st_uid, ledger.st_gid)
            return file
        return io.FileIO(os.open(self._lock_path, os.O_RDWR | _FLAGS), "r+")

    def _is_current(self, file: io.FileIO) -> bool:
        """Whether others would lock the same file: someone may have deleted it."""
        own = os.fstat(file.fileno())
        try:
            named = os.stat(self._lock_path, follow_symlinks=False)
        except OSError:
            return False
        return (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino)


def _tried(attempt: Callable[[], bool], deadline: float) -> bool:
    """Try again with short, even pauses, until it works or the time is over."""
    for tries in itertools.count():
        if attempt():
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLLS[min(tries, len(POLLS) - 1)])
    raise AssertionError


def _is_taken(file: io.FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stand_in_line(file: io.FileIO) -> None:
    """Wait to be the next: else a process that asks again at once would overtake those that sleep.

    Only fairness rests on this lock, so one that POSIX drops is good enough. (On Linux it has
    nothing to do with ``flock``.) A process that stops in front is overtaken after some seconds.
    """
    if sys.platform == "linux" and file.writable():
        _tried(partial(_is_next, file), time.monotonic() + _PATIENCE_SECONDS)


def _is_next(file: io.FileIO) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _leave_line(file: io.FileIO) -> None:
    if sys.platform == "linux" and file.writable():
        fcntl.lockf(file, fcntl.LOCK_UN)


def turn_of(path: Path) -> Turn:
    """Return this process's lock of a ledger file, the same one for any name of the file.

    Example:
        >>> turn_of(Path("ledger.db")) is turn_of(Path("./ledger.db"))
        True
    """
    known = path.resolve()
    with _guard:
        turn = _turns.get(known)
        if turn is None or turn.process != os.getpid():
            turn = _turns[known] = Turn(known)
        return turn


def may_write(path: Path) -> bool:
    """Whether SQLite could change a ledger or make its side files."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


_guard = threading.Lock()
_turns: dict[Path, Turn] = {}
_pinned: dict[Path, Turn] = {}
_held: list[threading.RLock] = []


def _before_fork() -> None:
    """Wait for every open transaction of this process; threads that begin one wait for the fork."""
    taken: set[int] = set()
    while True:
        with _guard:
            new = [turn.threads for turn in _turns.values() if id(turn.threads) not in taken]
        if not new:
            return
        for lock in new:
            lock.acquire()
            taken.add(id(lock))
            _held.append(lock)


def _after_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_in_child() -> None:
    global _guard
    _guard = threading.Lock()
    for turn in _turns.values():
        turn.forget_log()  # the parent's
    _turns.clear()
    _held.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
