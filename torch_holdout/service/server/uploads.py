"""Uploads: parsed header first against a public layout, kept under their own hash."""

from dataclasses import dataclass, field
from typing import Literal, final

Upload = Literal["classes", "probabilities", "scores"]
NPY, CSV = "application/x-npy", "text/csv"
LONGEST_HEADER = 1024  # of an npy file


@final
@dataclass(frozen=True, kw_only=True)
class Layout:
    """What an upload must be: public, the same for every team.

    Attributes:
        rows: Predictions in an upload, one for each row of the board.
        upload: "classes" [rows], "probabilities" [rows, classes] or "scores" [rows].
        classes: How many classes; None for regression.
        ids: The rows' public names for CSV uploads in any order; None if it has none.
    """

    rows: int
    upload: Upload
    classes: int | None = None
    ids: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        raise NotImplementedError

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The numpy names of the accepted types, the preferred one first."""
        raise NotImplementedError

    @property
    def media_types(self) -> tuple[str, ...]:
        """The accepted media types."""
        raise NotImplementedError

    @property
    def largest(self) -> int:
        """The largest body in bytes that can be accepted, header included, of any media type."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The layout as words, for errors."""
        raise NotImplementedError
