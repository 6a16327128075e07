"""The fingerprint of a dataset, so that renaming an account does not refill it.

An unsalted hash of the data would tell anyone who holds a candidate record set whether it is the
holdout. So the hashes stay in memory, sealed, and the ledger keeps only their form under a secret
of its own.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeVar, final

import numpy as np
from torch.utils.data import DataLoader, IterableDataset

from torch_holdout._fingerprints.cut import CutRecords, Part
from torch_holdout._fingerprints.hashing import UnknownContentError
from torch_holdout._fingerprints.records import Hashes, as_array, read_records
from torch_holdout._fingerprints.sketch import keyed_hashes, shared
from torch_holdout._shared.checks import require_whole
from torch_holdout._shared.text import counted
from torch_holdout.errors import InvalidArgumentError, SealedValueError

BY_VALUE = "v"  # what a fingerprint in a ledger begins with, unless version 0.1.0 made it
Result = TypeVar("Result")


class SizedDataset(Protocol):
    """A dataset with a length and integer indexing."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@final
class DataFingerprint:
    """Sealed hashes of a dataset: a holdout can use them, nothing shows them."""

    __slots__ = ("_cut", "_digest", "_hashes", "size")

    def __init__(self, digest: bytes | None, hashes: Hashes, cut: CutRecords | None = None) -> None:
        self._cut = cut  # of a part that th.split made
        self._digest = digest  # of version 0.1.0, for the accounts that it made
        self._hashes = hashes
        self.size = len(hashes)

    def keyed(self, key: bytes) -> "KeyedData":
        """Return what a ledger may keep, under the ledger's secret."""
        return KeyedData(
            fingerprint=_by_value(key, self._hashes),
            earlier=None if self._digest is None else _hmac(key, self._digest),
            size=self.size,
            hashes=keyed_hashes(self._hashes, key),
            cut=None if self._cut is None else _keyed_cut(key, self._cut),
        )

    def overlap(self, other: "DataFingerprint") -> "Overlap":
        """Count the records that both datasets have."""
        own, others = np.unique(self._hashes), np.unique(other._hashes)
        return Overlap(len(shared(own, others)), len(own), len(others))

    def __repr__(self) -> str:
        cut = "" if self._cut is None else f": {self._cut.text}"
        return f"<fingerprint of {self.size} examples{cut}>"

    def __copy__(self) -> "DataFingerprint":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "DataFingerprint":
        return self

    def __reduce__(self) -> NoReturn:
        raise SealedValueError(
            "Expected a data fingerprint to stay in this process: its hash identifies the data. "
            "Pickle the ReusableHoldout instead; its copies know the account."
        )


@final
@dataclass(frozen=True)
class KeyedCut:
    """A cut under a ledger's secret: the same whole and records mean the same parts."""

    whole: str = field(repr=False)
    text: str
    records: str = field(repr=False)


@final
class KeyedData:
    """A fingerprint under a ledger's secret; it does not leave the ledger's transaction."""

    __slots__ = ("cut", "earlier", "fingerprint", "hashes", "size")

    def __init__(
        self,
        *,
        fingerprint: str,
        earlier: str | None,
        size: int,
        hashes: Hashes,
        cut: KeyedCut | None = None,
    ) -> None:
        self.fingerprint = fingerprint  # the same for the same records, by value, in any order
        self.earlier = earlier  # the one of version 0.1.0, if it had one for such records
        self.size = size
        self.hashes = hashes
        self.cut = cut

    def __repr__(self) -> str:
        return f"<keyed fingerprint of {self.size} examples>"

    def __reduce__(self) -> NoReturn:
        raise SealedValueError("Expected a keyed fingerprint to stay in its transaction.")


@final
@dataclass(frozen=True)
class Overlap:
    """How many records two datasets have in common. Equal records of one dataset count once.

    Attributes:
        shared: Records that are in both.
        first: Different records of the first dataset.
        second: Different records of the second dataset.

    Example:
        >>> found = Overlap(shared=95, first=100, second=500)
        >>> found.share_of_first, found.share_of_second
        (0.95, 0.19)
        >>> print(found)
        95 records in common: 95 % of the first (100 records), 19 % of the second (500 records)
    """

    shared: int
    first: int
    second: int

    @property
    def share_of_first(self) -> float:
        """The share of the first dataset's records that are in the second."""
        return self.shared / self.first

    @property
    def share_of_second(self) -> float:
        """The share of the second dataset's records that are in the first."""
        return self.shared / self.second

    def __str__(self) -> str:
        first, second = counted(self.first, "record"), counted(self.second, "record")
        return (
            f"{counted(self.shared, 'record')} in common: "
            f"{percent(self.shared, self.first)} of the first ({first}), "
            f"{percent(self.shared, self.second)} of the second ({second})"
        )


