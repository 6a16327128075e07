"""The data of a report, read from a ledger: for the page, for JSON and for the verdict."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

from torch_holdout._shared.checks import require_failure, require_instance
from torch_holdout._shared.checks import shown as displayed
from torch_holdout.bounds.certificate import Certificate
from torch_holdout.errors import HoldoutError
from torch_holdout.holdout.closed_values import published
from torch_holdout.holdout.closing import Closing
from torch_holdout.holdout.prices import Prices
from torch_holdout.holdout.pricing import Asked
from torch_holdout.holdout.reading import AccountReading, Intervals
from torch_holdout.holdout.results import Status
from torch_holdout.ledger import Ledger, Recorded, Refusal, Summary
from torch_holdout.ledger.backend import library_version, now
from torch_holdout.ledger.registration import StoredStatistic
from torch_holdout.ledger.symbols import Symbol
from torch_holdout.report.records import RecordsReport, records_report
from torch_holdout.report.sealed import ClosedStatistic, DatedRun, closed_statistics, dated_runs
from torch_holdout.report.thinning import DRAWN, thinned

LATEST, RUNS, TRAIL = 25, 100, 40
READ = 10_000  # answers: the latest of an account, or so many at once


@final
@dataclass(frozen=True, kw_only=True)
class Shown:
    """An answer with the interval that the population value lies in."""

    position: int
    asked_at: str
    run: str | None
    statistic: str
    kind: str
    value: float
    low: float
    high: float


@final
@dataclass(frozen=True, kw_only=True)
class Stale:
    """A value that a run showed after the budget was gone: its last answer again, or nothing."""

    statistic: str
    run: str | None
    value: float | None
    count: int
    first_at: str
    last_at: str


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """One run or trial, for one statistic.

    Attributes:
        name: None for questions of runs without a name.
        refused: Questions after the budget was gone.
        best: Its best *release*; a guess claims nothing.
        trail: Kind and value of its answers in order, thinned evenly.
    """

    name: str | None
    questions: int
    releases: int
    guesses: int
    refused: int
    best: Shown | None
    last: Recorded | None
    first_at: str
    last_at: str
    trail: tuple[tuple[str, float], ...]


@final
@dataclass(frozen=True, kw_only=True)
class StatisticReport:
    """One statistic of a holdout.

    Attributes:
        step: Between two neighbouring answers, in user units.
        blocks: Blocks that a metric is averaged over; None for a mean of examples.
        ratio: Whether it is a quotient of two means.
        unclaimed: Whether its denominator may be 0: nothing is claimed before closing.
        tolerance: The certificate's, in user units; ``share`` is the same normalised.
        drawn: Answers for the chart, in order; ``left_out`` others are not in it.
        runs: The best first; ``runs_left_out`` others are not in it.
        runs_released: How many of all runs have a release.
    """

    name: str
    low: float
    high: float
    mode: str
    units: int
    step: float
    blocks: int | None
    ratio: bool
    unclaimed: bool
    tolerance: float
    share: float
    guess_tolerance: float | None
    releases: int
    guesses: int
    best: Shown | None
    drawn: tuple[Shown, ...]
    left_out: int
    runs: tuple[Run, ...]
    runs_left_out: int
    runs_released: int
    stale: tuple[Stale, ...]


@final
@dataclass(frozen=True, kw_only=True)
class HoldoutReport:
    """One holdout: its state, its certificate, its statistics and its latest questions.

    Attributes:
        prices: What the next run or release would cost and be worth.
        runs: The sealed runs with their times, the latest first.
        symbols: What the account has said on request.
        closing: What closing has published, all of it; None while the holdout is open.
        closed: The same as curves, thinned.
        unread: Older answers that were only counted; of them no value, run or time is here.
    """

    status: Status
    certificate: Certificate
    statistics: tuple[StatisticReport, ...]
    latest: tuple[Shown, ...]
    refused: int
    first_at: str | None
    last_at: str | None
    prices: Prices
    runs: tuple[DatedRun, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    closing: Closing | None = None
    closed: tuple[ClosedStatistic, ...] = ()
    unread: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything a report shows. It reads no secret, and no ledger has a raw value.

    Example:
        >>> report = summarise(Ledger("memory://"), failure=0.05)
        >>> isinstance(report, Report), report.holdouts, report.records
        (True, (), ())
    """

    ledger: str
    made_at: str
    version: str
    failure: float
    holdouts: tuple[HoldoutReport, ...]
    records: tuple[RecordsReport, ...]


