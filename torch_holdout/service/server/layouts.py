"""The layout of a board's uploads, from its configuration and the public names of its rows."""

import csv
import io
from pathlib import Path

from torch_holdout._shared.files import why_unreadable
from torch_holdout.errors import HoldoutError
from torch_holdout.service.server.config import BoardConfig
from torch_holdout.service.server.uploads import Layout

_LARGEST = 2_000_000_000  # bytes of a file of ids
_LONGEST = 200  # characters of an id


def layout_of(config: BoardConfig, rows: int) -> Layout:
    """Return the layout; raise if it is larger than the configuration allows."""
    data = config.data
    ids = None if data.ids is None else read_ids(config.path(data.ids), rows)
    layout = Layout(rows=rows, upload=data.upload, classes=data.classes, ids=ids)
    if layout.largest > config.limits.upload_mb * 1_000_000:
        raise HoldoutError(
            f"Expected limits.upload_mb of at least {-(-layout.largest // 1_000_000)}: an upload "
            f"of {layout.text} has up to {layout.largest:,} bytes."
        )
    return layout


def read_ids(path: Path, rows: int) -> tuple[str, ...]:
    """Read the public names of the rows: CSV with the header ``id``, one name a line."""
    if problem := why_unreadable(path):
        raise HoldoutError(f"Expected the rows' ids at {path}, but {problem}.")
    try:
        text = path.read_bytes()[:_LARGEST].decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error):
        lines = []
    ids = tuple(line[0] for line in lines[1:] if len(line) == 1)
    usable = all(0 < len(name) <= _LONGEST and name.isprintable() for name in ids)
    whole = len(ids) == rows == len(set(ids)) == len(lines) - 1 and lines[:1] == [["id"]]
    if not (usable and whole):
        raise HoldoutError(
            f"Expected CSV with the header id and {rows} different ids at {path.name}, one for "
            f"each row of the labels, each printable and at most {_LONGEST} characters long."
        )
    return ids
