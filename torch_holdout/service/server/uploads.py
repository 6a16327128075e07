"""Uploads: parsed header first against a public layout, and kept under their own hash.

Nothing here unpickles, unzips or trusts a size: the header of an ``.npy`` file is compared with the
layout, the rest must have exactly as many bytes as the layout says, and is then looked at in place.
Every refusal depends on the upload and on public facts only, and quotes nothing of the upload.
"""

import csv
import hashlib
import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from torch_holdout._noise.streams import fresh_secret
from torch_holdout._shared.private_files import read_private, write_private
from torch_holdout.service.server.problems import Problem, RefusedError

Upload = Literal["classes", "probabilities", "scores"]
Array = np.ndarray[Any, np.dtype[Any]]
NPY, CSV = "application/x-npy", "text/csv"
LONGEST_HEADER = 1024  # of an npy file
_MAGIC = b"\x93NUMPY"
_FORMATS = {b"\x01\x00": 2, b"\x02\x00": 4}  # the version, and the bytes of the header's length
_HEADER = re.compile(  # as numpy writes it; Python is not asked to read it
    r"\{'descr': '(?P<type>[<|>=]?[a-zA-Z][0-9]{1,3})', 'fortran_order': (?P<order>False|True), "
    r"'shape': \((?P<shape>[0-9]{1,18}(?:, ?[0-9]{1,18})*,?)?\),? ?\} *\n?"
)
_WHOLE = re.compile(r"[0-9]{1,6}", re.ASCII)
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,4})?", re.ASCII)
_LONGEST_NUMBER = 40  # characters of a cell
_INTEGERS = ("|u1", "<u2", "<u4", "|i1", "<i2", "<i4", "<i8")
_FLOATS = ("<f4", "<f8", "<f2")
_SUM_TOLERANCE = 1e-3


@final
@dataclass(frozen=True, kw_only=True)
class Layout:
    """What an upload must be: public, the same for every team.

    Attributes:
        rows: Predictions in an upload, one for each row of the board.
        upload: "classes" [rows], "probabilities" [rows, classes] or "scores" [rows].
        classes: How many classes; None for regression.
        ids: The rows' public names for CSV uploads in any order; None if it has none.

    Example:
        >>> layout = Layout(rows=10_000, upload="classes", classes=10)
        >>> layout.text, layout.dtypes[0], layout.largest
        ('uint8 or int classes of shape [10000]', 'uint8', 81036)
    """

    rows: int
    upload: Upload
    classes: int | None = None
    ids: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        if self.upload == "probabilities":
            return self.rows, self.classes or 0
        return (self.rows,)

    @property
    def types(self) -> tuple[str, ...]:
        """The accepted types as an npy header names them, the preferred one first."""
        if self.upload != "classes":
            return _FLOATS
        largest = (self.classes or 1) - 1
        return tuple(kind for kind in _INTEGERS if largest <= np.iinfo(np.dtype(kind)).max)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The numpy names of the accepted types, the preferred one first."""
        return tuple(np.dtype(kind).name for kind in self.types)

    @property
    def media_types(self) -> tuple[str, ...]:
        """The accepted media types."""
        return (NPY,) if self.ids is None else (NPY, CSV)

    @property
    def columns(self) -> tuple[str, ...]:
        """The header of a CSV file."""
        if self.upload != "probabilities":
            return "id", "prediction"
        return "id", *(f"p{number}" for number in range(self.classes or 0))

    @property
    def largest(self) -> int:
        """The largest body in bytes that can be accepted, of any media type."""
        widest = max(np.dtype(kind).itemsize for kind in self.types)
        npy = 12 + LONGEST_HEADER + widest * self._numbers
        if self.ids is None:
            return npy
        names = sum(2 * len(name.encode()) + 4 for name in self.ids)  # quotes may be doubled
        cells = (_LONGEST_NUMBER + 1) * self._numbers
        return max(npy, names + cells + 16 * len(self.columns))

    @property
    def text(self) -> str:
        """The layout as words, for errors."""
        shape = ", ".join(map(str, self.shape))
        kind = f"{self.dtypes[0]} or int" if self.upload == "classes" else "float32 or float64"
        return f"{kind} {self.upload} of shape [{shape}]"

    @property
    def _numbers(self) -> int:
        return int(np.prod(self.shape, dtype=object))


def parse(body: bytes, media_type: str, layout: Layout) -> Array:
    """Return an upload's predictions in the order of the rows; raise a RefusedError if unusable.

    Classes come as integers, others as floats, of the upload's own type.

    Example:
        >>> stream = io.BytesIO()
        >>> np.save(stream, np.array([1, 0, 2], dtype=np.uint8))
        >>> parse(stream.getvalue(), NPY, Layout(rows=3, upload="classes", classes=3))
        array([1, 0, 2], dtype=uint8)
    """
    if media_type not in layout.media_types:
        expected = " or ".join(layout.media_types)
        raise RefusedError(Problem.MEDIA_TYPE, f"Expected the content type {expected}.")
    if media_type == NPY:
        array = _from_npy(body, layout)
        _require_usable(array, layout)
        return array
    array, numbers = _from_csv(body, layout)
    _require_usable(array, layout)
    return _in_order(array, numbers)


def read_npy(body: bytes, types: tuple[str, ...], shape: tuple[int, ...]) -> Array | None:
    """Return the array of an npy file of one of these types and this shape; None for any other."""
    start = 8 + _FORMATS.get(body[6:8], 0)
    if body[:6] != _MAGIC or start == 8 or len(body) < start:
        return None
    length = int.from_bytes(body[8:start], "little")
    header = body[start : start + length] if length <= LONGEST_HEADER else b""
    found = _HEADER.fullmatch(header.decode("latin-1"))
    if found is None or found["type"] not in types or found["order"] != "False":
        return None
    given = tuple(int(part) for part in (found["shape"] or "").split(",") if part.strip())
    itemsize = np.dtype(found["type"]).itemsize
    numbers = int(np.prod(shape, dtype=object))
    if given != shape or len(body) != start + length + itemsize * numbers:
        return None
    return np.frombuffer(body, dtype=found["type"], offset=start + length).reshape(shape)


def _from_npy(body: bytes, layout: Layout) -> Array:
    array = read_npy(body, layout.types, layout.shape)
    if array is None:
        raise RefusedError(
            Problem.LAYOUT,
            f"Expected {layout.text}, as numpy.save writes a C-contiguous little-endian array, "
            f"and not a byte more or less.",
        )
    return array


def _from_csv(body: bytes, layout: Layout) -> tuple[Array, Array]:
    """Return predictions in the file's order, and the numbers of their rows; -1 for unknown ids."""
    problem = RefusedError(
        Problem.LAYOUT,
        f"Expected CSV in UTF-8 with the header {_header_text(layout.columns)} and {layout.rows} "
        f"rows of {layout.upload} as plain decimal numbers.",
    )
    number_of = {name: number for number, name in enumerate(layout.ids or ())}
    array = np.zeros(layout.shape, dtype=np.int64 if layout.upload == "classes" else np.float64)
    numbers = np.full(layout.rows, -1, dtype=np.int64)
    read = -1  # the header
    try:
        for row in csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True):
            if not _is_expected(row, layout, header=read < 0) or read >= layout.rows:
                raise problem
            if read >= 0:
                array[read] = [float(cell) for cell in row[1:]] if array.ndim > 1 else float(row[1])
                numbers[read] = number_of.get(row[0], -1)
            read += 1
    except (UnicodeDecodeError, csv.Error):
        raise problem from None
    if read != layout.rows:
        raise problem
    return array, numbers


