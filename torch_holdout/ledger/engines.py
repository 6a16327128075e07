"""From a URL to the database behind it."""

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url

from torch_holdout.errors import LedgerError
from torch_holdout.ledger.backend import Backend
from torch_holdout.ledger.memory import MemoryBackend
from torch_holdout.ledger.postgres.backend import PostgresBackend
from torch_holdout.ledger.sqlite.backend import SqliteBackend

_SUPPORTED = "sqlite:///file.db, postgresql+psycopg://user@host/database or memory://"


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
        return SqliteBackend(parsed, url)
    if parsed.drivername.startswith("postgres"):
        return PostgresBackend.named(parsed)
    raise LedgerError(f"Expected a ledger URL like {_SUPPORTED}, but got {parsed}.")


def _parse(url: str) -> URL:
    try:
        if not isinstance(url, str | URL):
            raise TypeError
        parsed = make_url(url)
    except (sa.exc.ArgumentError, ValueError, TypeError, AttributeError):
        hint = (
            ""
            if isinstance(url, str) and "://" in url
            else " For a file write sqlite:/// before its name."
        )
        raise LedgerError(
            f"Expected a ledger URL like {_SUPPORTED}, but got something else.{hint}"
        ) from None
    if parsed.password is not None:
        raise LedgerError(
            "Expected no password in the ledger URL, because URLs end up in logs and checkpoints "
            "(for the same reason this one is not shown). Put it into PGPASSWORD or a pgpass file."
        )
    return parsed