def summarise(ledger: Ledger, failure: float = 0.05, name: str | None = None) -> Report:
    """Read a ledger, check its rows, and return its report; nothing is written or charged.

    ``failure`` is the probability that a certificate is wrong; ``name`` chooses the accounts of one
    name.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout.open(
        ...     "memory://of-one", name="val", size=500, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.01), budget=20)
        >>> [each.status.budget_left for each in summarise(Ledger("memory://of-one")).holdouts]
        [20]
    """
    require_failure(failure)
    holdouts, records = chosen(ledger, name)
    return Report(
        ledger=ledger.address,
        made_at=now(),
        version=library_version(),
        failure=float(failure),
        holdouts=tuple(_holdout(ledger, account, failure) for account in holdouts),
        records=tuple(records_report(ledger, account) for account in records),
    )


def chosen(ledger: Ledger, name: str | None) -> tuple[list[str], list[str]]:
    """Return the accounts of holdouts and of training records, or those of one name."""
    if not hasattr(ledger, "accounts") or not hasattr(ledger, "records_accounts"):
        require_instance("ledger", ledger, Ledger)
    holdouts, records = ledger.accounts(), ledger.records_accounts()
    if name is not None and (not isinstance(name, str) or name not in holdouts | records):
        raise HoldoutError(
            f"Expected one of the accounts {[*holdouts, *records]}, but got {displayed(name)}."
        )
    return (
        [account for own, account in holdouts.items() if name in (None, own)],
        [account for own, account in records.items() if name in (None, own)],
    )


def reading_of(ledger: Ledger, account: str) -> AccountReading:
    """Read a holdout's account, and check its rows."""
    return AccountReading(ledger.summary(account, check=True), ledger.address)


def pages_of(ledger: Ledger, account: str, summary: Summary) -> Iterator[list[Recorded]]:
    """Yield the answers that a summary counts, without later ones, so many at once."""
    for start in range(0, summary.queries, READ):
        yield ledger.answers(account, after=start, limit=min(READ, summary.queries - start))


def _latest(ledger: Ledger, account: str, summary: Summary) -> list[Recorded]:
    start = max(0, summary.queries - READ)
    return ledger.answers(account, after=start, limit=summary.queries - start)


def shown(answer: Recorded, intervals: Intervals) -> Shown:
    """Return an answer with its interval."""
    interval = intervals.of(answer)
    return Shown(**vars(answer), low=interval.low, high=interval.high)


def _holdout(ledger: Ledger, account: str, failure: float) -> HoldoutReport:
    reading = reading_of(ledger, account)
    status, certificate = reading.status, reading.certificate(failure)
    prices = reading.prices(Asked(failure=failure), ledger.compared(account))
    answers = _latest(ledger, account, reading.summary)
    totals = ledger.totals(account) if len(answers) < reading.summary.queries else None
    refusals = ledger.refusals(account) if status.exhausted else []
    released = sum(answer.kind == "release" for answer in answers)
    intervals = reading.intervals(answers, failure, reading.summary.releases - released)
    registered = reading.summary.registered.statistics
    closing = published(ledger, account, reading, failure)
    return HoldoutReport(
        status=status,
        certificate=certificate,
        statistics=tuple(
            _with_totals(
                _statistic(name, registered, certificate, answers, refusals, intervals), totals
            )
            for name in registered
        ),
        unread=reading.summary.queries - len(answers),
        latest=tuple(shown(answer, intervals) for answer in reversed(answers[-LATEST:])),
        refused=sum(refusal.count for refusal in refusals),
        first_at=ledger.answers(account, limit=1)[0].asked_at if answers else None,
        last_at=_last(answers, refusals) if answers else None,
        prices=prices,
        runs=dated_runs(reading, ledger.run_times(account), prices) if status.runs else (),
        symbols=reading.summary.symbols,
        closing=closing,
        closed=closed_statistics(reading, closing, ledger.answers(account) if closing else ()),
    )


