"""Replays a board's events. Opening raises at the first problem, ``verify`` lists all of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from torch_holdout.ledger.board_events import (
    BoardEvent,
    BoardTerms,
    Said,
    StoredAnalyst,
    StoredBoard,
    StoredEvent,
)
from torch_holdout.ledger.checked import Marks, Reached
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration
from torch_holdout.ledger.replay import (
    Chain,
    Problem,
    StoredRow,
    keep_reached,
    last_reached,
    raise_first,
    stored_rows,
)
from torch_holdout.ledger.schema import analysts, board_events

_ROUNDING = 2  # picos: what a logarithm of another machine may differ by, rounded up
_EXACT_NATS = 1e-9


def board_problems(
    connection: sa.Connection,
    account: StoredRow,
    counted: Callable[[Iterable[StoredRow]], Iterable[StoredRow]] = iter,
    since: Reached | None = None,
    done: Callable[[Reached], None] = lambda reached: None,
) -> Iterator[Problem]:
    """Yield what does not fit: order, chain, prices, quotas, counters, and what came after closing.

    What was told is not decided again: that takes the labels. ``counted`` is told of each row.
    With ``since`` only later events are read; ``done`` is told where the replay stands at its end.
    """
    try:
        terms = BoardTerms(StoredRegistration.parse(account["registration"]))
        _ = terms.feedback, terms.planned, terms.first.grid
        if terms.registered.budget != account["budget"]:
            yield None, "the budget is not the registered one"
    except UNREADABLE:
        yield None, "the registration cannot be read"
        return
    replayed = _Replay(terms, account["budget"], None if since is None else since.state)
    chain = Chain(account["name"], BoardEvent, since)
    for row in counted(stored_rows(connection, board_events, account["id"], chain.position)):
        yield from chain.problems(row)
        event = StoredEvent.of_row(row)
        yield from ((row["position"], problem) for problem in replayed.take(event))
    yield from chain.end_problems(account["chain"])
    yield from ((None, problem) for problem in replayed.end_problems(account))
    kept = sa.select(analysts).where(analysts.c.board_id == account["id"])
    stored = {row.analyst: StoredAnalyst.of_row(row) for row in connection.execute(kept)}
    for name in {*stored, *replayed.analysts}:
        known = replace(stored[name], refused=0) if name in stored else None
        if known != replayed.analysts.get(name):
            yield None, f"the quota of {name!r} does not agree with the events"
    done(Reached(chain.position, chain.link, replayed.state))


def require_board_fits(
    connection: sa.Connection, row: Any, address: str, marks: Marks | None
) -> None:
    """Raise ``LedgerError`` if a board's events, counters and quotas do not fit together.

    Only events after the last mark are read; a new one is made when it is worth it.
    """
    since = last_reached(connection, board_events, row, marks)
    done = partial(keep_reached, row, marks, since)
    raise_first(board_problems(connection, row._mapping, since=since, done=done), row.name, address)


class _Replay:
    """A board as its events make it."""

    def __init__(self, terms: BoardTerms, budget: int, state: dict[str, Any] | None) -> None:
        self._terms = terms
        self._budget = budget
        state = state or {"stands": {}, "judged": False, "analysts": []}
        self._stands = StoredBoard(**state["stands"])
        self._queries: set[tuple[str, str]] = set()  # the database keeps them apart, too
        self._judged = bool(state["judged"])
        known = (StoredAnalyst(**own) for own in state["analysts"])
        self.analysts = {own.analyst: own for own in known}

    @property
    def state(self) -> dict[str, Any]:
        """How it stands, as JSON has it."""
        analysts = [asdict(own) for own in self.analysts.values()]
        return {"stands": asdict(self._stands), "judged": self._judged, "analysts": analysts}

    def take(self, stored: StoredEvent) -> Iterator[str]:
        """Take one event; yield what is wrong with it."""
        event = stored.event
        if (self._stands.closed_at is not None) != (event.kind == "judge"):
            yield "it does not come on the right side of closing"
        if event.kind == "submit":
            yield from self._submit(stored)
        elif event.kind == "add":
            yield from self._add(stored)
        elif event.kind == "close":
            self._stands = replace(self._stands, closed_at=stored.asked_at)
        elif event.kind != "judge" or self._judged:
            yield "an event of an unknown kind, or a second judgement"
        self._judged |= event.kind == "judge"
        self._stands = replace(self._stands, events=self._stands.events + 1)

    def end_problems(self, account: StoredRow) -> Iterator[str]:
        """Yield the board's counters that the events do not make."""
        for name, value in vars(self._stands).items():
            known = account[name]
            same = known == value
            if name == "rank_nats":
                same = abs(known - value) <= _EXACT_NATS * (1 + value)
            if name == "nats":
                same = abs(known - value) <= _ROUNDING * self._stands.submissions
            if not same:
                yield f"the counter {name!r} does not agree with the events"

    def _add(self, stored: StoredEvent) -> Iterator[str]:
        event = stored.event
        name, quota = event.analyst or "", event.content
        if name in self.analysts or not name:
            yield "an analyst was added twice"
        self.analysts[name] = StoredAnalyst(
            analyst=name,
            added=stored.position,
            max_submissions=int(quota["submissions"]),
            max_releases=int(quota["releases"]),
            created_at=stored.asked_at,
        )
        if sum(own.max_releases for own in self.analysts.values()) > self._budget:
            yield "more releases were reserved than the budget has"

    def _submit(self, stored: StoredEvent) -> Iterator[str]:
        event, terms = stored.event, self._terms
        name, query = event.analyst or "", event.query or ""
        if name not in self.analysts:
            yield "a submission of an unknown analyst"
            return
        if (name, query) in self._queries:
            yield "the same submission twice"
        self._queries.add((name, query))
        analyst, said = self.analysts[name], Said.of_event(event)
        yield from self._said_problems(analyst, said)
        price = terms.price(self._stands, said)
        if event.nats is None or abs(event.nats - price) > _ROUNDING:
            yield "its price is not what the registered law gives"
        if event.said != self._stands.nats:
            yield "what was told before it is not what it records"
        if event.number != self._stands.submissions + 1:
            yield "submissions are not numbered in order"
        after = self._stands.after(said, event.nats or 0, records=terms.records)
        self._stands = after
        self.analysts[name] = own = analyst.after(said, query, stored.position)
        if own.submissions > own.max_submissions or own.releases > own.max_releases:
            yield "it is beyond the quota of its analyst"
        if after.releases > self._budget:
            yield "it is beyond the budget"

    def _said_problems(self, analyst: StoredAnalyst, said: Said) -> Iterator[str]:
        """Yield what the board could not have said: another mode's, or of other statistics."""
        terms, statistics = self._terms, self._terms.registered.statistics
        if said.outcome not in _OUTCOMES[terms.feedback.mode]:
            yield "its answer is not one of the registered mode"
        bar = self._stands.best if terms.records else analyst.best
        if said.bar != (bar if terms.feedback.shows_values else None):
            yield "what it had to beat is not the best before it"
        released = said.outcome == "release"
        if list(said.grid) != (list(statistics) if released else []):
            yield "its values are not those of the registered statistics"
        elif any(not 0 <= index <= statistics[n].grid for n, index in said.grid.items()):
            yield "its value is not the registered grid's"
        if said.challenged != analyst.incumbent and said.outcome in _OUTCOMES["gate"]:
            yield "whom it challenged is not the incumbent"
        untested = said.challenged is None or said.lost
        if said.outcome in _OUTCOMES["gate"] and untested != (said.outcome == "first"):
            yield "a challenger without a test was kept, or a tested one was not decided"


_OUTCOMES = {
    "ladder": ("release", "guess"),
    "record": ("release", "guess"),
    "gate": ("first", "kept", "reverted"),
    "sealed": ("sealed",),
}
