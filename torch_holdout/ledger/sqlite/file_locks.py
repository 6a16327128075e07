"""One thread of a process at a time on one SQLite file, and none across a fork.

POSIX drops all of a process's locks on a file when the process closes *any* of its handles to that
file, and opening a ledger looks into its header first. Beside an open transaction of another
thread, even of a reader, that would take the file from under it. A fork beside an open transaction
would copy SQLite's own locks into the child.
"""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

_guard = threading.Lock()
_turns: dict[Path, threading.RLock] = {}
_held: list[threading.RLock] = []


def turn(path: Path) -> contextlib.AbstractContextManager[Any]:
    """Return a lock that keeps the file from the other threads of this process, by any name of it.

    Example:
        >>> with turn(Path("ledger.db")), turn(Path("./ledger.db")):
        ...     print("the same thread may nest")
        the same thread may nest
    """
    known = path.resolve()
    with _guard:
        return _turns.setdefault(known, threading.RLock())


def _before_fork() -> None:
    """Wait for every open transaction of this process; threads that begin one wait for the fork."""
    taken: set[int] = set()
    while True:
        with _guard:
            new = [lock for lock in _turns.values() if id(lock) not in taken]
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
    _turns.clear()
    _held.clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
