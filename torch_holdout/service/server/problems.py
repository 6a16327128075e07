"""What a board refuses, as the problems of RFC 9457; a problem quotes nothing that was sent."""

from enum import Enum
from typing import Any, final

from torch_holdout.errors import HoldoutError

_URN = "urn:torch-holdout:"


@final
class Problem(Enum):
    """Every kind of refusal: its urn, its constant title and its HTTP status.

    Example:
        >>> Problem.LAYOUT.type, Problem.LAYOUT.title, Problem.LAYOUT.status
        ('urn:torch-holdout:layout', 'Other layout', 422)
    """

    UNAUTHORISED = ("unauthorised", "No valid token", 401)
    FORBIDDEN = ("forbidden", "Not with this token", 403)
    UNKNOWN = ("unknown", "Not there", 404)
    METHOD = ("method", "Other method", 405)
    TIMEOUT = ("timeout", "Too slow", 408)
    CLOSED = ("closed", "Board closed", 409)
    EXHAUSTED_TEAM = ("exhausted-team", "Nothing left for this team", 409)
    EXHAUSTED_BOARD = ("exhausted-board", "Nothing left on this board", 409)
    LENGTH = ("length", "Length required", 411)
    SIZE = ("size", "Too large", 413)
    MEDIA_TYPE = ("type", "Other media type", 415)
    DIGEST = ("digest", "Content differs from its address", 422)
    LAYOUT = ("layout", "Other layout", 422)
    RANGE = ("range", "Outside the range", 422)
    FINITE = ("finite", "Not finite", 422)
    IDS = ("ids", "Other ids", 422)
    REQUEST = ("request", "Other request", 422)
    RATE = ("rate", "Too many requests", 429)
    LEDGER = ("ledger", "Ledger not available", 503)
    INTERNAL = ("internal", "Internal error", 500)

    def __init__(self, kind: str, title: str, status: int) -> None:
        self.type = _URN + kind
        self.title = title
        self.status = status


@final
class RefusedError(HoldoutError):
    """A request that the board refuses; its text depends on the request and on public facts only.

    Attributes:
        problem: Which kind.
        detail: What was expected and what to do; never what was sent.
        retry_after: Seconds after which the same request may be sent again; None if never.

    Example:
        >>> RefusedError(Problem.SIZE, "Expected at most 10,128 bytes.").as_json()["status"]
        413
    """

    def __init__(self, problem: Problem, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.problem = problem
        self.detail = detail
        self.retry_after = retry_after

    def as_json(self) -> dict[str, Any]:
        """Return the object that is sent as application/problem+json."""
        own = self.problem
        return {"type": own.type, "title": own.title, "status": own.status, "detail": self.detail}


def board_closed() -> RefusedError:
    """Return what is said about everything that would change a closed board.

    Example:
        >>> board_closed().problem.status
        409
    """
    return RefusedError(Problem.CLOSED, "This board takes no more submissions.")
