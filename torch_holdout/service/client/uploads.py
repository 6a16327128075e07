"""Predictions as one sequence of bytes: the same predictions are the same submission."""

import csv
import hashlib
import io
import os
import tokenize
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from torch_holdout._shared.files import why_unreadable
from torch_holdout._shared.tensors import is_plain
from torch_holdout.errors import BoardRefusedError
from torch_holdout.service.client.answers import BoardStatus
from torch_holdout.statistics.arrays import as_tensor

NPY, CSV = "application/x-npy", "text/csv"
Array = np.ndarray[Any, np.dtype[Any]]
_LARGEST = 1 << 30  # bytes that are read of a file
_SUM_TOLERANCE = 1e-3  # of a row of probabilities, as boards allow it
_WHOLE = "biu"
_UNREADABLE = (  # what numpy raises of a header that it cannot read
    *(ValueError, EOFError, OSError, TypeError, SyntaxError, OverflowError, RecursionError),
    *(MemoryError, tokenize.TokenError),
)


@final
@dataclass(frozen=True)
class Upload:
    """What is sent: a body, its SHA-256, which is its address, and its type."""

    body: bytes = field(repr=False)
    media_type: str = NPY

    @property
    def sha(self) -> str:
        """The address: the content itself."""
        return hashlib.sha256(self.body).hexdigest()


def upload_of(predictions: Any, board: BoardStatus) -> Upload:
    """Return predictions as a board takes them; raise a BoardRefusedError if it would refuse them.

    Args:
        predictions: An array, a tensor, a list, or the path of an ``.npy`` file, or of a ``.csv``
            file for a board whose rows have ids.
        board: Its public facts.
    """
    if isinstance(predictions, str | os.PathLike):
        return _from_file(Path(predictions), board)
    return Upload(npy(canonical(_as_array(predictions), board)))


def canonical(array: Array, board: BoardStatus) -> Array:
    """Return predictions in the one type and layout that is sent.

    The smallest unsigned integers that hold the classes, or float32; C order, little-endian.
    """
    columns = (board.classes,) if board.upload == "probabilities" else ()
    if array.shape != (board.rows, *columns):
        hint = ""
        if board.upload == "classes" and array.shape == (board.rows, board.classes):
            hint = " Take the class of each row, scores.argmax(1)."
        raise _refused(
            f"{board.upload} of shape {[board.rows, *columns]}",
            f"shape {list(array.shape)}",
            "layout",
            hint,
        )
    if board.upload == "classes":
        return _classes(array, board.classes or 0)
    if array.dtype.kind not in f"{_WHOLE}f":
        raise _refused(board.upload, f"type {array.dtype.name}", "layout")
    with np.errstate(over="ignore"):  # what float32 cannot hold is not finite
        floats = np.ascontiguousarray(array, dtype="<f4")
    if not np.isfinite(floats).all():
        raise _refused(f"finite {board.upload}", "some that are not", "finite")
    if board.upload == "probabilities" and not are_probabilities(floats):
        raise _refused(
            "probabilities from 0 to 1 that sum to 1 in each row, within 0.001",
            "others",
            "range",
            " Take scores.softmax(1).",
        )
    return floats


def are_probabilities(rows: Array) -> bool:
    """Whether every row lies in [0, 1] and sums to 1, as far as boards allow.

    Example:
        >>> are_probabilities(np.array([[0.25, 0.75]])), are_probabilities(np.array([[0.0, 0.0]]))
        (True, False)
    """
    if not rows.size or float(rows.min()) < 0 or float(rows.max()) > 1:
        return False
    sums = rows.sum(axis=1, dtype=np.float64)
    return float(np.abs(sums - 1).max()) <= _SUM_TOLERANCE


def class_type(classes: int) -> str:
    """Return the smallest unsigned type that holds the classes, as an npy header names it.

    Example:
        >>> class_type(10), class_type(257)
        ('|u1', '<u2')
    """
    return next(kind for kind in ("|u1", "<u2", "<u4") if classes - 1 <= np.iinfo(kind).max)


def npy(array: Array) -> bytes:
    """Write an array as an npy file of version 1, in one way only.

    ``numpy.save`` pads its header differently from version to version, and another byte would be
    another submission.

    Example:
        >>> np.load(io.BytesIO(npy(np.array([1, 0, 2], dtype=np.uint8))))
        array([1, 0, 2], dtype=uint8)
    """
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    padding = -(10 + len(text) + 1) % 64
    header = f"{text}{' ' * padding}\n".encode("latin-1")
    length = len(header).to_bytes(2, "little")
    return b"\x93NUMPY\x01\x00" + length + header + np.ascontiguousarray(array).tobytes()


def _classes(array: Array, classes: int) -> Array:
    if array.dtype.kind not in _WHOLE:
        raise _refused("classes as whole numbers", f"type {array.dtype.name}", "layout")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < classes:
        raise _refused(f"classes from 0 to {classes - 1}", "others", "range")
    return np.ascontiguousarray(array, dtype=class_type(classes))


def _as_array(predictions: Any) -> Array:
    if isinstance(predictions, np.ma.MaskedArray):
        raise _refused("a prediction for each row", "an array with a mask", "layout")
    if isinstance(predictions, np.ndarray) and predictions.dtype.kind in f"{_WHOLE}f":
        return predictions
    tensor: Tensor = as_tensor(predictions).detach()
    if tensor.is_nested or not is_plain(tensor):
        raise _refused("one dense tensor", "one of another layout", "layout")
    tensor = tensor.cpu().resolve_conj().resolve_neg()
    narrow = tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64)
    array: Array = (tensor.float() if narrow else tensor).numpy()
    return array


def _from_file(path: Path, board: BoardStatus) -> Upload:
    if problem := why_unreadable(path):
        raise BoardRefusedError(f"Expected predictions at {path}, but {problem}.", "layout")
    if path.stat().st_size > _LARGEST:
        raise BoardRefusedError(f"Expected predictions below 1 GB at {path}.", "size")
    if path.suffix.lower() == ".csv":
        body = path.read_bytes()
        _require_csv(body, board)
        return Upload(body, CSV)
    try:  # of a file of one array only: nothing is unpickled or unzipped, and nothing read yet
        array = np.lib.format.open_memmap(path, mode="r")
    except _UNREADABLE:
        array = None
    if array is None:
        raise BoardRefusedError(
            f"Expected {path} to be one array as numpy.save writes it, without pickled objects, "
            f"or a .csv file. Write numpy.save({path.name!r}, predictions).",
            "layout",
        )
    return Upload(npy(canonical(array, board)))


def _require_csv(body: bytes, board: BoardStatus) -> None:
    """Raise if a CSV file cannot be what the board expects; which ids it knows is its own."""
    try:
        rows = list(csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error):
        rows = []
    width = 1 + (board.classes or 0) if board.upload == "probabilities" else 2
    ids = {row[0] for row in rows[1:] if row}
    fits = len(rows) == board.rows + 1 and all(len(row) == width for row in rows)
    if not fits or len(ids) != board.rows:
        names = "id,prediction" if width == 2 else f"id,p0,...,p{width - 2}"
        raise BoardRefusedError(
            f"Expected CSV in UTF-8 with the header {names} and {board.rows} rows, each id once.",
            "layout",
        )


def _refused(expected: str, got: str, problem: str, hint: str = "") -> BoardRefusedError:
    return BoardRefusedError(
        f"Expected {expected}, but got {got}.{hint} Nothing was sent.", problem
    )
