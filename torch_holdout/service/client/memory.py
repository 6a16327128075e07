"""The last position of each board, remembered so that a board that was set back is noticed."""

import contextlib
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple, final

from torch_holdout.errors import HoldoutWarning

_LARGEST = 1_000_000  # bytes of the file


class Seen(NamedTuple):
    """How many answers a board's ledger held, how many events, and the head of its chain there.

    Events are also what the host does: a team that is added changes the chain, and no position.
    """

    position: int
    events: int  # -1 where they are not told: of a single answer
    chain: str


@final
class BoardMemory:
    """What this user has last seen of one board, in this process and in those before it.

    It is kept in ``torch_holdout/boards.json`` below ``XDG_STATE_HOME``, or ``~/.local/state``; a
    folder that cannot be written to only means that the next process knows less.

    Args:
        board: The board's address.
    """

    def __init__(self, board: str) -> None:
        self._board = board
        self._seen: Seen | None = None
        self._warned = False

    def last(self) -> Seen | None:
        """Return the last position known, to be taken before a request is sent."""
        known = [seen for seen in (self._seen, _read().get(self._board)) if seen is not None]
        return max(known, default=None)

    def head(self, before: Seen | None, now: Seen) -> None:
        """Compare the head of the board's ledger with what was known before it was asked for."""
        if before is not None and _is_set_back(before, now):
            self._warn(before, now.position)
        self._keep(now)

    def answered(self, before: Seen | None, now: Seen) -> None:
        """Compare the position of a new answer, which must come after all that was known."""
        if before is not None and now.position <= before.position:
            self._warn(before, now.position)
        self._keep(now)

    def _warn(self, before: Seen, position: int) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"The board {self._board} is at answer {position}, but was at {before.position} when "
            f"it was last asked, or shows another chain there: it was set back to a copy, or made "
            f"anew. Answers given since are not counted by it. Ask its host; the head of the chain "
            f"was {before.chain}.",
            HoldoutWarning,
            stacklevel=2,
        )

    def _keep(self, seen: Seen) -> None:
        if self._seen is None or seen > self._seen:
            self._seen = seen
            _write(self._board, seen)


def _is_set_back(before: Seen, now: Seen) -> bool:
    """Whether a head cannot come after another; of one ledger the events alone tell."""
    if before.events < 0 or now.events < 0:
        return now.position < before.position
    other = now.events == before.events and now.chain != before.chain
    return now.position < before.position or now.events < before.events or other


def _place() -> Path:
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(root) / "torch_holdout" / "boards.json"


def _read() -> dict[str, Seen]:
    try:
        place = _place()
        if place.stat().st_size > _LARGEST:
            return {}
        content: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        return {
            str(board): Seen(int(each["position"]), int(each["events"]), str(each["chain"]))
            for board, each in content.items()
        }
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _write(board: str, seen: Seen) -> None:
    """Keep a position, if it is later than the one kept; replace the file at once."""
    known = _read()
    if board in known and known[board] >= seen:
        return
    content = {name: each._asdict() for name, each in {**known, board: seen}.items()}
    with contextlib.suppress(OSError, RuntimeError):
        place = _place()
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=place.parent, prefix=".boards-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            os.replace(draft, place)
        except OSError:
            os.unlink(draft)
