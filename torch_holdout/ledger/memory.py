"""A ledger that ends with its process."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import ClassVar
from weakref import WeakValueDictionary

import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from torch_holdout._noise.streams import fresh_secret
from torch_holdout.errors import LedgerError
from torch_holdout.ledger.backend import Backend, fill
from torch_holdout.ledger.sqlite.backend import DATABASE_ERRORS, sqlite_engine


class MemoryBackend(Backend):
    """A throw-away ledger of this process. ``memory://label`` is shared by label."""

    errors: tuple[type[Exception], ...] = DATABASE_ERRORS
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
        backend = cls._named.get(label)
        if backend is None:
            backend = cls._named[label] = cls(label)
        return backend

    def connect(self, *, create: bool) -> sa.Engine:
        """Return the one engine; a new one is empty, so ``create`` does not matter."""
        with self.exclusive(reads_only=False):
            if self._engine is None:
                engine = sqlite_engine(
                    poolclass=StaticPool, connect_args={"check_same_thread": False}
                )
                with engine.begin() as connection:
                    fill(connection)
                self._engine = engine
            return self._engine

    def reading(self) -> sa.Engine:
        """Return the one engine: there is nothing that could change."""
        return self.connect(create=False)

    def problems(self, connection: sa.Connection) -> list[str]:
        """Return nothing: no other process can reach it."""
        return []

    def life(self, connection: sa.Connection) -> str:
        """Return the same at all times: it lives as long as this process."""
        return "memory"

    def exists(self) -> bool:
        """Return True: an empty one is made on first use, at no cost."""
        return True

    @contextlib.contextmanager
    def exclusive(self, *, reads_only: bool) -> Iterator[None]:
        """Let one thread use it at a time, and only in the process that made it."""
        if os.getpid() != self._process:
            raise LedgerError(
                "Expected a memory:// ledger to stay in its process: a copy in another one would "
                "be a second budget. Use sqlite:///file.db to share a holdout."
            )
        with self._lock:
            yield
