"""One hash for each record of a dataset, by the values it is made of.

A record is the sequence of its numbers and texts. Containers, the names of fields, shapes and
number types do not count, so ``(x, y)``, ``{"x": x, "y": y}`` and a dataclass of the same fields
are one record, and so are float64, float32 and integer forms of the same numbers. Numbers are
compared at the precision of float32: most data is cast to it sooner or later. Half precision loses
more than that: a cast to it makes another record.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from torch_holdout._fingerprints.hashing import (
    UnknownContentError,
    digest,
    plain_bytes,
    plain_header,
    sequence_header,
)
from torch_holdout._shared.tensors import is_plain

HASH_BYTES = 8
_CHUNK_BYTES = 1 << 22
_DEEPEST = 32
Hashes = NDArray[np.uint64]


def record_hash(record: Any) -> bytes:
    """Hash a record by its numbers and texts, in order; dictionaries in the order of their items.

    Example:
        >>> one = (torch.tensor([1.0, 2.0]), 3)
        >>> record_hash(one) == record_hash({"x": np.array([1, 2]), "y": torch.tensor(3.0)})
        True
    """
    values = _Values()
    values.add(record)
    return values.digest()


def read_hashes(dataset: Any, numbers: Sequence[int]) -> Iterator[bytes]:
    """Yield the hashes of the records with these numbers, each read once.

    Rows of a ``TensorDataset``, also behind ``Subset``, are hashed in chunks, with the same result.
    """
    for own, _ in read_records(dataset, numbers, earlier=False):
        yield own


def read_records(
    dataset: Any, numbers: Sequence[int], *, earlier: bool
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield each record's hash and, with ``earlier``, that of version 0.1.0 if it had one."""
    rows = _Rows.of(dataset)
    if rows is not None:
        yield from rows.read(numbers, earlier=earlier)
        return
    for number in numbers:
        record = dataset[int(number)]
        yield record_hash(record), _earlier(record) if earlier else None


def as_array(hashes: bytes | bytearray) -> Hashes:
    """Return the hashes of some records, one after the other, as an array of integers."""
    return np.frombuffer(hashes, dtype=np.uint64)


def _earlier(record: Any) -> bytes | None:
    try:
        return digest(record)
    except UnknownContentError:  # version 0.1.0 refused it
        return None


