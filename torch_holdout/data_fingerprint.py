"""Which data a holdout holds, so that renaming an account does not refill it.

An unsalted hash of the data would tell anyone who holds a candidate record set whether it is the
holdout. So the digest stays in memory, sealed, and the ledger keeps only its HMAC under a secret of
that ledger.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol, final

import numpy as np
import torch
from torch import Tensor

from torch_holdout.errors import InvalidArgumentError, SealedValueError


class SizedDataset(Protocol):
    """A dataset with a length and integer indexing."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@final
class DataFingerprint:
    """What ``th.fingerprint`` returns: usable by a holdout, readable by nobody."""

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
        >>> data = torch.utils.data.TensorDataset(torch.arange(6).view(3, 2))
        >>> fingerprint(data)
        <fingerprint of 3 examples>
    """
    size = len(dataset)
    if size < 1:
        raise InvalidArgumentError("Expected at least one example to fingerprint, but got none.")
    examples = sorted(_digest(dataset[index]) for index in range(size))
    return DataFingerprint(hashlib.sha256(b"".join(examples)).digest(), size)


def _digest(example: Any) -> bytes:
    hasher = hashlib.sha256()
    _feed(hasher, example)
    return hasher.digest()


def _feed(hasher: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        hasher.update(f"mapping {len(value)};".encode())
        for key in sorted(value, key=repr):
            _feed(hasher, key)
            _feed(hasher, value[key])
    elif isinstance(value, list | tuple):
        hasher.update(f"sequence {len(value)};".encode())
        for item in value:
            _feed(hasher, item)
    else:
        header, content = _leaf(value)
        hasher.update(f"{header} {len(content)};".encode())
        hasher.update(content)


def _leaf(value: Any) -> tuple[str, bytes]:
    if value is None or isinstance(value, bool | int | float | complex | str):
        return f"scalar {type(value).__name__}", repr(value).encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    if isinstance(value, Tensor):
        flat = value.detach().cpu().reshape(-1).contiguous()
        content = flat.view(torch.uint8).numpy().tobytes()
        return f"array {value.dtype} {tuple(value.shape)}", content
    array = np.asarray(value)  # numpy's own, PIL images and the like
    if array.dtype.hasobject:
        raise InvalidArgumentError(
            f"Expected examples made of tensors, arrays, numbers, text, sequences and mappings, "
            f"but got a {type(value).__name__}. Wrap the dataset so that it returns those."
        )
    return f"array torch.{array.dtype} {array.shape}", np.ascontiguousarray(array).tobytes()
