"""Files that only their owner can read: whole or not there at all, also after a power cut."""

import contextlib
import os
import stat
from pathlib import Path

_OWNER_ONLY, _OWNERS_FOLDER = 0o600, 0o700
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_READS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _FLAGS  # a pipe in its place must not wait


def write_private(path: Path, content: bytes, *, draft: str = "part") -> None:
    """Write a file with mode 0600 under its name once it is on the disk; make its folder (0700).

    Until then its name ends in ``draft``: another one for each writer, where several may write.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_private(Path(folder) / "own" / "levels", b"7")
        ...     read_private(Path(folder) / "own" / "levels", longest=1)
        b'7'
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=_OWNERS_FOLDER)
    unfinished = path.with_name(f"{path.name}.{draft}")
    unfinished.unlink(missing_ok=True)
    try:
        _create(unfinished, content)
        unfinished.replace(path)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    _sync_folder(path.parent)


def create_private(path: Path, content: bytes) -> None:
    """Write a new file with mode 0600; raise FileExistsError, and change nothing, if it is there.

    Of several writers one succeeds. After a power cut the file may be there in part.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     create_private(Path(folder) / "levels", b"7")
        ...     create_private(Path(folder) / "levels", b"8")
        Traceback (most recent call last):
            ...
        FileExistsError: ...
    """
    _create(path, content)
    _sync_folder(path.parent)


def _create(path: Path, content: bytes) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, _OWNER_ONLY)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def read_private(path: Path, *, longest: int) -> bytes | None:
    """Return a file's content, at most one byte more than ``longest``; None if it cannot be read.

    A symbolic link is not followed.

    Example:
        >>> read_private(Path("/no such file"), longest=10) is None
        True
    """
    try:
        with os.fdopen(os.open(path, _READS), "rb") as file:
            return file.read(longest + 1)
    except OSError:
        return None


def why_not_private(found: os.stat_result) -> str:
    """Return why a file is not one that only this user can read; "" if it is.

    Example:
        >>> why_not_private(os.lstat("/"))
        'it is not an ordinary file'
    """
    if not stat.S_ISREG(found.st_mode):
        return "it is not an ordinary file"
    if found.st_mode & 0o077:
        return f"other users may use it (mode {stat.S_IMODE(found.st_mode):o})"
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "" if found.st_nlink == 1 else "it has a second name (a hard link)"


def _sync_folder(folder: Path) -> None:
    """Put a folder's names on the disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
