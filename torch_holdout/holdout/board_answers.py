"""A board's answers as their analysts see them, from its public events."""

from dataclasses import dataclass
from typing import final

from torch_holdout.accounting.picos import from_picos
from torch_holdout.bounds.codes import board_bracket, told_interval
from torch_holdout.holdout.board_results import Analyst, BoardAnswer, Quota, Result
from torch_holdout.ledger.board_events import BoardTerms, Said, StoredAnalyst, StoredEvent

GUIDANCE = 0.1  # a half-width, normalised: from there on a value is guidance, not certified
_BETTER = {"release": True, "guess": False, "kept": True, "reverted": False}


@final
@dataclass(frozen=True)
class BoardAnswers:
    """Turns events into answers; ``failure`` is that of the intervals."""

    terms: BoardTerms
    failure: float

    def answer(self, stored: StoredEvent, analyst: StoredAnalyst, *, repeated: bool) -> BoardAnswer:
        """Return the answer of a submission, with its analyst's current quota."""
        event, said = stored.event, Said.of_event(stored.event)
        return BoardAnswer(
            submission=event.query or "",
            analyst=event.analyst or "",
            position=event.number or 0,
            kind="repeat" if repeated else said.outcome,
            source=said.outcome,
            better=_BETTER.get(said.outcome),
            results=self._results(said, event.number or 1, from_picos(event.said or 0)),
            quota=quota_of(analyst),
            chain=stored.chain,
            asked_at=stored.asked_at,
            nats=from_picos(event.nats or 0),
        )

    def bracket(self, number: int, said: float) -> float:
        """Return c of a submission, with what was told before it."""
        return board_bracket(
            position=number,
            planned=self.terms.planned,
            said=said,
            failure=self.failure,
            statistics=len(self.terms.registered.statistics),
        )

    def interval(self, name: str, answer: float, bracket: float) -> tuple[float, float]:
        """Return the interval of an answer on its grid, normalised."""
        statistic = self.terms.registered.statistics[name]
        return told_interval(
            answer=answer,
            grid=statistic.grid,
            bracket=bracket,
            units=statistic.units,
            resolution=self.terms.registered.resolution,
            exact=statistic.interval_kind == "zero_one",
        )

    def _results(self, said: Said, number: int, before: float) -> dict[str, Result]:
        """Return what was told about each statistic: with a guess, what had to be beaten."""
        statistics = self.terms.registered.statistics
        if said.outcome == "release":
            bracket = self.bracket(number, before)
            return {name: self._told(name, index, bracket) for name, index in said.grid.items()}
        results = dict.fromkeys(statistics, Result(None, None))
        if said.outcome == "guess":
            first, baseline = self.terms.first, self.terms.feedback.baseline
            best = baseline if said.bar is None else first.value_at(said.bar)
            results[next(iter(statistics))] = Result(best, None)
        return results

    def _told(self, name: str, index: int, bracket: float) -> Result:
        statistic = self.terms.registered.statistics[name]
        low, high = self.interval(name, index / statistic.grid, bracket)
        value, width = statistic.value_at(index), statistic.high - statistic.low
        if (high - low) / 2 >= GUIDANCE:
            return Result(value, None)
        return Result(value, (statistic.low + width * low, statistic.low + width * high))


def quota_of(analyst: StoredAnalyst) -> Quota:
    """Return what an analyst has left."""
    return Quota(
        submissions_left=analyst.max_submissions - analyst.submissions,
        releases_left=analyst.max_releases - analyst.releases,
    )


def analyst_of(stored: StoredAnalyst) -> Analyst:
    """Return an analyst as it is shown."""
    left = quota_of(stored)
    return Analyst(
        name=stored.analyst,
        submissions=stored.max_submissions,
        submissions_left=left.submissions_left,
        releases=stored.max_releases,
        releases_left=left.releases_left,
        refused=stored.refused,
        created_at=stored.created_at,
    )
