"""Rows of sealed runs: their public events, how each run stands, and sums, which are secret."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, final

from torch_holdout.ledger.chains import first_link, public_mark
from torch_holdout.mechanisms import Patience, Sealed

State = Literal["open", "stopped", "ended", "given_up"]
LIVE = 0  # the run of sums behind live answers, whose evaluation is the query's position


@final
@dataclass(frozen=True)
class Event:
    """One public event of a run; the chain covers it.

    Attributes:
        run: The run's number; 0 for what the account says, and for its closing.
        kind: begin, evaluate, stop, end, give_up or close; of the account: record, winner or
            challenge.
        evaluation: For evaluate, its number in the run; for stop and end, the best one.
        query: Which weights were evaluated.
        step: Which step of the training loop, if it was told.
        nats: For evaluate, what was said by then, but for its own run; for others, their price.
        detail: More of it, as JSON.
        seeded: Whether noise comes from a test seed.
    """

    run: int
    kind: str
    evaluation: int | None = None
    query: str | None = None
    step: str | None = None
    nats: float | None = None
    detail: str | None = None
    seeded: bool = False

    @property
    def content(self) -> dict[str, Any]:
        """The detail, read."""
        return dict(json.loads(self.detail or "{}"))

    @property
    def passes(self) -> int | None:
        """The number of the pass it made, if it made one."""
        number = self.content.get("pass")
        return None if number is None else int(number)

    @classmethod
    def of_row(cls, row: Mapping[Any, Any]) -> "Event":
        """Read a row of the events' table."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})


@final
@dataclass(frozen=True)
class StoredRun:
    """How a run stands; all of it is public."""

    run: int
    share: int | None
    label: str | None
    rule: dict[str, Any] = field(repr=False)
    state: State
    evaluations: int
    passes: int
    best: int | None
    best_pass: int | None = None
    weights: str | None = None

    @property
    def patience(self) -> Patience | None:
        """What stops it, if something does."""
        stop = self.rule["stop"]
        return None if stop is None else _patience(**stop)

    @property
    def statistic(self) -> str:
        """The statistic that makes a pass, and decides what is best."""
        return str(self.rule["best"])

    @property
    def ended_silently(self) -> bool:
        """Whether it was ended, nothing could have stopped it, and its share is still taken."""
        return self.state == "ended" and self.patience is None and self.share is not None

    def said(self, mechanism: Sealed) -> float:
        """Return what it has said so far, in nats; silence is a symbol too."""
        if self.share is None or self.rule["stop"] is None:
            return 0.0
        return _price(mechanism, self.state, self.passes, self.patience, self.best_pass)

    @classmethod
    def of_row(cls, row: Any) -> "StoredRun":
        """Read a row of the runs' table."""
        known = {name: row[name] for name in cls.__dataclass_fields__}
        known["rule"] = _rule(row["rule"])
        return cls(**known)


# An account may have thousands of runs, with a few rules and prices that come again and again.
@lru_cache(maxsize=1024)
def _rule(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


@lru_cache(maxsize=1024)
def _patience(**stop: Any) -> Patience:
    return Patience(**stop)


@lru_cache(maxsize=65536)
def _price(
    mechanism: Sealed, state: State, passes: int, patience: Patience | None, best: int | None
) -> float:
    return mechanism.price(state=state, passes=passes, patience=patience, best=best)


class Sums(NamedTuple):
    """A statistic's sum of levels and sum of their squares over the whole holdout. Raw.

    A ratio has the sums of its two parts; its own total is the quotient, in as many levels.
    """

    total: int
    squares: int | None
    parts: tuple["Sums", ...] = ()

    def __repr__(self) -> str:
        return "<sealed sums>"


RATIO_PARTS = ("numerator", "denominator")


def part_names(statistic: str) -> tuple[str, ...]:
    """Return the names that the two sums of a ratio are kept under; no statistic can have them.

    Example:
        >>> [name.split() for name in part_names("val_loss")]
        [['val_loss', 'numerator'], ['val_loss', 'denominator']]
    """
    return tuple(f"{statistic}\t{part}" for part in RATIO_PARTS)


def run_mark(account: str, run: int) -> str:
    """Return the public id of a run of an account, which no run of another account has."""
    return marked_run(public_mark(account), run)


def marked_run(mark: str, run: int) -> str:
    """Return ``run_mark`` for an account that is known by its public mark."""
    return first_link(f"{mark}/run {run}")[:16]
