"""The parts of a set of records: a pure function of each record's key and a seed."""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from torch_holdout._fingerprints.hashing import (
    UnknownContentError,
    describe_function,
    digest,
    qualified_name,
)
from torch_holdout._shared.checks import (
    require_choice,
    require_instance,
    require_length,
    require_whole,
)
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.neighbours import Neighbours, Relation, Unit

Key = int | str | bytes
Likeness = Literal["same", "by name", "another function", "other"]
_MOST_RECORDS = 2**33  # beyond, their hashes fit in no memory
_MASK = 2**64 - 1
_PICKLED = "_code_as_pickled"


@final
@dataclass(frozen=True, kw_only=True)
class Partition:
    """Cut a set of records into disjoint parts, one for each member of an ensemble.

    A record's part depends on its key and the seed only: not on the order of the records, on the
    other records, on the epoch or on the process.

    Args:
        num_parts: How many parts.
        key: ``"index"`` (the position in the dataset: their number is then public), ``"content"``
            (equal records go together), or a function of a record that returns its id, or its
            user's: an ``int``, ``str`` or ``bytes``.
        seed: Decides the cut. Public.
        relation: Which data sets are neighbours. By index only ``"replace-one"``: removing a
            record would shift the index of all that follow. Otherwise ``"add-remove"``, or
            ``"replace-one"``, under which two members change: one loses a record, one gets another.
        unit: ``"record"``, or ``"user"`` if the key is a user's.
        balanced: Make the parts equally large; by index only.

    Example:
        >>> parts = Partition(num_parts=3, key="index", seed=7)
        >>> parts.part_of(range(6))
        tensor([0, 0, 1, 1, 0, 2])
        >>> print(Partition(num_parts=50, key=lambda record: record["user"], seed=7, unit="user"))
        50 parts by <lambda>, seed 7; neighbours: adding or removing one user (one member changes)
    """

    num_parts: int
    key: Literal["index", "content"] | Callable[[Any], Key] = "index"
    seed: int
    relation: Relation | None = None
    unit: Unit = "record"
    balanced: bool = False

    def __post_init__(self) -> None:
        require_whole("num_parts", self.num_parts, 1, 2**20)
        require_whole("seed", self.seed, 0, 2**63 - 1)
        if not callable(self.key):
            require_choice("key", self.key, ("index", "content"))
        require_instance("balanced", self.balanced, bool)
        if self.relation is not None:
            require_choice("relation", self.relation, ("replace-one", "add-remove"))
        require_choice("unit", self.unit, ("record", "user"))
        self._require_consistent()

    @property
    def neighbours(self) -> Neighbours:
        """The protected change of the records, and how many members it changes."""
        relation = self.relation or ("replace-one" if self.key == "index" else "add-remove")
        moves = self.key != "index" and relation == "replace-one"
        return Neighbours(relation=relation, unit=self.unit, members_changed=1 + moves)

    def part_of(self, keys: Iterable[Key] | Tensor) -> Tensor:
        """Return the part of each key, as int64.

        Example:
            >>> Partition(num_parts=4, key=str, seed=1).part_of(["ann", "bob", b"ann", 7])
            tensor([0, 2, 1, 2])
        """
        if self.balanced:
            raise InvalidArgumentError(
                "Expected parts that depend on the key alone, but balanced parts depend on the "
                "number of records. Use assign(dataset)."
            )
        return torch.from_numpy((self._hashes(keys) % np.uint64(self.num_parts)).astype(np.int64))

    def assign(self, dataset: Any, keys: Iterable[Key] | Tensor | None = None) -> list[Tensor]:
        """Return the ascending dataset indices of each part.

        Args:
            dataset: Anything with a length and items. Its records are read only for their keys.
            keys: The keys of all records, if the key is a function: then no record is read.

        Example:
            >>> Partition(num_parts=2, seed=0, balanced=True).assign(range(5))
            [tensor([0, 1, 2]), tensor([3, 4])]
        """
        size = require_length("dataset", dataset)
        require_whole("len(dataset)", size, 0, _MOST_RECORDS)
        if keys is not None and not callable(self.key):
            raise InvalidArgumentError(
                f"Expected no `keys` for a partition by {self.key}, which finds them itself. Drop "
                f"them, or pass the function they come from as `key`."
            )
        if self.key == "index":
            return self._by_index(size)
        hashes = self._hashes(self._keys(dataset) if keys is None else keys)
        if len(hashes) != size:
            raise InvalidArgumentError(
                "Expected one key for each record of the dataset, but got another number."
            )
        return _split(hashes % np.uint64(self.num_parts), self.num_parts)

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint stores to know these parts again.

        A key function is known by its code, its defaults and its closure: two functions of one name
        put a record into two parts. It stands under ``code``, with the version of Python, whose
        bytecode it is. What the function reads from its module's globals is not seen.
        """
        facts = {
            "num_parts": int(self.num_parts),
            "key": self._key_name,
            "seed": int(self.seed),
            "balanced": self.balanced,
            "neighbours": self.neighbours.identity(),
        }
        return {**facts, "code": self._key_code} if callable(self.key) else facts

    def compare(self, stored: object) -> Likeness:
        """Compare with a stored identity; its key function may be another one of the same name.

        ``"by name"``: alike as far as can be told. Version 0.1.0 stored no code, and the code of
        another version of Python is another.

        Example:
            >>> parts = Partition(num_parts=3, key=lambda record: record["user"], seed=7)
            >>> other = Partition(num_parts=3, key=lambda record: record["visit"], seed=7)
            >>> parts.compare(parts.identity()), parts.compare(other.identity())
            ('same', 'another function')
        """
        own = self.identity()
        if not isinstance(stored, dict):
            return "other"
        if "code" not in own:
            return "same" if stored == own else "other"
        code, mine = stored.get("code"), own["code"]
        if {**stored, "code": mine} != own:
            return "other"
        if not isinstance(code, dict) or code.get("python") != mine["python"]:
            return "by name"
        if None in (code.get("digest"), mine["digest"]):
            return "by name"
        return "same" if code == mine else "another function"

    def __str__(self) -> str:
        parts = "equal parts" if self.balanced else "parts"
        cut = f"{self.num_parts} {parts} by {self._key_name}, seed {self.seed}"
        return f"{cut}; neighbours: {self.neighbours}"

    def __getstate__(self) -> dict[str, Any]:
        # A pickle names a function; by the time it is read, other code may have that name.
        return {**self.__dict__, _PICKLED: _code_of(self.key)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: state[name] for name in state if name != _PICKLED})
        pickled, now = state.get(_PICKLED), _code_of(self.key)  # version 0.1.0 pickled none
        if pickled is None or pickled["python"] != now["python"]:
            return
        if None not in (pickled["digest"], now["digest"]) and pickled != now:
            raise InvalidArgumentError(
                f"Expected the key function {self._key_name} as it was when this partition was "
                f"pickled, but its code, defaults or closure are others: a record would be in two "
                f"members. Restore the function, or make a new Partition and train anew."
            )

    @property
    def _key_name(self) -> str:
        return qualified_name(self.key) if callable(self.key) else self.key

    @cached_property
    def _key_code(self) -> dict[str, str | None]:
        # Once: a closure may keep counts or a cache of its own.
        return _code_of(self.key)

    def _require_consistent(self) -> None:
        if self.key == "index" and self.relation == "add-remove":
            raise InvalidArgumentError(
                'Expected relation "replace-one" for a partition by index, but got "add-remove": '
                "removing one record shifts the index of all that follow, and so changes every "
                'member. Pass key="content" or a function that returns a record\'s id.'
            )
        if self.unit == "user" and not callable(self.key):
            raise InvalidArgumentError(
                f'Expected `key` to be a function of a record for unit "user", but got '
                f"{self.key!r}. Pass a function that returns the record's user."
            )
        if self.balanced and self.key != "index":
            raise InvalidArgumentError(
                "Expected balanced parts only by index, but the key is another: one record more "
                'would move all others. Drop `balanced`, or pass key="index".'
            )

    def _by_index(self, size: int) -> list[Tensor]:
        if size < self.num_parts:
            raise InvalidArgumentError(
                f"Expected at least as many records as parts, but got {size} records for "
                f"{self.num_parts} parts. Use fewer parts."
            )
        hashes = self._hashes(np.arange(size, dtype=np.uint64))
        if self.balanced:
            rank = np.empty(size, dtype=np.uint64)
            rank[np.argsort(hashes, kind="stable")] = np.arange(size, dtype=np.uint64)
            hashes = rank
        parts = _split(hashes % np.uint64(self.num_parts), self.num_parts)
        empty = sum(len(part) == 0 for part in parts)
        if empty:
            raise InvalidArgumentError(
                f"Expected records in every part, but {empty} of {self.num_parts} parts of {size} "
                f"records are empty. Use fewer parts, or balanced=True."
            )
        return parts

    def _keys(self, dataset: Any) -> Iterable[Key]:
        key = self.key if callable(self.key) else _content
        return [key(dataset[index]) for index in range(len(dataset))]

    def _hashes(self, keys: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return _splitmix64(_words(keys) ^ _splitmix64(np.array([self.seed], dtype=np.uint64)))


def _code_of(key: Any) -> dict[str, str | None]:
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return {"digest": _code_digest(key) if callable(key) else None, "python": python}


def _code_digest(key: Any) -> str | None:
    """Hash a key function; None if its closure cannot be read, as before its names are bound."""
    parts = [key]
    if isinstance(key, FunctionType):  # alike in a script and in a module that imports it
        copied = FunctionType(key.__code__, {}, key.__name__, key.__defaults__, key.__closure__)
        copied.__kwdefaults__, copied.__module__ = key.__kwdefaults__, ""
        copied.__qualname__ = key.__qualname__
        parts = [copied]
    elif isinstance(call := inspect.getattr_static(type(key), "__call__", None), FunctionType):
        parts = [key, call]
    try:
        return digest([describe_function(part) for part in parts]).hex()
    except ValueError:
        return None


def _splitmix64(
    words: np.ndarray[Any, np.dtype[np.uint64]],
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Mix 64-bit words in place (Steele, Lea and Flood, 2014)."""
    words += np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words


