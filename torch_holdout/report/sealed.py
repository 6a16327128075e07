"""Sealed runs and closed values, as a report shows them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import final

from torch_holdout._shared.text import counted
from torch_holdout.holdout.closing import ClosedValue, Closing
from torch_holdout.holdout.prices import Prices
from torch_holdout.holdout.reading import AccountReading
from torch_holdout.holdout.results import RunStatus
from torch_holdout.ledger import Recorded
from torch_holdout.ledger.run_times import RunTimes
from torch_holdout.ledger.symbols import Symbol
from torch_holdout.report.thinning import thinned

CURVES, POINTS = 100, 200  # of a statistic; of a curve


@final
@dataclass(frozen=True, kw_only=True)
class DatedRun:
    """A sealed run with its times.

    Attributes:
        status: How it stands.
        symbols: What the account has said about it on request.
        begun_at: When it was begun.
        last_at: When it was last evaluated.
        ended_at: When it ended; None while it is open.
        pays: What its next evaluation would pay for what others have said, in nats; None if none
            can come.
    """

    status: RunStatus
    symbols: tuple[Symbol, ...]
    begun_at: str
    last_at: str
    ended_at: str | None
    pays: float | None

    @property
    def said(self) -> str:
        """What it has said, in words."""
        run, parts = self.status, []
        if run.state == "open" and run.nats:
            parts.append(f"not stopped in {counted(run.passes, 'pass')}")
        elif run.state in ("stopped", "given_up") or run.best_evaluation is not None:
            parts.append(run.decision)
        if run.best_evaluation is not None:
            parts.append(f"best evaluation {run.best_evaluation:,}")
        parts += [_BITS[symbol.kind][bool(symbol.value)] for symbol in self.symbols]
        return ", ".join(parts) or "nothing"

    @property
    def nats(self) -> float:
        """What all of it costs whatever is evaluated later."""
        return math.fsum([self.status.nats, *(symbol.nats for symbol in self.symbols)])


_BITS = {"record": ("no record", "a record"), "challenge": ("reverted", "kept")}


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


def dated_runs(
    reading: AccountReading, times: Mapping[int, RunTimes], prices: Prices
) -> tuple[DatedRun, ...]:
    """Return the sealed runs with their times, the latest first."""
    pays = {upcoming.run: upcoming.pays for upcoming in prices.open_runs}
    bits: dict[int, list[Symbol]] = {}
    for symbol in reading.summary.symbols:
        if symbol.kind in _BITS and symbol.choices > 1:
            bits.setdefault(symbol.run, []).append(symbol)
    return tuple(
        DatedRun(
            status=run,
            symbols=tuple(bits.get(run.number, ())),
            **asdict(times[run.number]),
            pays=pays.get(run.number),
        )
        for run in reversed(reading.status.runs)
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
