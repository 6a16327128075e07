"""What may be shown of a board, computed once for each position of its ledger."""

from dataclasses import dataclass
from typing import Any, Literal, final

State = Literal["open", "ended", "closed"]


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One team's line of the leaderboard.

    Attributes:
        rank: Best and worst rank that the certificate leaves open; None without a value.
        team: Its name.
        value: The best released value of the first statistic; after closing, on the vault.
        interval: Where the population's value lies; None if nothing is certified.
        not_told_apart_from: Teams whose intervals overlap; after closing, without an ordering.
        submissions_left: What it may still submit.
        releases_left: What it may still be told.
        exhausted: Whether nothing is left of one of them.
        public_value: After closing, the best value on the public part (shake-up); else None.
    """

    rank: tuple[int, int] | None
    team: str
    value: float | None
    interval: tuple[float, float] | None
    not_told_apart_from: tuple[str, ...]
    submissions_left: int
    releases_left: int
    exhausted: bool
    public_value: float | None = None


@final
@dataclass(frozen=True, kw_only=True)
class View:
    """A board as readers may see it; the page and the JSON come from it.

    Attributes:
        facts: What ``Board.facts`` returns at this position.
        state: "open", "ended" (past ``closes``, not closed yet) or "closed".
        position: The ledger's position.
        chain: The head of the ledger's chain there.
        rows: The teams, best first.
        certified: Whether the values shown have intervals; if not they are guidance.
        promise: Sentences of the box "What this board promises".
        budget: ``{"releases", "released", "submissions", "submitted", "nats"}``.
        results: After closing, the content of results.json; else None.
    """

    facts: dict[str, Any]
    state: State
    position: int
    chain: str
    rows: tuple[Row, ...]
    certified: bool
    promise: tuple[str, ...]
    budget: dict[str, Any]
    results: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the leaderboard as JSON."""
        raise NotImplementedError
