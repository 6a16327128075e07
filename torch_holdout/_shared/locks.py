"""Locks that objects carry along: re-entrant, and free in every copy."""

import os
import threading
import weakref
from typing import Any, cast, final

_NAME = "_own_lock"


@final
class OwnLock:
    """A re-entrant lock that is free in copies and pickles, and in a child after a fork.

    A fork copies a lock that another thread holds, but not that thread: nobody would release it.

    Example:
        >>> import copy
        >>> lock = OwnLock()
        >>> with lock, lock, copy.deepcopy(lock):
        ...     lock.is_mine()
        True
        >>> lock.is_mine()
        False
    """

    def __init__(self) -> None:
        self._lock: Any = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def is_mine(self) -> bool:
        """Whether this thread holds the lock."""
        return cast(bool, self._lock._is_owned())

    def __deepcopy__(self, memo: dict[int, Any]) -> "OwnLock":
        return OwnLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnLock, ()


def lock_of(owner: Any) -> OwnLock:
    """Return the lock of an object, made when it is first asked for.

    So objects need not call an ``__init__`` for it, and pickles of earlier versions have one.

    Example:
        >>> class Service: ...
        >>> service = Service()
        >>> lock_of(service) is lock_of(service), lock_of(service) is lock_of(Service())
        (True, False)
    """
    known = owner.__dict__.get(_NAME)
    # `setdefault` is atomic: two threads that come first get the same lock.
    return cast(OwnLock, owner.__dict__.setdefault(_NAME, OwnLock()) if known is None else known)


def without_lock(state: dict[str, Any]) -> dict[str, Any]:
    """Return an object's state for a pickle, without its lock.

    Example:
        >>> class Service: ...
        >>> service = Service()
        >>> _ = lock_of(service)
        >>> without_lock(vars(service))
        {}
    """
    return {name: value for name, value in state.items() if name != _NAME}


_locks: "weakref.WeakSet[OwnLock]" = weakref.WeakSet()


def _after_in_child() -> None:
    for lock in list(_locks):
        if not lock.is_mine():  # the thread that forked still releases what it holds
            lock._lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_in_child)
