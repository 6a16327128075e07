"""Pages and JSON of a board's views, kept as bytes until there is a newer view."""

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from torch_holdout.service.server.pages import board_page
from torch_holdout.service.server.view import View


@final
@dataclass(frozen=True)
class Rendered:
    """What is sent of a view: the bytes, and a tag that changes with them.

    Example:
        >>> Rendered.of("text/plain", 17, b"page").tag
        '"17-3660315a9af3"'
    """

    media_type: str
    body: bytes
    tag: str

    @classmethod
    def of(cls, media_type: str, position: int, body: bytes) -> "Rendered":
        """Tag a body by the ledger's position and by its content: a team can be added between."""
        return cls(media_type, body, f'"{position}-{hashlib.sha256(body).hexdigest()[:12]}"')

    def is_known(self, if_none_match: str | None) -> bool:
        """Return whether a client has it already, as its If-None-Match header says.

        Example:
            >>> Rendered("text/plain", b"", '"17"').is_known('W/"17", "18"')
            True
        """
        tags = (tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(","))
        return any(tag in ("*", self.tag) for tag in tags)


@final
class RenderedViews:
    """The public page and the leaderboard of the newest view, each rendered once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._view: View | None = None
        self._kept: dict[str, Rendered] = {}

    def page(self, view: View) -> Rendered:
        """Return the public page."""
        return self._rendered(view, "text/html; charset=utf-8", lambda: board_page(view))

    def leaderboard(self, view: View) -> Rendered:
        """Return the leaderboard as JSON."""
        make = lambda: json.dumps(view.as_json(), allow_nan=False)  # noqa: E731
        return self._rendered(view, "application/json", make)

    def _rendered(self, view: View, media_type: str, make: Callable[[], str]) -> Rendered:
        with self._lock:
            if view is not self._view:
                self._view, self._kept = view, {}
            if media_type not in self._kept:
                body = make().encode()
                self._kept[media_type] = Rendered.of(media_type, view.position, body)
            return self._kept[media_type]
