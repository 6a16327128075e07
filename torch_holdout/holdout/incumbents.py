"""Where the incumbent's values for each example are kept, to pair a challenger's with them. Raw.

They are integer levels, in the dataset's order, under a keyed digest: the ledger's secret, the
account, the statistic, the query and the layout go into it, so a file that was cut, edited or
copied from another account is not taken for the incumbent's. The ledger holds neither the levels
nor a digest of them, which could be guessed.
"""

import contextlib
import hashlib
import hmac
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import torch
from torch import Tensor

from torch_holdout._shared.private_files import read_private, write_private
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.ledger.chains import canonical, public_mark
from torch_holdout.ledger.challenges import query_mark

_DIGEST = hashlib.sha256().digest_size
_SUFFIX = ".levels"
Folder = str | os.PathLike[str] | None


@final
@dataclass(frozen=True)
class Layout:
    """What the levels of a query are, all of it public."""

    statistic: str
    query: str
    test: str
    size: int
    resolution: int

    @property
    def id(self) -> str:
        """The public id of a statistic's query, under which its levels are kept."""
        return query_mark(self.statistic, self.query)

    @property
    def length(self) -> int:
        """How many bytes the levels take."""
        return self.size * torch.empty(0, dtype=self._dtype).element_size()

    def packed(self, levels: Tensor) -> bytes:
        """Return levels as bytes. Raw."""
        return levels.to(self._dtype).numpy().tobytes()

    def unpacked(self, content: bytes) -> Tensor:
        """Return the levels of some bytes. Raw."""
        return torch.frombuffer(bytearray(content), dtype=self._dtype).to(torch.int64)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.int32 if self.resolution < 2**31 else torch.int64

    def text(self) -> bytes:
        """Return all of it, to go into a digest."""
        return canonical(vars(self)).encode()


class Incumbents(ABC):
    """The levels of an account's incumbents; ``keyed`` digests under the ledger's secret."""

    def __init__(self, keyed: Callable[[bytes], bytes]) -> None:
        self._keyed = keyed

    def keep(self, layout: Layout, levels: Tensor) -> None:
        """Keep levels for good, before the ledger may name them the incumbent's."""
        content = layout.packed(levels)
        self._write(layout.id, self._digest(layout, content) + content)

    def read(self, layout: Layout) -> Tensor | None:
        """Return the levels of a query; None if they are lost, damaged or others'. Raw."""
        whole = self._read(layout.id, _DIGEST + layout.length)
        if whole is None or len(whole) != _DIGEST + layout.length:
            return None
        digest, content = whole[:_DIGEST], whole[_DIGEST:]
        if not hmac.compare_digest(digest, self._digest(layout, content)):
            return None
        return layout.unpacked(content)

    @abstractmethod
    def forget(self, query: str) -> None:
        """Remove what is kept for one query, which will never be incumbent again."""

    @abstractmethod
    def forget_all_but(self, queries: Collection[str]) -> None:
        """Remove what a killed process has left; only while no other process can be writing."""

    @abstractmethod
    def end(self) -> None:
        """Remove everything: the account is closed, and nothing is compared any more."""

    @abstractmethod
    def _write(self, name: str, content: bytes) -> None: ...

    @abstractmethod
    def _read(self, name: str, longest: int) -> bytes | None: ...

    def _digest(self, layout: Layout, content: bytes) -> bytes:
        return self._keyed(layout.text() + b" " + content)


@final
class IncumbentsInFolder(Incumbents):
    """One file for each incumbent, mode 0600, in a folder of the account."""

    def __init__(self, keyed: Callable[[bytes], bytes], folder: Path) -> None:
        super().__init__(keyed)
        self._folder = folder

    def forget(self, query: str) -> None:
        """Remove its file."""
        with contextlib.suppress(OSError):
            self._path(query).unlink(missing_ok=True)

    def forget_all_but(self, queries: Collection[str]) -> None:
        """Remove the files of other queries, and unfinished ones."""
        names = {self._path(query).name for query in queries}
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if _SUFFIX in path.suffixes and path.name not in names:
                    path.unlink(missing_ok=True)

    def end(self) -> None:
        """Remove all files, and the folders if nothing else is in them."""
        self.forget_all_but(())
        with contextlib.suppress(OSError):
            self._folder.rmdir()
            self._folder.parent.rmdir()

    def _path(self, query: str) -> Path:
        return self._folder / f"{query}{_SUFFIX}"

    def _write(self, name: str, content: bytes) -> None:
        try:
            write_private(self._path(name), content)
        except OSError as error:
            reason = error.strerror or type(error).__name__
        else:
            return
        raise HoldoutError(
            f"Expected to write a file to {self._folder}, but the file system refused ({reason}). "
            f"Make room there or choose another folder=. Nothing was charged."
        )

    def _read(self, name: str, longest: int) -> bytes | None:
        return read_private(self._path(name), longest=longest)


@final
class IncumbentsInMemory(Incumbents):
    """For a ledger that ends with its process: kept as long as that."""

    _kept: ClassVar[dict[str, dict[str, bytes]]] = {}

    def __init__(self, keyed: Callable[[bytes], bytes], account: str) -> None:
        super().__init__(keyed)
        self._account = account
        self._own = self._kept.setdefault(account, {})

    def forget(self, query: str) -> None:
        """Let go of its levels."""
        self._own.pop(query, None)

    def forget_all_but(self, queries: Collection[str]) -> None:
        """Let go of all others' levels."""
        for query in set(self._own) - set(queries):
            self.forget(query)

    def end(self) -> None:
        """Let go of all levels."""
        self._kept.pop(self._account, None)

    def _write(self, name: str, content: bytes) -> None:
        self._own[name] = content

    def _read(self, name: str, longest: int) -> bytes | None:
        return self._own.get(name)


def incumbents_of(
    address: str, account: str, folder: Folder, keyed: Callable[[bytes], bytes]
) -> Incumbents:
    """Return where an account's incumbents are kept. Nothing is made yet."""
    place = folder_of(address, account, folder)
    if place is None:
        return IncumbentsInMemory(keyed, account)
    return IncumbentsInFolder(keyed, place)


def folder_of(address: str, account: str, folder: Folder) -> Path | None:
    """Return the folder of an account's incumbents; None for memory. Nothing is made yet.

    Next to an SQLite ledger there is one by default. Machines that share a PostgreSQL ledger need a
    folder that all of them see, so it must be given.
    """
    if folder is not None:
        named = isinstance(folder, str | os.PathLike) and os.fspath(folder)
        if not named or not isinstance(named, str) or "\0" in named:
            raise InvalidArgumentError(
                f"Expected `folder` to be the path of a folder, but got {type(folder).__name__}."
            )
        return Path(named) / public_mark(account)
    if address.startswith("memory:"):
        return None
    if not address.startswith("sqlite:///"):
        raise InvalidArgumentError(
            "Expected folder=, because the incumbent's values are kept in a file, and the machines "
            "that share this ledger must all see it. Give a private folder that they share. "
            "Nothing was charged."
        )
    return Path(f"{address.removeprefix('sqlite:///')}.challenges") / public_mark(account)


def forget_incumbents(address: str, account: str) -> None:
    """Remove what is kept for a closed account in its default place."""
    if address.startswith(("memory:", "sqlite:")):
        incumbents_of(address, account, None, bytes).end()