def _is_expected(row: list[str], layout: Layout, *, header: bool) -> bool:
    if header:
        return tuple(row) == layout.columns
    form = _WHOLE if layout.upload == "classes" else _NUMBER
    return len(row) == len(layout.columns) and all(
        len(cell) <= _LONGEST_NUMBER and form.fullmatch(cell) for cell in row[1:]
    )


def _in_order(array: Array, numbers: Array) -> Array:
    if int(numbers.min()) < 0 or len(np.unique(numbers)) != len(numbers):
        raise RefusedError(Problem.IDS, "Expected every id of the board once, and no other.")
    ordered = np.empty_like(array)
    ordered[numbers] = array
    return ordered


def _header_text(columns: tuple[str, ...]) -> str:
    return ",".join(columns) if len(columns) <= 4 else f"{','.join(columns[:2])},...,{columns[-1]}"


def _require_usable(array: Array, layout: Layout) -> None:
    if layout.upload == "classes":
        if int(array.min()) < 0 or int(array.max()) >= (layout.classes or 0):
            raise RefusedError(
                Problem.RANGE, f"Expected classes from 0 to {(layout.classes or 0) - 1}."
            )
        return
    if not np.isfinite(array).all():
        raise RefusedError(Problem.FINITE, f"Expected finite {layout.upload}.")
    if layout.upload == "probabilities" and not _are_probabilities(array):
        raise RefusedError(
            Problem.RANGE,
            "Expected probabilities from 0 to 1 that sum to 1 in each row, within 0.001.",
        )


def _are_probabilities(array: Array) -> bool:
    if float(array.min()) < 0 or float(array.max()) > 1:
        return False
    sums = array.sum(axis=1, dtype=np.float64)
    return float(np.abs(sums - 1).max()) <= _SUM_TOLERANCE


@final
class UploadFolder:
    """Where accepted uploads are kept, each under its SHA-256; 0700, files 0600.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as place:
        ...     folder = UploadFolder(Path(place) / "uploads", longest=10)
        ...     sha = digest(b"content")
        ...     folder.keep(sha, b"content")
        ...     folder.read(sha), folder.read("0" * 64)
        (b'content', None)
    """

    def __init__(self, folder: Path, *, longest: int) -> None:
        self._folder = folder
        self._longest = longest

    def keep(self, sha: str, body: bytes) -> None:
        """Keep a body under its hash: on the disk when this returns."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Under a name of its own first: the same body may come twice at once.
        write_private(self._place(sha), body, draft=f"{fresh_secret(6).hex()}.part")

    def read(self, sha: str) -> bytes | None:
        """Return a body; None if it is not there or no longer what it was."""
        body = read_private(self._place(sha), longest=self._longest)
        return body if body is not None and digest(body) == sha else None

    def has(self, sha: str) -> bool:
        """Whether there is a body under this hash."""
        return self._place(sha).is_file()

    def remove(self, sha: str) -> None:
        """Remove a body."""
        self._place(sha).unlink(missing_ok=True)

    def _place(self, sha: str) -> Path:
        if not is_sha(sha):
            raise RefusedError(Problem.UNKNOWN, "Expected the address of a submission.")
        return self._folder / sha[:2] / sha


def digest(body: bytes) -> str:
    """Return the address of a body."""
    return hashlib.sha256(body).hexdigest()


def is_sha(text: str) -> bool:
    """Whether a text can be the address of a submission.

    Example:
        >>> is_sha(digest(b"")), is_sha("../../etc/passwd")
        (True, False)
    """
    return re.fullmatch(r"[0-9a-f]{64}", text, re.ASCII) is not None
