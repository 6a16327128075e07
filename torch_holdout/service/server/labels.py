"""Labels: cut in two files that only their owner can read; one answers, one waits for closing.

What is in a file never leaves this module but through ``LabelPart.values``, which goes to the
door in ``holdout/``. A file begins with a random salt, so that its digest tells nothing of it; the
ledger keeps the digests under a key of its own and refuses other files.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, final

import numpy as np

from torch_holdout._noise.orders import secret_order
from torch_holdout._noise.streams import fresh_secret
from torch_holdout._shared.private_files import create_private, why_not_private
from torch_holdout.errors import HoldoutError, HoldoutMismatchError, SealedValueError
from torch_holdout.service.server.config import (
    PUBLIC_FILE,
    VAULT_FILE,
    BoardConfig,
    StatisticSection,
)
from torch_holdout.service.server.promises import public_rows
from torch_holdout.service.server.statistics import arguments
from torch_holdout.service.server.uploads import Array, read_npy

_FORMAT = b"torch_holdout labels 1\n"
_LONGEST_HEADER = 2_000
_LARGEST = 8_000_000_000  # bytes of a file of labels
_MOST_ROWS = 200_000_000
_READS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@final
@dataclass(frozen=True, repr=False)
class LabelPart:
    """One part of the labels, in memory: it gives values for the door, and is never shown."""

    rows: int  # of the board, both parts together
    size: int  # of this part
    digest: bytes  # of the whole file, under its own salt
    other: bytes  # the digest of the vault's file, in the public part
    _numbers: Array = field(repr=False)
    _target: Array = field(repr=False)

    def values(
        self, statistics: Mapping[str, StatisticSection], predictions: Array
    ) -> dict[str, Any]:
        """Return by statistic what its ``update`` takes, for the predictions of this part's rows.

        Raw: it goes to the door and nowhere else.
        """
        own = predictions[self._numbers]
        return {name: arguments(each, own, self._target) for name, each in statistics.items()}

    def __repr__(self) -> str:
        return f"<labels of {self.size} rows>"

    def __reduce__(self) -> NoReturn:
        raise SealedValueError("Expected labels to stay in the process that read their file.")


def has_parts(config: BoardConfig) -> bool:
    """Whether both parts' files are there; neither is opened."""
    places = [config.folder / name for name in (PUBLIC_FILE, VAULT_FILE)]
    return all(place.is_file() for place in places)


def planned_part(config: BoardConfig, target: Array) -> LabelPart:
    """Return the size of the public part before anything is cut, to check a configuration with."""
    rows = len(target)
    size = public_rows(rows, config.data.public)
    return LabelPart(rows, size, b"", b"", np.empty(0, np.int64), target[:0])


def cut_labels(config: BoardConfig, target: Array) -> None:
    """Cut the labels at random and write both parts; refuse to replace a file that is there."""
    places = [config.folder / name for name in (PUBLIC_FILE, VAULT_FILE)]
    for place in places:
        if place.exists() or place.is_symlink():
            raise _there(place)
    rows = len(target)
    public = public_rows(rows, config.data.public)
    order = secret_order(rows)
    parts = np.sort(order[:public]), np.sort(order[public:])
    vault = _packed(config, rows, parts[1], target, None)
    first = _packed(config, rows, parts[0], target, hashlib.sha256(vault).hexdigest())
    try:
        create_private(places[0], first)
        create_private(places[1], vault)
    except FileExistsError as error:  # of another attempt, meanwhile: parts must not be mixed
        raise _there(Path(error.filename)) from None


def require_cut_from(config: BoardConfig, target: Array) -> None:
    """Raise unless both parts are these labels, cut as the configuration says.

    Files that an attempt left may be those of labels, or of a share, that were wrong.
    """
    places = [config.folder / name for name in (PUBLIC_FILE, VAULT_FILE)]
    public, vault = parts = [read_part(config, place) for place in places]
    rows = len(target)
    numbers = np.sort(np.concatenate([part._numbers for part in parts]))
    fits = (
        public.other == vault.digest
        and public.size == public_rows(rows, config.data.public)
        and np.array_equal(numbers, np.arange(rows))
        and all(np.array_equal(part._target, target[part._numbers]) for part in parts)
    )
    if not fits:
        raise HoldoutError(
            f"Expected {PUBLIC_FILE} and {VAULT_FILE} to be cut from {config.data.source.name} as "
            f"board.toml says, but an attempt before this one left others. Remove both if they "
            f"belong to no board, and run `board init` again; nothing was changed."
        )


