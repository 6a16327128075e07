"""What a submission is told: one decision, inside the board's transaction. Raw."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

from torch import Tensor

from torch_holdout._noise.streams import SystemNoise
from torch_holdout.bounds.challenges import challenge_bracket
from torch_holdout.holdout.board_levels import Part
from torch_holdout.holdout.board_registration import BoardRegistration
from torch_holdout.holdout.challenges import Contest
from torch_holdout.ledger.analysts import BoardAccount
from torch_holdout.ledger.board_events import Said, StoredAnalyst
from torch_holdout.mechanisms import Ladder, Query
from torch_holdout.mechanisms.rounds import to_grid

Incumbent = Callable[[str], Mapping[str, Any] | None]


@final
@dataclass(frozen=True, repr=False)
class Submission:
    """The levels of a submission, by statistic, and where its analyst's incumbent comes from."""

    levels: Mapping[str, Tensor]
    incumbent: Incumbent | None


def decided(
    board: BoardAccount,
    analyst: StoredAnalyst,
    registration: BoardRegistration,
    submission: Submission,
) -> Said:
    """Return what is said; nothing is committed yet."""
    mode = registration.feedback.mode
    if mode == "sealed":
        return Said(outcome="sealed", grid={})
    if mode == "gate":
        return _gate(board, analyst, registration, submission)
    return _ladder(board, analyst, registration, submission)


def _ladder(
    board: BoardAccount,
    analyst: StoredAnalyst,
    registration: BoardRegistration,
    submission: Submission,
) -> Said:
    """Ask the analyst's Ladder, or the one for all; the other statistics come with a release."""
    part, name, bar = registration.open_part, registration.first, board.bar(analyst)
    # The same work whatever will be told.
    totals = {name: int(levels.sum()) for name, levels in submission.levels.items()}
    statistic, grid = registration.statistics[name], registration.grid_of(name)
    baseline = Fraction(statistic.to_normalised(registration.feedback.baseline or 0.0))
    decision = Ladder(step=registration.feedback.step or 0.0).decide(
        Query(
            total=totals[name],
            units=part.units(name),
            resolution=part.resolution,
            grid=grid,
            guess=baseline if bar is None else Fraction(bar, grid),
            threshold=None,
            forced=False,
            mode=statistic.mode,
            noise=SystemNoise().stream(registration.name),
        )
    )
    told = {
        other: to_grid(total, part.units(other) * part.resolution, registration.grid_of(other))
        for other, total in totals.items()
    }
    if decision.index is None:
        return Said(outcome="guess", grid={}, bar=bar)
    return Said(outcome="release", grid=told | {name: decision.index}, bar=bar)


def _gate(
    board: BoardAccount,
    analyst: StoredAnalyst,
    registration: BoardRegistration,
    submission: Submission,
) -> Said:
    """Test the challenger against the analyst's incumbent; the first one is incumbent untested."""
    query = analyst.incumbent
    if query is None:
        return Said(outcome="first", grid={})
    name = registration.first
    before = _incumbent(registration.open_part, name, query, submission.incumbent)
    if before is None:
        return Said(outcome="first", grid={}, challenged=query, lost=True)
    feedback = registration.feedback
    contest = Contest(
        statistic=name,
        rule=feedback.rule or "certified",
        margin=feedback.margin or 0.0,
        size=registration.size,
        resolution=registration.levels,
        kind=registration.statistics[name],
    )
    bracket = challenge_bracket(
        run=board.stands.submissions + 1,
        runs=registration.submissions,
        said=board.stands.said,
        failure=registration.failure,
    )
    kept = contest.keeps(contest.paired(submission.levels[name], before), bracket)
    return Said(outcome="kept" if kept else "reverted", grid={}, challenged=query)


def _incumbent(part: Part, name: str, query: str, read: Incumbent | None) -> Tensor | None:
    """Return the levels of an analyst's incumbent; None if its upload is lost."""
    values = None if read is None else read(query)
    return None if values is None else part.levels(values)[name]
