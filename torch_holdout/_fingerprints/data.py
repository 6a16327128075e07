"""The fingerprint of a dataset, so that renaming an account does not refill it.

An unsalted hash of the data would tell anyone who holds a candidate record set whether it is the
holdout. So the digest stays in memory, sealed, and the ledger keeps only its HMAC under a secret of
that ledger.
"""

import hashlib
import hmac
from collections.abc import Sized
from typing import Any, NoReturn, Protocol, final

from torch_holdout._fingerprints.hashing import UnknownContentError, digest
from torch_holdout.errors import InvalidArgumentError, SealedValueError


class SizedDataset(Protocol):
    """A dataset with a length and integer indexing."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@final
class DataFingerprint:
    """A sealed hash of a dataset: a holdout can use it, nothing shows it."""

    __slots__ = ("_digest", "size")

    def __init__(self, digest: bytes, size: int) -> None:
        self._digest = digest
        self.size = size

    def keyed(self, key: bytes) -> str:
        """Return the HMAC under a ledger's secret, the only form that is stored."""
        return hmac.new(key, self._digest, hashlib.sha256).hexdigest()

    def __repr__(self) -> str:
        return f"<fingerprint of {self.size} examples>"

    def __copy__(self) -> "DataFingerprint":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "DataFingerprint":
        return self

    def __reduce__(self) -> NoReturn:
        raise SealedValueError(
            "Expected a data fingerprint to stay in this process: its hash identifies the data. "
            "Pickle the ReusableHoldout instead; its copies know the account."
        )


def fingerprint(dataset: SizedDataset) -> DataFingerprint:
    """Fingerprint a dataset's examples, whatever their order.

    Every example is read once through ``dataset[i]``, so pass the dataset without random
    augmentation.

    Example:
        >>> import torch
        >>> data = torch.utils.data.TensorDataset(torch.arange(6).view(3, 2))
        >>> fingerprint(data)
        <fingerprint of 3 examples>
    """
    if not isinstance(dataset, Sized) or len(dataset) < 1:
        raise InvalidArgumentError(
            f"Expected a dataset with a length of at least one, but got a "
            f"{type(dataset).__name__} without."
        )
    size = len(dataset)
    try:
        examples = sorted(digest(dataset[index]) for index in range(size))
    except UnknownContentError as error:
        unknown = str(error)
    else:
        return DataFingerprint(hashlib.sha256(b"".join(examples)).digest(), size)
    raise InvalidArgumentError(
        f"Expected examples made of dense tensors, arrays, numbers, text, sequences and mappings, "
        f"but got a {unknown}. Wrap the dataset so that it returns those."
    )