def read_part(config: BoardConfig, path: Path) -> LabelPart:
    """Read a part's file; refuse a link, a file that others may read, and another board's."""
    content = _private_content(path)
    try:
        return _unpacked(config, path, content)
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        pass
    raise HoldoutError(f"Expected a part of the labels as `board init` wrote it at {path.name}.")


def read_vault(config: BoardConfig, path: Path, public: LabelPart) -> LabelPart:
    """Read the vault of a closed board; refuse one that the public part does not know."""
    again = "The board is closed; close it again with the right file."
    try:
        vault = read_part(config, path)
    except HoldoutError as error:
        refusal = type(error)(f"{error} {again}")
    else:
        if vault.digest == public.other:
            return vault
        refusal = HoldoutMismatchError(
            f"Expected the vault that belongs to this board's {PUBLIC_FILE}, but {path.name} is "
            f"another one. {again}"
        )
    raise refusal


def read_source(config: BoardConfig) -> Array:
    """Read the host's own file of labels."""
    path = config.path(config.data.source)
    content = _private_content(path)
    rows = _rows_of(content)
    kinds = ("<f8",) if config.data.classes is None else ("<i8",)
    target = read_npy(content, kinds, (rows,)) if 2 <= rows <= _MOST_ROWS else None
    if target is None:
        kind = np.dtype(kinds[0]).name
        raise HoldoutError(
            f"Expected {path.name} to be an .npy file of {kind} of shape [n], with at least 2 "
            f"rows. Write it with numpy.save({path.name!r}, values.astype({kind!r}))."
        )
    classes = config.data.classes
    usable = np.isfinite(target).all() if classes is None else _within(target, classes)
    if not usable:
        expected = "finite values" if classes is None else f"classes from 0 to {classes - 1}"
        raise HoldoutError(f"Expected {expected} in {path.name}.")
    return target


def _there(place: Path) -> HoldoutError:
    return HoldoutError(
        f"Expected no {place.name} next to board.toml, but there is one. Labels are cut once; "
        f"nothing was changed. Remove it if it belongs to no board."
    )


def _within(target: Array, classes: int) -> bool:
    return int(target.min()) >= 0 and int(target.max()) < classes


def _rows_of(content: bytes) -> int:
    """Return how many numbers of eight bytes follow an npy file's header of version 1."""
    start = 10 + int.from_bytes(content[8:10], "little")
    return max(0, len(content) - start) // 8


def _packed(
    config: BoardConfig, rows: int, numbers: Array, target: Array, vault: str | None
) -> bytes:
    own = target[numbers]
    header = {
        "board": config.board.name,
        "part": "vault" if vault is None else "public",
        "rows": rows,
        "size": len(numbers),
        "type": own.dtype.str,
        "vault": vault,
        "salt": fresh_secret(32).hex(),
    }
    text = json.dumps(header).encode() + b"\n"
    return _FORMAT + text + numbers.astype("<i8").tobytes() + own.tobytes()


def _unpacked(config: BoardConfig, path: Path, content: bytes) -> LabelPart:
    if not content.startswith(_FORMAT):
        raise ValueError
    end = content.index(b"\n", len(_FORMAT), len(_FORMAT) + _LONGEST_HEADER)
    header = json.loads(content[len(_FORMAT) : end])
    if header["board"] != config.board.name:
        raise HoldoutMismatchError(
            f"Expected the labels of the board {config.board.name!r} at {path.name}, but they are "
            f"another board's."
        )
    size, kind = int(header["size"]), str(header["type"])
    start, middle = end + 1, end + 1 + 8 * size
    if kind not in ("<i8", "<f8") or len(content) != middle + 8 * size:
        raise ValueError
    return LabelPart(
        rows=int(header["rows"]),
        size=size,
        digest=hashlib.sha256(content).digest(),
        other=bytes.fromhex(header["vault"] or ""),
        _numbers=np.frombuffer(content, "<i8", size, start),
        _target=np.frombuffer(content, kind, size, middle).copy(),  # torch wants to own it
    )


def _private_content(path: Path) -> bytes:
    """Read a file that only this user can read; the checks are of the file that is opened."""
    problem = ""
    try:
        with os.fdopen(os.open(path, _READS), "rb") as file:
            found = os.fstat(file.fileno())
            problem = why_not_private(found)
            if found.st_size > _LARGEST:
                problem = problem or "it is too large"
            if not problem:
                return file.read()
    except OSError as error:
        problem = f"it could not be opened as a plain file ({error.strerror})"
    raise HoldoutError(
        f"Expected {path.name} to be a file that only this user can read, but {problem}. Make it "
        f"so (chmod 600, no links); nothing was read."
    )
