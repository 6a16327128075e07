"""Sealed runs and closed values, as a report shows them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from torch_holdout.bounds.sealed_certificate import RunFacts
from torch_holdout.holdout.closing import ClosedValue, Closing
from torch_holdout.holdout.reading import AccountReading
from torch_holdout.ledger import Recorded
from torch_holdout.mechanisms.sealed import Sealed
from torch_holdout.report.thinning import thinned

CURVES, POINTS = 100, 200  # of a statistic; of a curve


@final
@dataclass(frozen=True, kw_only=True)
class NextEvaluation:
    """What the next evaluation of an open run, or the first of a new one, would be worth.

    Attributes:
        run: The run's number; None for a new one.
        evaluation: Its number in the run.
        pays: What other runs and symbols have said by now, in nats.
        distances: How far its value can be from the truth, by statistic.
    """

    run: int | None
    evaluation: int
    pays: float
    distances: dict[str, float]


@final
@dataclass(frozen=True, kw_only=True)
class Curve:
    """The values of one run and statistic, in order; thinned evenly, with the best.

    Attributes:
        run: The run's number; 0 for live answers.
        name: What it is called.
        left_out: How many more values it has.
    """

    run: int
    name: str | None
    values: tuple[ClosedValue, ...]
    best: ClosedValue
    left_out: int


@final
@dataclass(frozen=True, kw_only=True)
class ClosedStatistic:
    """What closing has published of one statistic.

    Attributes:
        step: Of the last decimal that is worth showing.
        values: How many values there are.
        curves: The best first; ``curves_left_out`` others are not in it.
        near: How many of the other curves the first one cannot be told apart from.
        others: How many other curves there are.
    """

    name: str
    mode: str
    low: float
    high: float
    step: float
    values: int
    curves: tuple[Curve, ...]
    curves_left_out: int
    near: int
    others: int


def next_evaluations(reading: AccountReading, failure: float) -> tuple[NextEvaluation, ...]:
    """Return what can come next in a sealed account: in a new run, and in each open one."""
    mechanism, summary = reading.mechanism, reading.summary
    if not isinstance(mechanism, Sealed) or summary.closed != "open":
        return ()
    said = reading.said(mechanism)
    taken = {run.share for run in summary.runs}
    free = next((share for share in range(1, summary.budget + 1) if share not in taken), None)
    found: list[tuple[int | None, RunFacts]] = []
    if free is not None:
        found.append((None, RunFacts(free, 1, said.by_others(None))))
    found += [
        (run.run, RunFacts(run.share, run.evaluations + 1, said.by_others(run.run)))
        for run in summary.runs
        if run.state == "open" and run.share is not None
    ]
    return tuple(
        NextEvaluation(
            run=number,
            evaluation=facts.evaluations,
            pays=facts.others,
            distances=reading.sealed_certificate([facts], failure).user_tolerance,
        )
        for number, facts in found
    )


def closed_statistics(
    reading: AccountReading, closing: Closing | None, answers: Sequence[Recorded]
) -> tuple[ClosedStatistic, ...]:
    """Return the curves that closing has published, by statistic; none of published answers."""
    if closing is None:
        return ()
    registered = reading.summary.registered.statistics
    found = []
    for name, statistic in registered.items():
        exact = [value for value in closing.curve(name) if value.exact]
        if not exact:
            continue
        curves = sorted(_curves(closing, exact, answers), key=_rank(statistic.mode))
        first, others = curves[0].best, [curve.best for curve in curves[1:]]
        near = sum(best.low <= first.high and first.low <= best.high for best in others)
        narrowest = min(value.high - value.low for value in exact)
        found.append(
            ClosedStatistic(
                name=name,
                mode=statistic.mode,
                low=statistic.low,
                high=statistic.high,
                step=max(narrowest / 20, 1e-9 * (statistic.high - statistic.low)),
                values=len(exact),
                curves=tuple(curves[:CURVES]),
                curves_left_out=max(0, len(curves) - CURVES),
                near=near,
                others=len(others),
            )
        )
    return tuple(found)


def _curves(
    closing: Closing, values: Sequence[ClosedValue], answers: Sequence[Recorded]
) -> Iterator[Curve]:
    """Yield the curve of each sealed run, or of each name that live answers were asked under."""
    names = {run.number: run.name for run in closing.runs}
    asked = {answer.position: answer.run for answer in answers}
    groups: dict[tuple[int, str | None], list[ClosedValue]] = {}
    for value in values:
        name = names.get(value.run) if value.run else asked.get(value.evaluation)
        groups.setdefault((value.run, name), []).append(value)
    for (run, name), own in groups.items():
        sign = 1 if closing.modes[own[0].statistic] == "min" else -1
        best = min(own, key=lambda value: sign * value.value)
        drawn = {value.evaluation: value for value in [*thinned(own, POINTS), best]}
        yield Curve(
            run=run,
            name=name,
            values=tuple(drawn[number] for number in sorted(drawn)),
            best=best,
            left_out=len(own) - len(drawn),
        )


def _rank(mode: str) -> Callable[[Curve], tuple[float, int]]:
    sign = 1 if mode == "min" else -1
    return lambda curve: (sign * curve.best.value, curve.run)