def _words(keys: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return a fresh array of 64-bit words, one for each key."""
    if isinstance(keys, Tensor):
        keys = _on_host(keys)
    if isinstance(keys, range):
        require_whole("len(keys)", len(keys), 0, _MOST_RECORDS)
        keys = np.arange(keys.start, keys.stop, keys.step, dtype=np.int64)
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "iu":
        if keys.dtype.kind == "i":
            keys = keys.astype(np.int64).view(np.uint64)
        return np.array(keys, dtype=np.uint64).reshape(-1)
    if not isinstance(keys, Iterable) or (isinstance(keys, np.ndarray) and keys.ndim == 0):
        raise InvalidArgumentError(f"Expected `keys` to be a list, but got {type(keys).__name__}.")
    return np.array([_word(key) for key in keys], dtype=np.uint64)


def _on_host(keys: Tensor) -> Any:
    try:
        return keys.detach().cpu().numpy()
    except (TypeError, RuntimeError):  # sparse, nested, quantised, meta
        pass
    raise InvalidArgumentError(
        f"Expected `keys` to be a plain tensor, but got {keys.dtype}, {keys.layout}."
    )


def _word(key: object) -> int:
    if isinstance(key, np.integer | Tensor):
        key = key.item()
    if isinstance(key, int) and not isinstance(key, bool) and -(2**63) <= key <= _MASK:
        return key & _MASK
    if isinstance(key, bytes):
        tagged = b"bytes " + key
    elif isinstance(key, str):
        tagged = b"text " + key.encode(errors="surrogatepass")
    else:
        raise InvalidArgumentError(
            f"Expected every key to be a whole number of 64 bits, text or bytes, but got one of "
            f"type {type(key).__name__}. Let the key function return str(...) of it."
        )
    return int.from_bytes(hashlib.blake2b(tagged, digest_size=8).digest(), "little")


def _content(record: object) -> bytes:
    try:
        return digest(record)
    except UnknownContentError as error:
        kind = str(error)
    raise InvalidArgumentError(
        f"Expected records of numbers, text, tensors, sequences and mappings, but got one with a "
        f"{kind}. Pass a function that returns a record's id as `key`."
    )


def _split(parts: Any, num_parts: int) -> list[Tensor]:
    order = torch.from_numpy(np.argsort(parts, kind="stable"))
    counts: list[int] = np.bincount(parts.astype(np.int64), minlength=num_parts).tolist()
    return list(torch.split(order, counts))
