"""A board inside a transaction: quotas of its analysts, answers, and what all were told.

Everything that an answer depends on is read under the lock of the board's row, and written before
it is released: two processes cannot both take an analyst's last release.
"""

from dataclasses import asdict, replace
from typing import Any, final

import sqlalchemy as sa

from torch_holdout.errors import InvalidArgumentError, LedgerError
from torch_holdout.ledger.backend import library_version, now
from torch_holdout.ledger.board_events import (
    BoardEvent,
    BoardTerms,
    Said,
    StoredAnalyst,
    StoredBoard,
    StoredEvent,
)
from torch_holdout.ledger.chains import canonical, chained
from torch_holdout.ledger.schema import analysts, board_events, boards
from torch_holdout.ledger.statements import change

_OF_BOARD = board_events.c.board_id == sa.bindparam("board")
LOCK_BOARD = sa.select(boards).where(boards.c.account == sa.bindparam("which")).with_for_update()
BOARD = sa.select(boards).where(boards.c.account == sa.bindparam("which"))
HEAD = sa.select(boards.c.chain, boards.c.events, boards.c.closed_at).where(
    boards.c.account == sa.bindparam("which")
)
FIND = sa.select(board_events).where(
    _OF_BOARD,
    board_events.c.analyst == sa.bindparam("analyst"),
    board_events.c.query == sa.bindparam("query"),
)
EVENT_AT = sa.select(board_events).where(
    _OF_BOARD, board_events.c.position == sa.bindparam("position")
)
ANALYST = sa.select(analysts).where(
    analysts.c.board_id == sa.bindparam("board"), analysts.c.analyst == sa.bindparam("analyst")
)
_LOCK_ANALYST = ANALYST.with_for_update()
_RESERVED = sa.select(sa.func.coalesce(sa.func.sum(analysts.c.max_releases), 0)).where(
    analysts.c.board_id == sa.bindparam("board")
)
_WHICH_ANALYST = (
    analysts.c.board_id == sa.bindparam("board"),
    analysts.c.analyst == sa.bindparam("which"),
)
_UPDATE_ANALYST = analysts.update().where(*_WHICH_ANALYST)
_REFUSE = analysts.update().where(*_WHICH_ANALYST).values(refused=analysts.c.refused + 1)
_UPDATE_BOARD = boards.update().where(boards.c.id == sa.bindparam("which"))
_INSERT_EVENT, _INSERT_ANALYST = board_events.insert(), analysts.insert()
_COUNTERS = tuple(StoredBoard.__dataclass_fields__)
_STANDS = ("submissions", "releases", "best", "best_at", "incumbent")