class _Values:
    """The numbers and texts of one record, in order; neighbouring numbers are one run."""

    def __init__(self) -> None:
        self._hasher = hashlib.blake2b(digest_size=HASH_BYTES)
        self._loose: list[float] = []
        self._run: list[NDArray[np.float32]] = []

    def digest(self) -> bytes:
        self._end_run()
        return self._hasher.digest()

    def add(self, value: Any, depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise UnknownContentError(f"{type(value).__name__} that holds itself")
        if isinstance(value, bool | int | float):
            self._number(value)
        elif (parts := _parts(value)) is not None:
            for part in parts:
                self.add(part, depth + 1)
        elif (array := _array_of(value)) is not None:
            self._array(array, depth)
        else:
            self._token(*_text_of(value))

    def _number(self, value: float) -> None:
        try:
            self._loose.append(float(value))
        except OverflowError:  # an integer beyond every float
            self._token("integer", hex(int(value)).encode())

    def _array(self, array: NDArray[Any], depth: int) -> None:
        kind = array.dtype.kind
        if kind in "biuf":
            self._end_loose()
            self._run.append(_numbers(array).reshape(-1))
        elif kind == "c":
            pairs = np.stack([array.real, array.imag], axis=-1)
            self._token("complex", _numbers(pairs).tobytes())
        elif kind in "OUSmM":
            entries = array.astype(str) if kind in "mM" else array
            for entry in entries.reshape(-1).tolist():
                self.add(entry, depth + 1)
        else:
            raise UnknownContentError(f"{array.dtype} array")

    def _token(self, kind: str, content: bytes) -> None:
        self._end_run()
        self._hasher.update(f"{kind} {len(content)};".encode())
        self._hasher.update(content)

    def _end_loose(self) -> None:
        if self._loose:
            self._run.append(_numbers(np.array(self._loose)))
            self._loose = []

    def _end_run(self) -> None:
        self._end_loose()
        if count := sum(map(len, self._run)):
            self._hasher.update(_run_header(count))
            for numbers in self._run:
                self._hasher.update(numbers.data)
        self._run = []


def _parts(value: Any) -> Sequence[Any] | None:
    """Return what a container holds, in order; None for anything else."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, set | frozenset):
        return sorted(record_hash(part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in fields(value)]
    return None


def _array_of(value: Any) -> NDArray[Any] | None:
    """Return numbers as an array; None for anything else."""
    if isinstance(value, Tensor):
        if is_plain(value):
            return _on_host(value)
        raise UnknownContentError(f"{type(value).__name__} that is not dense")
    if isinstance(value, np.ndarray | np.generic | complex):
        return np.asarray(value)
    return np.asarray(value) if hasattr(value, "__array_interface__") else None


def _text_of(value: Any) -> tuple[str, bytes]:
    """Return the kind and content of text, bytes or None."""
    if isinstance(value, str):
        return "text", value.encode(errors="surrogatepass")
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    if value is None:
        return "none", b""
    raise UnknownContentError(type(value).__name__)


def _run_header(count: int) -> bytes:
    return f"numbers {count};".encode()


def _on_host(tensor: Tensor) -> NDArray[Any]:
    tensor = tensor.detach().as_subclass(Tensor).cpu().resolve_conj().resolve_neg()
    if tensor.is_floating_point() and tensor.dtype.itemsize < 4:  # numpy has no bfloat16
        tensor = tensor.float()
    array: NDArray[Any] = tensor.numpy()
    return array


def _numbers(array: NDArray[Any]) -> NDArray[np.float32]:
    """Return a copy at the precision of float32, with one zero and one NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        if array.dtype.itemsize > 4:  # as Python's own integers: to a double first
            array = array.astype(np.float64)
        numbers = array.astype(np.float32, order="C")
    numbers += np.float32(0)  # -0.0 is 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers


class _Rows:
    """The rows of a ``TensorDataset``, some of them behind ``Subset``."""

    def __init__(self, tensors: tuple[Tensor, ...], chosen: Tensor | None) -> None:
        self._tensors = tensors
        self._chosen = chosen

    @classmethod
    def of(cls, dataset: Any) -> "_Rows | None":
        """Return the rows, or None for any other dataset; subclasses may return other records."""
        chosen: Tensor | None = None
        while getattr(type(dataset), "__getitem__", None) is Subset.__getitem__:
            inner = _indices(dataset.indices)
            if inner is None:
                return None
            chosen = inner if chosen is None else inner[chosen]
            dataset = dataset.dataset
        if type(dataset) is not TensorDataset or not all(map(_is_real, dataset.tensors)):
            return None
        return cls(dataset.tensors, chosen)

    def read(
        self, numbers: Sequence[int], *, earlier: bool
    ) -> Iterator[tuple[bytes, bytes | None]]:
        each = sum(t[0].numel() * max(t.dtype.itemsize, 4) for t in self._tensors)
        step = max(1, _CHUNK_BYTES // each)
        for start in range(0, len(numbers), step):
            asked = torch.as_tensor(numbers[start : start + step], dtype=torch.long)
            rows = asked if self._chosen is None else self._chosen[asked]
            parts = [tensor[rows.to(tensor.device)] for tensor in self._tensors]
            before = _earlier_rows(parts) if earlier else [None] * len(rows)
            yield from zip(_row_hashes(parts), before, strict=True)


def _indices(indices: Any) -> Tensor | None:
    try:
        chosen = torch.as_tensor(indices if isinstance(indices, Tensor) else list(indices))
    except (TypeError, ValueError, RuntimeError):
        return None
    whole = chosen.dim() == 1 and chosen.dtype in (torch.int64, torch.int32) and len(chosen)
    return chosen.long().cpu() if whole else None


def _is_real(tensor: Tensor) -> bool:
    plain = type(tensor) is Tensor and is_plain(tensor) and not tensor.is_complex()
    return plain and len(tensor) > 0 and tensor[0].numel() > 0


def _row_hashes(parts: list[Tensor]) -> list[bytes]:
    columns = [_numbers(_on_host(part)).reshape(len(part), -1) for part in parts]
    matrix = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    count = matrix.shape[1]
    header, view, width = _run_header(count), matrix.reshape(-1).data.cast("B"), 4 * count
    hashes = []
    for start in range(0, len(view), width):
        hasher = hashlib.blake2b(header, digest_size=HASH_BYTES)
        hasher.update(view[start : start + width])
        hashes.append(hasher.digest())
    return hashes


def _earlier_rows(parts: list[Tensor]) -> list[bytes]:
    """Return ``digest(row)`` for each row of the tensors."""
    columns = []
    for part in parts:
        content = memoryview(plain_bytes(part))
        width = len(content) // len(part)
        columns.append((plain_header(part[0], content[:width]), content, width))
    opening = sequence_header(len(parts))
    hashes = []
    for row in range(len(parts[0])):
        hasher = hashlib.sha256(opening)
        for header, content, width in columns:
            hasher.update(header)
            hasher.update(content[row * width : (row + 1) * width])
        hashes.append(hasher.digest())
    return hashes
