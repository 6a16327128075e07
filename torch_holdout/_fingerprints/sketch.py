"""A sample of a dataset's records that two datasets choose alike, so that they can be compared.

Every record is hashed under a secret key, and the hashes below a bound are kept. Whether a record
is kept depends on the record and the bound only: of two datasets the same records are kept below
the smaller bound, and a record below the bound that is not in the sketch is not in the data. Equal
records of one dataset count once.

With k kept records a share p of common records is estimated with standard error at most
``sqrt(p (1 - p) / k)``: .7 % at p = 95 %, k = 1,024. Up to 1,024 different records it is exact.
"""

import hashlib
from dataclasses import dataclass, field
from typing import final

import numpy as np

from torch_holdout._fingerprints.records import HASH_BYTES, Hashes

KEPT = 1024
RANGE = 2**62  # of keyed hashes: below every bound that a ledger can store
_STORED = np.dtype(">u8")


def keyed_hashes(hashes: Hashes, key: bytes) -> Hashes:
    """Return the different records' hashes under a key, sorted."""
    keyed = [
        hashlib.blake2b(record, digest_size=8, key=key, person=b"th sketch").digest()
        for record in np.unique(hashes).view(f"V{HASH_BYTES}").tolist()
    ]
    return np.sort(np.frombuffer(b"".join(keyed), dtype=np.uint64) >> np.uint64(2))


@final
@dataclass(frozen=True)
class Sketch:
    """The keyed hashes below a bound.

    Example:
        >>> sketch = Sketch.of(np.arange(5, dtype=np.uint64), size=6)
        >>> sketch, sketch.exact, sketch.distinct, round(sketch.repeats, 3)
        (Sketch(size=6, bound=4611686018427387904), True, 5, 0.167)
    """

    size: int
    bound: int
    hashes: Hashes = field(repr=False)

    @classmethod
    def of(cls, keyed: Hashes, size: int) -> "Sketch":
        """Sketch a dataset of ``size`` records, given the sorted hashes of its different ones."""
        bound = RANGE if len(keyed) <= KEPT else RANGE * KEPT // len(keyed)
        return cls(size, bound, below(keyed, bound))

    @classmethod
    def stored(cls, size: int, bound: int, content: bytes) -> "Sketch":
        """Read what a ledger keeps."""
        return cls(size, bound, np.frombuffer(content, dtype=_STORED).astype(np.uint64))

    def content(self) -> bytes:
        """Return the hashes as a ledger keeps them."""
        return self.hashes.astype(_STORED).tobytes()

    @property
    def exact(self) -> bool:
        """Whether all records are kept."""
        return self.bound == RANGE

    @property
    def distinct(self) -> int:
        """How many different records there are."""
        return len(self.hashes) if self.exact else round(RANGE * KEPT / self.bound)

    @property
    def repeats(self) -> float:
        """The share of records that another one equals."""
        return 1 - self.distinct / self.size

    def compared_with(self, keyed: Hashes) -> "Common":
        """Compare with the sorted hashes of another dataset, or of a part of one."""
        there = below(keyed, self.bound)
        return Common(len(there), len(self.hashes), len(shared(there, self.hashes)), self.bound)


@final
@dataclass(frozen=True)
class Common:
    """How many records below a bound are in the given data, in the sketch, and in both."""

    given: int
    kept: int
    both: int
    bound: int = RANGE

    @property
    def exact(self) -> bool:
        """Whether all records were compared."""
        return self.bound == RANGE

    @property
    def same(self) -> bool:
        """Whether no record differs among those that were compared."""
        return self.both == self.given == self.kept

    @property
    def share_of_given(self) -> float:
        """The share of the given data's records that are in the sketched data."""
        return self.both / self.given if self.given else 0.0

    @property
    def share_of_kept(self) -> float:
        """The share of the sketched data's records that are in the given data."""
        return self.both / self.kept if self.kept else 0.0


def below(keyed: Hashes, bound: int) -> Hashes:
    """Return the sorted hashes below a bound."""
    return keyed[: np.searchsorted(keyed, np.uint64(bound))]


def shared(first: Hashes, second: Hashes) -> Hashes:
    """Return what two sorted arrays without repeats have in common."""
    return np.intersect1d(first, second, assume_unique=True)
