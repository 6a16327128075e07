"""What a board has said: its public events, how it stands, and the law that prices its symbols."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, final

from torch_holdout.accounting.picos import from_picos
from torch_holdout.bounds.codes import (
    Flags,
    answer_price,
    flag_price,
    in_picos,
    record_flag_price,
    step_price,
)
from torch_holdout.ledger.chains import canonical, damaged
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration, StoredStatistic
from torch_holdout.mechanisms.board import Feedback

Outcome = Literal["release", "guess", "kept", "reverted", "first", "sealed"]
EventKind = Literal["add", "submit", "close", "judge"]


@final
@dataclass(frozen=True, kw_only=True)
class BoardEvent:
    """One public event of a board; the chain covers it.

    Attributes:
        kind: add, submit, close or judge.
        analyst: Who was added, or who has submitted.
        query: Which content was submitted.
        number: The number of the submission, from 1.
        said: What was told before it, to all analysts, in picos.
        nats: What it told, in picos, rounded up.
        detail: More of it, as JSON.

    Example:
        >>> BoardEvent(kind="add", analyst="alpha", detail='{"releases":8}').content
        {'releases': 8}
    """

    kind: EventKind
    analyst: str | None = None
    query: str | None = None
    number: int | None = None
    said: int | None = None
    nats: int | None = field(default=None, repr=False)
    detail: str = field(default="{}", repr=False)

    @cached_property
    def content(self) -> dict[str, Any]:
        """The detail, read."""
        return dict(json.loads(self.detail))


@final
@dataclass(frozen=True, kw_only=True)
class StoredEvent:
    """An event as it is in the ledger."""

    position: int
    event: BoardEvent
    asked_at: str
    chain: str

    @classmethod
    def of_row(cls, row: Mapping[Any, Any]) -> "StoredEvent":
        """Read a row of the events' table."""
        event = BoardEvent(**{name: row[name] for name in BoardEvent.__dataclass_fields__})
        own = {name: row[name] for name in ("position", "asked_at", "chain")}
        return cls(event=event, **own)


@final
@dataclass(frozen=True, kw_only=True)
class StoredAnalyst:
    """How an analyst stands; all but ``refused`` follows from the events."""

    analyst: str
    added: int
    max_submissions: int
    max_releases: int
    created_at: str
    submissions: int = 0
    releases: int = 0
    best: int | None = None
    best_at: int | None = None
    incumbent: str | None = None
    refused: int = 0

    @classmethod
    def of_row(cls, row: Any) -> "StoredAnalyst":
        """Read a row of the analysts' table."""
        return cls(**{name: getattr(row, name) for name in cls.__dataclass_fields__})

    def after(self, said: "Said", query: str, position: int) -> "StoredAnalyst":
        """Return how it stands after one more submission."""
        own = replace(self, submissions=self.submissions + 1)
        if said.outcome == "release":
            best = next(iter(said.grid.values()))
            return replace(own, releases=own.releases + 1, best=best, best_at=position)
        if said.outcome in ("first", "kept"):
            return replace(own, incumbent=query)
        return own


