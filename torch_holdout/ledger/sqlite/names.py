"""One ledger, one name: SQLite keeps its side files by the name of the file."""

import contextlib
import os
from pathlib import Path

from torch_holdout.errors import LedgerError
from torch_holdout.ledger.sqlite.mounts import is_mount_point


def draft_of(path: Path, mark: str) -> Path:
    """Return the name under which a new ledger is built, before it is linked into place.

    Example:
        >>> draft_of(Path("/runs/holdout.db"), "1f").name
        '.holdout.db.1f.new'
    """
    before, after = _around(path)
    return path.with_name(f"{before}{mark}{after}")


def refuse_second_name(path: Path) -> None:
    """Raise if a resolved path is one of several names of its file.

    Under each name SQLite would keep another log of what was written last: one budget for each.
    A file that is not there is left to SQLite to refuse.
    """
    if _links(path) > 1:
        _remove_drafts(path)
    if _links(path) > 1:
        raise LedgerError(
            f"Expected one name for the ledger {path}, but its file has several (hard links), and "
            f"each would be a budget of its own. Remove the others (find them with find -samefile) "
            f"or copy instead of linking. Nothing was released or charged."
        )
    if is_mount_point(path):
        raise LedgerError(
            f"Expected the ledger {path} in a mounted folder, but the file itself is mounted, so "
            f"that its log stays in this container and its budget could be spent twice. Mount the "
            f"folder, not the file. Nothing was released or charged."
        )


def _links(path: Path) -> int:
    try:
        return path.stat().st_nlink
    except OSError:
        return 0


def _remove_drafts(path: Path) -> None:
    """Remove a draft that its maker had no time to remove: it is this very file."""
    before, after = _around(path)
    with contextlib.suppress(OSError):
        for draft in path.parent.iterdir():
            named = draft.name.startswith(before) and draft.name.endswith(after)
            if named and os.path.samefile(draft, path):
                draft.unlink(missing_ok=True)


def _around(path: Path) -> tuple[str, str]:
    return f".{path.name}.", ".new"
