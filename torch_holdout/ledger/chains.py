"""Rows linked by hashes, so that an edited or deleted one is noticed."""

import hashlib
import json
from typing import Any

from torch_holdout.errors import LedgerError


def canonical(content: dict[str, Any]) -> str:
    """Write JSON in one way only, so that it can be compared and hashed."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True)


def first_link(name: str) -> str:
    """Start a hash chain."""
    return hashlib.sha256(name.encode()).hexdigest()


def public_mark(account: str) -> str:
    """Return a public mark that differs between accounts of one name."""
    return first_link(account)[:16]


def chained(previous: str, position: int, row: dict[str, Any]) -> str:
    """Link a row to all rows before it."""
    content = canonical({"position": position, **dict(sorted(row.items()))})
    return hashlib.sha256(f"{previous}{content}".encode()).hexdigest()


def parsed(row: Any, address: str) -> dict[str, Any]:
    """Read an account's stored parameters."""
    try:
        return dict(json.loads(row.registration))
    except (ValueError, TypeError):
        raise damaged(row.name, address) from None


def damaged(name: str, address: str) -> LedgerError:
    """Return the error for a damaged account."""
    return LedgerError(
        f"Expected the rows of {name!r} in {address} to fit together, but they do not: some were "
        f"edited or lost. Nothing was repaired. Restore the ledger from a backup."
    )
