"""What closing publishes: the account is closed, its sums are read, each gets its interval."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from torch_holdout.bounds.certificate import position_bracket
from torch_holdout.bounds.closing import closing_interval
from torch_holdout.bounds.ratios import quotient_interval
from torch_holdout.bounds.sealed_runs import evaluation_bracket
from torch_holdout.errors import LedgerError
from torch_holdout.holdout.challenge_results import said_challenges
from torch_holdout.holdout.closing import ClosedRun, ClosedValue, Closing
from torch_holdout.holdout.incumbents import forget_incumbents
from torch_holdout.holdout.reading import AccountReading
from torch_holdout.holdout.run_checks import shows_exactly, sums_are_gone
from torch_holdout.holdout.run_results import outcome_of
from torch_holdout.ledger import Ledger, Recorded
from torch_holdout.ledger.registration import StoredRegistration
from torch_holdout.ledger.run_events import (
    LIVE,
    RATIO_PARTS,
    StoredRun,
    Sums,
    part_names,
    run_mark,
)
from torch_holdout.ledger.sealed_runs import StoredClosing
from torch_holdout.ledger.symbols import records_said
from torch_holdout.mechanisms import Mechanism
from torch_holdout.mechanisms.sealed import Sealed


def closed(
    ledger: Ledger,
    account: str,
    mechanism: Mechanism,
    *,
    budget: int,
    exact: bool | None,
    seeded: bool,
) -> StoredClosing:
    """Close an account, unless it is closed already; return what was published."""
    shown = shows_exactly(mechanism, exact)
    if ledger.closing(account) is None:
        with ledger.account(account, budget=budget) as opened:
            if opened.runs.closed_at is None:  # another process may have been faster
                opened.runs.close(exact=shown, seeded=seeded)
    stored = ledger.closing(account)
    if stored is None:
        raise LedgerError("Expected a closed account, but its closing was not written.")
    forget_incumbents(ledger.address, account)
    if exact and not stored.exact:
        raise sums_are_gone()
    return stored


def close_account(
    ledger: Ledger, account: str, *, exact: bool | None = None, failure: float = 0.05
) -> Closing:
    """Close an account by its stored registration, without the statistics of a handle."""
    reading = AccountReading(ledger.summary(account, check=True), ledger.address)
    with reading.readable():
        budget, seeded = reading.summary.budget, reading.summary.registered.seeded
    stored = closed(ledger, account, reading.mechanism, budget=budget, exact=exact, seeded=seeded)
    return closing_of(reading, stored, ledger.answers(account), account, failure)


def published(
    ledger: Ledger, account: str, reading: AccountReading, failure: float
) -> Closing | None:
    """Return what closing has published; None while the account is open. Nothing is written."""
    stored = ledger.closing(account)
    if stored is None:
        return None
    return closing_of(reading, stored, ledger.answers(account), account, failure)


def closing_of(
    reading: AccountReading,
    stored: StoredClosing,
    answers: Sequence[Recorded],
    account: str,
    failure: float,
) -> Closing:
    """Put together what closing has published, with intervals at a probability of failure."""
    with reading.readable():
        registered = reading.summary.registered
        statistics = registered.statistics
        runs: list[ClosedRun] = []
        if isinstance(reading.mechanism, Sealed):
            found = _sealed_values(reading, reading.mechanism, stored, failure)
            records = records_said(reading.summary.symbols)
            runs = [
                _closed_run(run, reading.mechanism, account, records.get(run.run))
                for run in stored.runs
            ]
        else:
            found = _live_values(reading, stored, answers, failure)
        return Closing(
            name=reading.summary.name,
            size=registered.size,
            failure=failure,
            exact=stored.exact,
            closed_at=stored.closed_at,
            runs=tuple(runs),
            values=tuple(sorted(found, key=lambda v: (v.run, v.evaluation))),
            modes={name: statistic.mode for name, statistic in statistics.items()},
            challenges=said_challenges(reading.summary.symbols),
            seeded=registered.seeded,
            assumptions=reading.assumptions,
        )


def _sealed_values(
    reading: AccountReading, mechanism: Sealed, stored: StoredClosing, failure: float
) -> Iterator[ClosedValue]:
    registered = reading.summary.registered
    shares = {run.run: run.share for run in stored.runs}
    for event in stored.evaluations:
        share, number = shares[event.run], event.evaluation
        for name in event.content["sums"]:
            known = (event.run, number or 0, name) in stored.sums
            if not known or share is None or number is None:
                continue  # erased
            bracket = evaluation_bracket(
                failure=failure,
                run=share,
                runs=registered.budget,
                evaluation=number,
                evaluations=mechanism.evaluations,
                statistics=len(registered.statistics),
                others=event.nats or 0.0,
            )
            value = _value(name, registered, stored, (event.run, number), bracket)
            yield replace(value, step=event.step)


def _live_values(
    reading: AccountReading, stored: StoredClosing, answers: Sequence[Recorded], failure: float
) -> Iterator[ClosedValue]:
    registered = reading.summary.registered
    releases = accumulate((answer.kind == "release" for answer in answers), initial=0)
    # With noise the intervals of releases hold at once, and so do those of guesses: half for each.
    share = failure / 2 if reading.mechanism.is_private() else failure
    for answer, before in zip(answers, releases, strict=False):
        name, position = answer.statistic, answer.position
        if (LIVE, position, name) not in stored.sums:
            known = reading.interval(answer, before, share)
            yield ClosedValue(
                run=LIVE,
                evaluation=position,
                statistic=name,
                value=answer.value,
                low=known.low,
                high=known.high,
                exact=False,
            )
            continue
        bracket = position_bracket(
            reading.transcript, reading.channels, name, position, before, failure
        )
        yield _value(name, registered, stored, (LIVE, position), bracket)


def _value(
    name: str,
    registered: StoredRegistration,
    stored: StoredClosing,
    where: tuple[int, int],
    bracket: float,
) -> ClosedValue:
    statistic, resolution = registered.statistics[name], registered.resolution
    if statistic.is_ratio:
        sums = [stored.sums[(*where, part)] for part in part_names(name)]
        return _ratio(name, registered, where, sums, bracket)
    own = stored.sums[(*where, name)]
    # A subclass may have units of its own, which are not examples.
    as_registered = statistic.units == registered.size or not statistic.counts_examples
    low, high = closing_interval(
        kind=statistic.interval_kind if as_registered else "blocks",
        total=own.total,
        squares=own.squares,
        units=statistic.units,
        resolution=resolution,
        bracket=bracket,
    )
    mean = own.total / (statistic.units * resolution)
    width = statistic.high - statistic.low
    value, low, high = (statistic.low + width * x for x in (mean, low, high))
    run, evaluation = where
    return ClosedValue(
        run=run, evaluation=evaluation, statistic=name, value=value, low=low, high=high
    )


def _ratio(
    name: str,
    registered: StoredRegistration,
    where: tuple[int, int],
    sums: Sequence[Sums],
    bracket: float,
) -> ClosedValue:
    """Return the quotient of two exact sums, in the quotient of their intervals."""
    units, resolution = registered.statistics[name].units, registered.resolution
    quotient, largest = registered.statistics[name].quotient, units * resolution
    run, evaluation = where
    parts = []
    for called, part, own in zip(
        RATIO_PARTS, (quotient.numerator, quotient.denominator), sums, strict=True
    ):
        low, high = part.interval(own.total, own.squares, units, resolution, bracket)
        value = float(part.exact(own.total, largest))
        parts.append(
            ClosedValue(
                run=run,
                evaluation=evaluation,
                statistic=f"{name} {called}",
                value=value,
                low=low,
                high=high,
            )
        )
    above, below = ((part.low, part.high) for part in parts)
    low, high = quotient_interval(above, below, quotient.low, quotient.high)
    return ClosedValue(
        run=run,
        evaluation=evaluation,
        statistic=name,
        value=quotient.value(sums[0].total, sums[1].total, largest),
        low=low,
        high=high,
        parts=tuple(parts),
    )


def _closed_run(run: StoredRun, mechanism: Sealed, account: str, record: bool | None) -> ClosedRun:
    mark = run_mark(account, run.run)
    return ClosedRun(
        number=run.run,
        name=run.label,
        outcome=outcome_of(run, mechanism, mark, record),
        evaluations=run.evaluations,
        statistic=run.statistic,
        weights=run.weights,
        id=mark,
    )
