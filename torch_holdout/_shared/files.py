"""Checks of a path that somebody typed, before it is read from or written to."""

import errno
import os
from pathlib import Path
from urllib.parse import quote, unquote

from torch_holdout.errors import HoldoutError, InvalidArgumentError


def why_unreadable(path: Path) -> str:
    """Say why a path cannot be read as a file; empty if it can.

    Example:
        >>> why_unreadable(Path("/")), why_unreadable(Path("/no such file"))
        ('that is a folder', 'there is none')
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "that is a symbolic link that leads back to itself"
        missing = error.errno == errno.ENOENT
        return "there is none" if missing else f"the system refused: {error.strerror}"
    except ValueError:
        return "no file can have that name"
    if path.is_dir():
        return "that is a folder"
    if not path.is_file():
        return "that is not a file"
    return "" if os.access(path, os.R_OK) else "you may not read it"


def writable(path: Path, name: str) -> Path:
    """Return where a file goes, which is ``name`` in a folder; raise if it cannot be a file.

    Example:
        >>> print(writable(Path("pages/report.html"), "report.html"))
        pages/report.html
    """
    require_utf8(str(path))
    try:
        path = path / name if path.is_dir() else path
        path.stat()
    except FileNotFoundError:
        return path
    except OSError as error:
        reason = f"the system refused: {error.strerror}"
    except ValueError:
        reason = "no file can have that name"
    else:
        if path.is_file():
            return path
        reason = f"{path} is something else"
    raise InvalidArgumentError(f"Expected the name of a file to write to, but {reason}.")


def require_utf8(text: str) -> None:
    """Raise unless a path can be written in UTF-8, as URLs and pages are.

    Example:
        >>> require_utf8("ledger.db")
    """
    try:
        text.encode()
        return
    except UnicodeEncodeError:
        pass
    raise InvalidArgumentError(
        "Expected a name in UTF-8, but got other bytes. Rename the file, or make a symbolic link "
        "to it that has such a name."
    )


def ledger_url(text: str) -> str:
    """Return a ledger's URL for a path or a URL that was typed.

    Example:
        >>> ledger_url("postgresql://host/ledgers")
        'postgresql://host/ledgers'
    """
    require_utf8(text)
    if text.startswith("memory:"):
        raise HoldoutError("Expected a ledger file: a memory:// ledger lives in its own process.")
    if not text.strip():
        raise HoldoutError("Expected a ledger file, but got an empty name. Give its path.")
    typed = unquote(text.removeprefix("sqlite:///")) if text.startswith("sqlite:///") else text
    if "://" in typed or not typed or (typed != text and "?" in text):
        return text  # for the ledger to understand
    path = Path(typed).absolute()
    if problem := why_unreadable(path):
        raise HoldoutError(
            f"Expected a ledger file at {path}, but {problem}. Give the path that is in the run's "
            f"URL after sqlite:///."
        )
    return f"sqlite:///{quote(str(path))}"


def ledgers_here(typed: str = "") -> list[str]:
    """List the files in a folder that may be ledgers."""
    folder = Path(typed) if typed.endswith("/") else Path(typed).parent
    files = sorted(folder.glob("*.db")) if folder.is_dir() else []
    return [str(path) for path in files if str(path).startswith(typed)]
