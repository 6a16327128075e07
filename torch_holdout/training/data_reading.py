"""Reading the records of a loader's dataset to compare them, without disturbing anything."""

import copy
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

from torch_holdout._fingerprints.hashing import UnknownContentError
from torch_holdout._fingerprints.records import Hashes, as_array, read_hashes
from torch_holdout._noise.generators import lent_generators

RECORDS = 20_000
SECONDS = 2.0
Numbers = NDArray[np.int64]
_READ_TWICE = 8
_READ_AGAIN = 64  # before anything is refused


class UnreadableDataError(Exception):
    """Raised with the reason why a dataset cannot be compared; never the records' content."""


@final
@dataclass(frozen=True)
class Reading:
    """The hashes of the records that were read, spread over the dataset."""

    dataset: Any = field(repr=False)
    numbers: list[int] = field(repr=False)
    hashes: Hashes = field(repr=False)
    total: int

    @property
    def whole(self) -> bool:
        """Whether every record was read."""
        return len(self.hashes) == self.total

    def require_repeatable(self, records: int = _READ_AGAIN) -> None:
        """Raise ``UnreadableDataError`` if records are not the same when they are read again."""
        again = _read(
            self.dataset, self.numbers[: min(records, len(self.hashes))], "again", math.inf
        )
        if not np.array_equal(again, self.hashes[: len(again)]):
            raise UnreadableDataError(
                "its records differ from one reading to the next; a fingerprint needs the dataset "
                "without random augmentation"
            )


def read(dataset: Any) -> Reading:
    """Hash at most 20,000 records in at most 2 seconds, or raise ``UnreadableDataError``.

    The global generators are put back, and a dataset that opens its files when it is first read is
    read through a shallow copy, so that worker processes still open their own.
    """
    if isinstance(dataset, IterableDataset) or not hasattr(type(dataset), "__getitem__"):
        raise UnreadableDataError("its records cannot be read by number")
    try:
        total = len(dataset)
    except Exception as error:  # whatever a dataset does without a length
        raise UnreadableDataError(f"it has no length ({type(error).__name__})") from None
    if total < 1:
        raise UnreadableDataError("it is empty")
    apart = _apart(dataset)
    numbers = spread(total, min(total, RECORDS))
    reading = Reading(apart, numbers, _read(apart, numbers, "once", SECONDS), total)
    reading.require_repeatable(_READ_TWICE)
    return reading


def spread(total: int, wanted: int) -> list[int]:
    """Return numbers below ``total``, all different; the first of them are spread over all.

    Example:
        >>> spread(10, 10)
        [0, 7, 4, 1, 8, 5, 2, 9, 6, 3]
    """
    step = max(1, round(total * (math.sqrt(5) - 1) / 2))
    while math.gcd(step, total) > 1:
        step += 1
    return [number * step % total for number in range(wanted)]


def common_indices(first: Any, second: Any) -> int | None:
    """Count the records that two datasets take from one by the same number.

    None if there are none, and other datasets behind them, so that nothing is known.
    """
    ours, theirs = origins(first), origins(second)
    both = ours.keys() & theirs.keys()
    shared = sum(len(np.intersect1d(ours[base], theirs[base])) for base in both)
    return shared if shared or ours.keys() == theirs.keys() else None


def origins(dataset: Any) -> dict[int, Numbers]:
    """Return what is behind subsets and concatenations: numbers by the id of a dataset."""
    known: dict[int, Numbers] = {}
    for base, numbers in _parts(dataset, np.arange(len(dataset))):
        if len(numbers):
            known[base] = np.concatenate([known.get(base, numbers[:0]), numbers])
    return known


def _read(dataset: Any, numbers: list[int], occasion: str, seconds: float) -> Hashes:
    end = time.monotonic() + seconds
    hashes = bytearray()
    with lent_generators("data check", occasion), _told_apart():
        for own in islice(read_hashes(dataset, numbers), len(numbers)):
            hashes += own
            if time.monotonic() > end:
                break
    return as_array(bytes(hashes))


@contextmanager
def _told_apart() -> Iterator[None]:
    """Turn errors of the dataset into a reason: their texts may hold its records."""
    try:
        yield
    except UnknownContentError as error:
        reason = f"its records hold a {error}, which has no canonical value"
    except Exception as error:
        reason = f"reading a record raised {type(error).__name__}"
    else:
        return
    raise UnreadableDataError(reason)


def _apart(dataset: Any) -> Any:
    """Return a copy that shares the data, if that has no side effects."""
    if not isinstance(dataset, Dataset) or hasattr(dataset, "__del__"):
        return dataset
    try:
        twin = copy.copy(dataset)
        if isinstance(inner := vars(twin).get("dataset"), Dataset):
            vars(twin)["dataset"] = _apart(inner)
    except Exception:  # it cannot be copied
        return dataset
    return twin


def _parts(dataset: Any, chosen: Numbers) -> Iterator[tuple[int, Numbers]]:
    chosen = np.where(chosen < 0, chosen + len(dataset), chosen)
    if isinstance(dataset, Subset):
        yield from _parts(dataset.dataset, np.asarray(dataset.indices, dtype=np.int64)[chosen])
    elif isinstance(dataset, ConcatDataset):
        start = 0
        for inner, end in zip(dataset.datasets, dataset.cumulative_sizes, strict=True):
            yield from _parts(inner, chosen[(start <= chosen) & (chosen < end)] - start)
            start = end
    else:
        yield id(dataset), chosen