def fingerprint(dataset: SizedDataset) -> DataFingerprint:
    """Fingerprint a dataset's examples by value, whatever their order.

    Number types (at the precision of float32), containers, the names of fields and shapes do not
    count: the same data as float64, as numpy arrays or as dictionaries has the same fingerprint.
    Every example is read once through ``dataset[i]``, so pass the dataset without random
    augmentation, and with the preprocessing that the loader reads it with. That of a part from
    ``th.split`` registers the cut with the account, too.

    Example:
        >>> import torch
        >>> data = torch.utils.data.TensorDataset(torch.arange(6).view(3, 2))
        >>> fingerprint(data)
        <fingerprint of 3 examples>
    """
    plain = _without_cut(dataset)
    if not isinstance(dataset, Part):
        return plain
    cut = _known_content(lambda: dataset.records(plain._hashes))
    return DataFingerprint(plain._digest, plain._hashes, cut)


def _without_cut(dataset: SizedDataset) -> DataFingerprint:
    size = checked_size(dataset)
    hashes, earlier = bytearray(), bytearray()

    def read() -> None:
        for own, before in read_records(dataset, range(size), earlier=True):
            hashes.extend(own)
            earlier.extend(before or b"")

    _known_content(read)
    return DataFingerprint(_digest_of_all(earlier, size), as_array(hashes))


def _known_content(read: Callable[[], Result]) -> Result:
    try:
        return read()
    except UnknownContentError as error:
        unknown = str(error)
    raise InvalidArgumentError(
        f"Expected examples made of dense tensors, arrays, numbers, text, sequences, mappings and "
        f"dataclasses, but got a {unknown}. Wrap the dataset so that it returns those."
    )


def overlap(
    first: SizedDataset | DataFingerprint, second: SizedDataset | DataFingerprint
) -> Overlap:
    """Count the records that two datasets share, by value; each is a dataset or its fingerprint.

    Example:
        >>> import torch
        >>> data = torch.utils.data.TensorDataset(torch.randn(100, 3))
        >>> print(overlap(data, torch.utils.data.Subset(data, range(25))))
        25 records in common: 25 % of the first (100 records), 100 % of the second (25 records)
    """
    one, other = (
        given if isinstance(given, DataFingerprint) else _without_cut(given)
        for given in (first, second)
    )
    return one.overlap(other)


def percent(part: int, whole: int) -> str:
    """Format a share; only a whole is 100 %, only nothing is 0 %.

    Example:
        >>> percent(1, 3), percent(9999, 10000), percent(1, 10000), percent(0, 5), percent(5, 5)
        ('33 %', '99.9 %', '0.1 %', '0 %', '100 %')
    """
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 1 or 99 < share < 100:
        return f"{min(max(round(share, 1), 0.1), 99.9):g} %"
    return f"{share:.0f} %"


def _by_value(key: bytes, hashes: Hashes) -> str:
    return (BY_VALUE + _hmac(key, b"by value" + _sorted(hashes)))[:64]


def _keyed_cut(key: bytes, cut: CutRecords) -> KeyedCut:
    whole = np.concatenate(list(cut.parts.values()))
    parts = (f"{name} {len(own)};".encode() + _sorted(own) for name, own in cut.parts.items())
    return KeyedCut(_by_value(key, whole), cut.text, _hmac(key, b"cut" + b"".join(parts))[:32])


def _sorted(hashes: Hashes) -> bytes:
    return np.sort(hashes).astype("<u8").tobytes()


def _hmac(key: bytes, content: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _digest_of_all(earlier: bytearray, size: int) -> bytes | None:
    """Return the digest of version 0.1.0, or None if it refused one of the records."""
    if len(earlier) != size * hashlib.sha256().digest_size:
        return None
    return hashlib.sha256(np.sort(np.frombuffer(earlier, dtype="S32")).tobytes()).digest()


def checked_size(dataset: Any) -> int:
    """Return the length of a dataset; raise unless its records can be read by number."""
    if isinstance(dataset, DataLoader):
        raise InvalidArgumentError(
            "Expected a dataset, but got a DataLoader. Give loader.dataset, whose records can be "
            "read one by one."
        )
    if isinstance(dataset, IterableDataset):
        raise InvalidArgumentError(
            f"Expected a dataset whose records can be read by number, but got the IterableDataset "
            f"{type(dataset).__name__}. Collect its records, e.g. list(dataset)."
        )
    indexed = hasattr(type(dataset), "__getitem__") and not isinstance(dataset, Mapping | str)
    try:
        size = len(dataset) if indexed and isinstance(dataset, Sized) else 0
    except (
        TypeError,
        ValueError,
        OverflowError,
    ):  # a tensor without dimensions, or a class that only inherits __len__
        size = 0
    if size < 1:
        raise InvalidArgumentError(
            f"Expected a dataset with integer indexing and a length of at least one, but got a "
            f"{type(dataset).__name__} without."
        )
    require_whole("len(dataset)", size, 1, 2**40)
    return size