@final
class BoardAccount:
    """A board inside an open, exclusive transaction.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> ledger = Ledger("memory://")
        >>> accuracy = {"kind": "zero_one", "low": 0.0, "high": 1.0, "mode": "max", "units": 1000,
        ...             "grid": 128}
        >>> terms = {"size": 1000, "statistics": {"accuracy": accuracy}, "budget": 8,
        ...          "submissions": 20, "feedback": {"kind": "board", "mode": "sealed"}}
        >>> mark = ledger.register_board("digits", terms, budget=8, digests={})
        >>> with ledger.board(mark) as board:
        ...     board.add("alpha", submissions=10, releases=8).max_releases
        8
    """

    def __init__(self, connection: sa.Connection, row: Any, address: str) -> None:
        self._connection = connection
        self._id: int = row.id
        self._chain: str = row.chain
        self._recorded = False
        self.name: str = row.name
        self.budget: int = row.budget
        self.terms = BoardTerms.of_row(row, address)
        self.stands = StoredBoard.of_row(row)

    @property
    def budget_left(self) -> int:
        """How many releases may still be made."""
        return self.budget - self.stands.releases

    def find(self, analyst: str, query: str) -> StoredEvent | None:
        """Return an analyst's earlier submission of a content."""
        asked = {"board": self._id, "analyst": analyst, "query": query}
        row = self._connection.execute(FIND, asked).mappings().one_or_none()
        return None if row is None else StoredEvent.of_row(row)

    def analyst(self, name: str) -> StoredAnalyst:
        """Lock an analyst's row and return it; raise if there is none of that name."""
        asked = {"board": self._id, "analyst": name}
        row = self._connection.execute(_LOCK_ANALYST, asked).one_or_none()
        if row is None:
            raise InvalidArgumentError(
                f"Expected an analyst of board {self.name!r}, but there is none of the name "
                f"{name!r:.60}. Add it first. Nothing was charged."
            )
        return StoredAnalyst.of_row(row)

    def add(self, name: str, *, submissions: int, releases: int) -> StoredAnalyst:
        """Add an analyst; its releases are reserved from the budget."""
        asked = {"board": self._id, "analyst": name}
        if self._connection.execute(ANALYST, asked).one_or_none() is not None:
            raise InvalidArgumentError(
                f"Expected a new analyst, but board {self.name!r} has {name!r} already. Nothing "
                f"was changed."
            )
        reserved = int(self._connection.execute(_RESERVED, {"board": self._id}).scalar_one())
        if reserved + releases > self.budget:
            raise InvalidArgumentError(
                f"Expected at most {self.budget - reserved} releases for {name!r}, which is what "
                f"other analysts have left of the budget of {self.budget}, but got {releases}. "
                f"Every analyst's share is reserved. Nothing was changed."
            )
        detail = canonical({"submissions": submissions, "releases": releases})
        position, at = self._say(BoardEvent(kind="add", analyst=name, detail=detail), self.stands)
        added = StoredAnalyst(
            analyst=name,
            added=position,
            max_submissions=submissions,
            max_releases=releases,
            created_at=at,
        )
        change(self._connection, _INSERT_ANALYST, {"board_id": self._id, **asdict(added)})
        return added

    def record(self, analyst: StoredAnalyst, query: str, said: Said) -> StoredEvent:
        """Write a submission, its price, the analyst's and the board's counters.

        ``analyst`` is as it was locked. What is returned may be seen after the commit only.
        """
        price = self.terms.price(self.stands, said)
        after = self.stands.after(said, price, records=self.terms.records)
        if after.releases > self.budget:
            raise LedgerError("A release beyond the budget was stopped; nothing was recorded.")
        event = BoardEvent(
            kind="submit",
            analyst=analyst.analyst,
            query=query,
            number=after.submissions,
            said=self.stands.nats,
            nats=price,
            detail=said.detail(),
        )
        position, at = self._say(event, after)
        own = analyst.after(said, query, position)
        stands = {name: getattr(own, name) for name in _STANDS}
        which = {"board": self._id, "which": analyst.analyst}
        change(self._connection, _UPDATE_ANALYST, which | stands)
        return StoredEvent(position=position, event=event, asked_at=at, chain=self._chain)

    def bar(self, analyst: StoredAnalyst) -> int | None:
        """Return the best answer so far that a submission has to beat; None for the baseline."""
        return self.stands.best if self.terms.records else analyst.best

    def refuse(self, analyst: str) -> None:
        """Count a submission that came when nothing was left; it is told nothing."""
        change(self._connection, _REFUSE, {"board": self._id, "which": analyst})

    def close(self) -> str:
        """Close the board for good; return when. Closing again returns the same."""
        if self.stands.closed_at is None:
            self._say(BoardEvent(kind="close"), self.stands)
        return str(self.stands.closed_at)

    def judged(self) -> dict[str, Any] | None:
        """Return what the closed board was judged on; None if it was not."""
        of = sa.select(board_events.c.detail).where(_OF_BOARD, board_events.c.kind == "judge")
        detail = self._connection.execute(of, {"board": self._id}).scalar_one_or_none()
        return None if detail is None else BoardEvent(kind="judge", detail=detail).content

    def judge(self, content: dict[str, Any]) -> None:
        """Write what the closed board was judged on: once, it is compared ever after."""
        self._say(BoardEvent(kind="judge", detail=canonical(content)), self.stands)

    def _say(self, event: BoardEvent, after: StoredBoard) -> tuple[int, str]:
        """Write an event and the board's new state; return its position, and when."""
        if self._recorded:
            raise LedgerError("A second event in one transaction was stopped; nothing recorded.")
        self._recorded = True
        position, at = self.stands.events + 1, now()
        row = asdict(event) | {"asked_at": at, "version": library_version()}
        self._chain = chained(self._chain, position, row)
        own = {"board_id": self._id, "position": position, "chain": self._chain}
        change(self._connection, _INSERT_EVENT, own | row)
        closed_at = at if event.kind == "close" else after.closed_at
        self.stands = replace(after, events=position, closed_at=closed_at)
        counters = {name: getattr(self.stands, name) for name in _COUNTERS}
        change(
            self._connection, _UPDATE_BOARD, {"which": self._id, "chain": self._chain} | counters
        )
        return position, at


def read_analysts(connection: sa.Connection, board_id: int) -> list[StoredAnalyst]:
    """Read the analysts of a board, in the order they were added."""
    own = sa.select(analysts).where(analysts.c.board_id == board_id)
    return [StoredAnalyst.of_row(row) for row in connection.execute(own.order_by(analysts.c.added))]


def read_submissions(
    connection: sa.Connection,
    board_id: int,
    analyst: str | None = None,
    after: int = 0,
    limit: int | None = None,
) -> list[StoredEvent]:
    """Read the submissions of one analyst or of all, oldest first, after a number."""
    own = sa.select(board_events).where(
        board_events.c.board_id == board_id,
        board_events.c.kind == "submit",
        board_events.c.number > after,
    )
    if analyst is not None:
        own = own.where(board_events.c.analyst == analyst)
    rows = connection.execute(own.order_by(board_events.c.position).limit(limit)).mappings()
    return [StoredEvent.of_row(row) for row in rows]