@final
@dataclass(frozen=True, kw_only=True)
class StoredBoard:
    """How a board stands; all of it follows from its events.

    Example:
        >>> StoredBoard(submissions=2, releases=1, ones=1, zeros=1, nats=10**12).said
        1.0
    """

    events: int = 0
    submissions: int = 0
    releases: int = 0
    ones: int = 0
    zeros: int = 0
    rank_nats: float = 0.0
    nats: int = 0
    best: int | None = None
    closed_at: str | None = None

    @classmethod
    def of_row(cls, row: Any) -> "StoredBoard":
        """Read a row of the boards' table."""
        return cls(**{name: getattr(row, name) for name in cls.__dataclass_fields__})

    @property
    def said(self) -> float:
        """What was told so far, in nats."""
        return from_picos(self.nats)

    @property
    def flags(self) -> Flags:
        """The flags so far, as far as the law of the next one looks at them."""
        return Flags(self.ones, self.zeros, self.rank_nats)

    def after(self, said: "Said", price: int, *, records: bool) -> "StoredBoard":
        """Return how it stands after one more submission, which has an event."""
        flags = self.flags
        if said.flag is not None:
            flags = flags.after(said.flag, records=records)
        released = said.outcome == "release"
        return replace(
            self,
            submissions=self.submissions + 1,
            releases=self.releases + released,
            ones=flags.ones,
            zeros=flags.zeros,
            rank_nats=flags.rank,
            nats=self.nats + price,
            best=next(iter(said.grid.values())) if released and records else self.best,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Said:
    """What a submission is told; until it is committed it must not be seen.

    Attributes:
        outcome: The kind of answer.
        grid: By statistic, the answer on its grid; empty where no value is told.
        bar: What a value had to beat, on the grid; None for the baseline, or without values.
        challenged: Which submission it challenged, at a gate.
        lost: Whether that one's values were lost, so that nothing was compared.
    """

    outcome: Outcome
    grid: Mapping[str, int]
    bar: int | None = None
    challenged: str | None = None
    lost: bool = False

    def __repr__(self) -> str:
        return "<what is said, before it is committed>"

    @property
    def flag(self) -> bool | None:
        """Whether the flag says yes; None where the outcome was certain."""
        return _FLAGS[self.outcome]

    def detail(self) -> str:
        """Return what the event keeps."""
        content: dict[str, Any] = {"outcome": self.outcome, "grid": dict(self.grid)}
        if self.bar is not None:
            content |= {"bar": self.bar}
        if self.challenged is not None:
            content |= {"challenged": self.challenged, "lost": self.lost}
        return canonical(content)

    @classmethod
    def of_event(cls, event: BoardEvent) -> "Said":
        """Read the event of a submission."""
        content = event.content
        if content["outcome"] not in _FLAGS:
            raise ValueError("an unknown outcome")
        return cls(
            outcome=content["outcome"],
            grid={str(name): int(index) for name, index in content["grid"].items()},
            bar=content.get("bar"),
            challenged=content.get("challenged"),
            lost=bool(content.get("lost", False)),
        )


_FLAGS: dict[str, bool | None] = {
    "release": True, "guess": False, "kept": True, "reverted": False, "first": None, "sealed": None,
}  # fmt: skip


@final
@dataclass(frozen=True)
class BoardTerms:
    """The registered parameters of a board, read back from its ledger."""

    registered: StoredRegistration

    @classmethod
    def of_row(cls, row: Any, address: str) -> "BoardTerms":
        """Read an account's registration, or raise ``LedgerError``."""
        try:
            terms = cls(StoredRegistration.parse(row.registration))
            _ = terms.feedback, terms.planned, terms.first
        except UNREADABLE:
            raise damaged(row.name, address) from None
        return terms

    @cached_property
    def feedback(self) -> Feedback:
        """What a submission is told."""
        return Feedback.of_identity(dict(self.registered.content["feedback"]))

    @property
    def planned(self) -> int:
        """How many submissions were planned."""
        return int(self.registered.content["submissions"])

    @property
    def first(self) -> StoredStatistic:
        """The statistic that decides."""
        return next(iter(self.registered.statistics.values()))

    @property
    def records(self) -> bool:
        """Whether one Ladder serves all analysts."""
        return self.feedback.mode == "record"

    def better(self, best: int | None) -> int:
        """Return how many answers are better than the best so far, or than the baseline."""
        first, grid, higher = self.first, self.first.grid, self.first.mode == "max"
        if best is not None:
            return grid - best if higher else best
        normalised = ((self.feedback.baseline or 0.0) - first.low) / (first.high - first.low)
        baseline = Fraction(normalised) * grid
        return grid - math.floor(baseline) if higher else math.ceil(baseline)

    def price(self, board: StoredBoard, said: Said) -> int:
        """Return what is told, in picos, by the registered laws; what was certain costs nothing."""
        if said.flag is None:
            return 0
        flags = board.flags
        if self.records:
            nats = record_flag_price(flags.ones, flags.zeros, flags.rank, said.flag)
        else:
            nats = flag_price(flags.ones, flags.zeros, said.flag)
        if said.outcome != "release":
            return in_picos(nats)
        first, *others = said.grid
        better = self.better(said.bar)
        nats += step_price(better, better - self.better(said.grid[first]))
        for name in others:
            nats += answer_price(self.registered.statistics[name].grid + 1)
        return in_picos(nats)
