"""What a sealed run says before closing: its evaluations' numbers, and how it ended."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, final

from torch_holdout.ledger.run_events import StoredRun
from torch_holdout.mechanisms.sealed import Sealed


@final
@dataclass(frozen=True)
class Evaluation:
    """What a run says about one evaluation: which it was, and whether the run stops here.

    Attributes:
        number: The evaluation's number in the run, from 1; the same weights keep theirs.
        passes: How many passes the run has made; patience counts these.
        stop: Whether the run has stopped: nothing more is evaluated in it.
        kind: Always ``"sealed"``: there is no value before closing.

    Example:
        >>> Evaluation(number=3, passes=3, stop=False)
        Evaluation(number=3, passes=3, stop=False, kind='sealed')
    """

    number: int
    passes: int
    stop: bool
    kind: Literal["sealed"] = "sealed"


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended; all that it says before closing.

    Attributes:
        best_evaluation: The number of its best evaluation; None if nothing is said about it.
        stopped_at: The pass at which patience stopped it; None if it was ended otherwise.
        reason: ``"patience"``, ``"ended"`` or ``"given up"``.
        evaluations: How many different weights were evaluated.
        passes: How many passes were made.
        price: What this says, in nats: whatever is evaluated later pays for it.
        run: The run's id.
        record: Whether it was better than every run that ended before it; None if that was not
            asked (``run.record()``).

    Example:
        >>> Outcome(best_evaluation=31, stopped_at=41, reason="patience", evaluations=41,
        ...         passes=41, price=5.99).reason
        'patience'
    """

    best_evaluation: int | None
    stopped_at: int | None
    reason: Literal["patience", "ended", "given up"]
    evaluations: int
    passes: int
    price: float
    run: str = field(default="", repr=False)
    record: bool | None = None


def outcome_of(
    run: StoredRun, mechanism: Sealed, mark: str, record: bool | None = None
) -> Outcome | None:
    """Return how a run ended; None while it is open."""
    reasons: dict[str, Any] = {"stopped": "patience", "ended": "ended", "given_up": "given up"}
    if run.state not in reasons:
        return None
    return Outcome(
        best_evaluation=run.best,
        stopped_at=run.passes if run.state == "stopped" else None,
        reason=reasons[run.state],
        evaluations=run.evaluations,
        passes=run.passes,
        price=run.said(mechanism),
        run=mark,
        record=record,
    )


def shares_taken(runs: Iterable[StoredRun]) -> int:
    """Return how much of the budget some runs have taken; one given up for free takes nothing."""
    return sum(run.share is not None for run in runs)