def _with_totals(
    statistic: StatisticReport, totals: dict[tuple[str, str], int] | None
) -> StatisticReport:
    """Count all answers, also those that were not read."""
    if totals is None:
        return statistic
    releases = totals.get((statistic.name, "release"), 0)
    return replace(statistic, releases=releases, guesses=totals.get((statistic.name, "guess"), 0))


def _statistic(
    name: str,
    statistics: dict[str, StoredStatistic],
    certificate: Certificate,
    answers: list[Recorded],
    refusals: list[Refusal],
    intervals: Intervals,
) -> StatisticReport:
    registered, most = statistics[name], max(60, DRAWN // len(statistics))
    answers = [answer for answer in answers if answer.statistic == name]
    refusals = [refusal for refusal in refusals if refusal.statistic == name]
    released = [answer for answer in answers if answer.kind == "release"]
    guessed = [answer for answer in answers if answer.kind != "release"]
    best = _best(answers, registered.mode)
    drawn = {a.position: a for a in [*thinned(released, most), *thinned(guessed, most // 2)]}
    if best is not None:
        drawn[best.position] = best
    width = registered.high - registered.low
    runs = _runs(answers, refusals, registered.mode)
    last_of = {answer.run: answer.value for answer in answers}
    return StatisticReport(
        name=name,
        low=registered.low,
        high=registered.high,
        mode=registered.mode,
        units=registered.units,
        step=width / registered.grid,
        blocks=registered.blocks,
        ratio=registered.is_ratio,
        unclaimed=name in certificate.unclaimed,
        tolerance=certificate.user_tolerance[name],
        share=certificate.user_tolerance[name] / width,
        guess_tolerance=certificate.user_guess_tolerance.get(name),
        releases=len(released),
        guesses=len(guessed),
        best=None if best is None else shown(best, intervals),
        drawn=tuple(shown(drawn[position], intervals) for position in sorted(drawn)),
        left_out=len(answers) - len(drawn),
        runs=tuple(
            _run(run, own, refused, registered.mode, intervals) for run, own, refused in runs[:RUNS]
        ),
        runs_left_out=max(0, len(runs) - RUNS),
        runs_released=len({answer.run for answer in released}),
        stale=tuple(Stale(**vars(late), value=last_of.get(late.run)) for late in refusals),
    )


def _best(answers: Sequence[Recorded], mode: str) -> Recorded | None:  # the earliest of equals
    sign = 1 if mode == "max" else -1
    released = [answer for answer in answers if answer.kind == "release"]
    return max(released, key=lambda a: (sign * a.value, -a.position), default=None)


def _last(answers: list[Recorded], refusals: list[Refusal]) -> str:
    return max([a.asked_at for a in answers[-1:]] + [r.last_at for r in refusals])


def _runs(
    answers: list[Recorded], refusals: list[Refusal], mode: str
) -> list[tuple[str | None, list[Recorded], list[Refusal]]]:
    runs: dict[str | None, tuple[list[Recorded], list[Refusal]]] = {}
    for answer in answers:
        runs.setdefault(answer.run, ([], []))[0].append(answer)
    for refusal in refusals:
        runs.setdefault(refusal.run, ([], []))[1].append(refusal)

    def rank(run: str | None) -> float:
        best = _best(runs[run][0], mode)
        return math.inf if best is None else best.value if mode == "min" else -best.value

    return [(run, *runs[run]) for run in sorted(runs, key=rank)]


def _run(
    name: str | None,
    answers: list[Recorded],
    refusals: list[Refusal],
    mode: str,
    intervals: Intervals,
) -> Run:
    releases = sum(answer.kind == "release" for answer in answers)
    best = _best(answers, mode)
    return Run(
        name=name,
        questions=len(answers),
        releases=releases,
        guesses=len(answers) - releases,
        refused=sum(refusal.count for refusal in refusals),
        best=None if best is None else shown(best, intervals),
        last=answers[-1] if answers else None,
        first_at=min([a.asked_at for a in answers[:1]] + [r.first_at for r in refusals]),
        last_at=_last(answers, refusals),
        trail=tuple((answer.kind, answer.value) for answer in thinned(answers, TRAIL)),
    )
