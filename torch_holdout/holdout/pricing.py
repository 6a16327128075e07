"""Prices of an account, worked out from its counters: all of them are public."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

from torch_holdout._shared.checks import require_failure, require_instance, require_whole
from torch_holdout.bounds.certificate import (
    SMALLEST_FAILURE,
    Certificate,
    Transcript,
    certify_transcript,
)
from torch_holdout.bounds.channels import Channel
from torch_holdout.bounds.sealed_certificate import RunFacts, certify_sealed
from torch_holdout.bounds.single_query import hoeffding
from torch_holdout.bounds.symbols import kt_price, worst_kt_price, worst_record_price
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.prices import HalfWidths, NextEvaluation, Price, Prices
from torch_holdout.holdout.run_results import shares_taken
from torch_holdout.ledger import Summary
from torch_holdout.ledger.registration import StoredRegistration, StoredStatistic
from torch_holdout.ledger.symbols import Said, Symbol, SymbolKind, symbols_said
from torch_holdout.mechanisms import Mechanism, Patience
from torch_holdout.mechanisms.patience import LONGEST
from torch_holdout.mechanisms.sealed import Sealed

_MOST = 10**9  # evaluations


@final
@dataclass(frozen=True, kw_only=True)
class Asked:
    """The next run that prices are asked for.

    Attributes:
        failure: The probability that a half-width does not hold.
        stop: What would stop it; None: prices of runs with one are for any.
        evaluations: How many it makes; None: as many as are planned.
    """

    failure: float = 0.05
    stop: Patience | None = None
    evaluations: int | None = None

    def __post_init__(self) -> None:
        require_failure(self.failure, SMALLEST_FAILURE)
        if self.stop is not None:
            require_instance("stop", self.stop, Patience)
        if self.evaluations is not None:
            require_whole("evaluations", self.evaluations, 1, _MOST)


@final
@dataclass(frozen=True)
class SealedPricing:
    """The prices of a sealed account; ``compared``: its ended runs with values, by statistic."""

    summary: Summary
    mechanism: Sealed
    asked: Asked
    compared: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stop = self.asked.stop
        if stop is not None and stop.statistic not in self._statistics:
            raise InvalidArgumentError(
                f"Expected a patience with one of the statistics {list(self._statistics)}, but got "
                f"{stop.statistic!r}. Nothing was charged."
            )

    @property
    def prices(self) -> Prices:
        """What the next run would say and be worth, for each choice of what it shows."""
        return self._prices(self._choices())

    @property
    def line(self) -> str:
        """The same in one line, for a silent run; empty where no run can begin."""
        return self._prices([self._silent] if self._left else []).line

    def _prices(self, choices: Iterable[Price]) -> Prices:
        summary, closed = self.summary, self.summary.closed != "open"
        can_begin = self._left > 0 and not closed
        return Prices(
            name=summary.name,
            size=summary.registered.size,
            failure=float(self.asked.failure),
            unit="run",
            budget=summary.budget,
            left=self._left,
            closed=closed,
            evaluations=self._evaluations,
            said=self._said.by_others(None),
            cost=self.mechanism.epsilon_per_step(1),
            currency="epsilon",
            fresh=_fresh(summary.registered, self.asked.failure),
            next=self._next if can_begin else None,
            choices={price.shows: price for price in choices} if can_begin else {},
            open_runs=() if closed else tuple(self._open_runs()),
        )

    @property
    def _statistics(self) -> dict[str, StoredStatistic]:
        return self.summary.registered.statistics

    @property
    def _evaluations(self) -> int:
        planned = self.mechanism.evaluations
        return planned if self.asked.evaluations is None else int(self.asked.evaluations)

    @cached_property
    def _said(self) -> Said:
        symbols = symbols_said(self.summary.symbols)
        return Said(self.summary.runs, symbols, self.mechanism)

    @cached_property
    def _left(self) -> int:
        return self.summary.budget - shares_taken(self.summary.runs)

    def _share(self, of: Iterable[int]) -> int:
        """Return the first share that no run has taken."""
        taken = {run.share for run in self.summary.runs}
        return next(share for share in of if share not in taken)

    @property
    def _next(self) -> HalfWidths:
        """What the next run is worth: it takes the lowest share."""
        lowest = self._share(range(1, self.summary.budget + 1))
        return self._worth(lowest, self._evaluations, self._said.by_others(None))

    def _last(self, between: float, evaluation: int | None = None) -> HalfWidths:
        """Return what the last run of the budget is worth, after that many more nats."""
        highest = self._share(range(self.summary.budget, 0, -1))
        said = self._said.by_others(None) + between
        return self._worth(highest, evaluation or self._evaluations, said)

    def _worth(self, share: int, evaluation: int, said: float) -> HalfWidths:
        registered = self.summary.registered
        claim = certify_sealed(
            [RunFacts(share, evaluation, said)],
            units={name: own.units for name, own in self._statistics.items()},
            widths={name: own.high - own.low for name, own in self._statistics.items()},
            quotients=registered.quotients,
            resolution=registered.resolution,
            budget=self.summary.budget,
            evaluations=self.mechanism.evaluations,
            failure=self.asked.failure,
        )
        return _half_widths(claim, registered)

    def _open_runs(self) -> Iterable[NextEvaluation]:
        for run in self.summary.runs:
            if run.state == "open" and run.share is not None:
                others = self._said.by_others(run.run)
                yield NextEvaluation(
                    run=run.run,
                    evaluation=run.evaluations + 1,
                    pays=others,
                    worth=self._worth(run.share, run.evaluations + 1, others),
                )

    def _choices(self) -> Iterable[Price]:
        if not self._left:
            return
        yield self._silent
        if self.mechanism.epsilon is None:
            yield from self._records()
            yield self._winner
        yield from self._with_stop()
        if any(symbol.kind == "challenge" for symbol in self.summary.symbols):
            yield from self._challenges()

    @property
    def _silent(self) -> Price:
        return self._alike("nothing", 0.0)

    def _alike(
        self, shows: str, nats: float, *, exact: bool = True, passes: int | None = None
    ) -> Price:
        """Return a price that every run until the last one has too."""
        last = self._last((self._left - 1) * nats)
        return Price(shows=shows, nats=nats, exact=exact, passes=passes, last=last)

    def _compared(self, kind: SymbolKind) -> int:
        """Return how many runs a symbol after the next one compares: it and all that have ended.

        It is taken to have values of the statistic that decides: a record by its own, by default
        the first; the winner by that of the account's first run.
        """
        stop, runs = self.asked.stop, self.summary.runs
        decides = next(iter(self._statistics)) if stop is None else stop.statistic
        if kind == "winner" and runs:
            decides = runs[0].statistic
        return 1 + self.compared.get(decides, 0)

    def _records(self) -> Iterable[Price]:
        """Yield the record bit: one price for each outcome, then the dearest outcomes."""
        compared = self._compared("record")
        for shows, bit in (("record", True), ("no record", False)):
            if not bit and compared == 1:
                return  # the first run is a record for certain
            symbol = self._symbol("record", bit)
            most, more = symbol.nats, self._left - 2
            if more > 0:
                so_far = symbol.tally.price("record")
                worst = worst_record_price(
                    symbol.tally.rank,
                    symbol.tally.ones,
                    symbol.tally.zeros,
                    compared=compared + 1,
                    more=more,
                )
                most += worst - so_far
            last = self._last(most if self._left > 1 else 0.0)
            yield Price(shows=shows, nats=symbol.nats, last=last)

    def _challenges(self) -> Iterable[Price]:
        """Yield the bit of one more challenge, which is a run of one evaluation."""
        for shows, bit in (("kept", True), ("reverted", False)):
            symbol = self._symbol("challenge", bit)
            ones, zeros = symbol.tally.ones, symbol.tally.zeros
            most = worst_kt_price(ones, zeros, max(0, self._left - 2)) - kt_price(ones, zeros)
            last = self._last(symbol.nats + most if self._left > 1 else 0.0, evaluation=1)
            yield Price(shows=shows, nats=symbol.nats, last=last)

    @property
    def _winner(self) -> Price:
        # The product of the numbers of runs to choose among, until the last run begins.
        first, count = self._compared("winner"), self._left - 1
        between = math.lgamma(first + count) - math.lgamma(first)
        return Price(shows="winner", nats=self._symbol("winner", 1).nats, last=self._last(between))

    def _symbol(self, kind: SymbolKind, value: int) -> Symbol:
        """Return the symbol as the account would say it after the next run."""
        same = [symbol for symbol in self.summary.symbols if symbol.kind == kind]
        return Symbol.following(
            same[-1] if same else None,
            symbols_said(self.summary.symbols),
            kind=kind,
            run=len(self.summary.runs) + 1,
            value=value,
            choices=2 if kind == "challenge" else self._compared(kind),
            detail={},
        )

    def _with_stop(self) -> Iterable[Price]:
        """Yield how a run with a rule for stopping can end; without one given, for any rule."""
        stop, passes = self.asked.stop, self._evaluations
        (name, *_), known = self._statistics, stop is not None
        # Silence is dearest for the shortest patience, the best pass for the longest.
        shortest, longest = stop or Patience(name, 1), stop or Patience(name, min(passes, LONGEST))
        if passes >= shortest.earliest_stop:
            # With noise the best pass has a price too, which is lower for one of them.
            stopped = self._ending("stopped", passes, shortest, passes)
            exact = self.mechanism.epsilon is None
            yield self._alike("stopped", stopped, exact=exact, passes=passes)
        best = passes if passes > longest.after else None
        ended = self._ending("ended", passes, longest, best)
        yield self._alike("ended", ended, exact=known, passes=passes)
        given_up = self._ending("given_up", passes, shortest, None)
        yield self._alike("given up", given_up, exact=known, passes=passes)

    def _ending(self, state: str, passes: int, patience: Patience, best: int | None) -> float:
        return self.mechanism.price(state=state, passes=passes, patience=patience, best=best)


def live_prices(
    summary: Summary,
    mechanism: Mechanism,
    transcript: Transcript,
    channels: Mapping[str, Channel],
    asked: Asked,
) -> Prices:
    """Return what the next release of an account that answers with values would be worth.

    The last one of the budget is taken to come with the last planned query; without a plan, as soon
    as it can: a later one is worth less.
    """
    if asked.stop is not None or asked.evaluations is not None:
        raise InvalidArgumentError(
            f"Expected no `stop` and no `evaluations`, because holdout {summary.name!r} answers "
            f"with values and has no runs. Leave them out. Nothing was charged."
        )
    statistics = summary.registered.statistics
    left, closed = summary.budget - summary.releases, summary.closed != "open"

    def worth(releases: int, position: int) -> HalfWidths:
        made = summary.releases + releases
        after = replace(transcript, queries=position, releases=made, last_release=position)
        claim = certify_transcript(after, dict(channels), asked.failure)
        return _half_widths(claim, summary.registered)

    can_release = left > 0 and not closed
    last = max(summary.queries + left, transcript.planned or 0)
    return Prices(
        name=summary.name,
        size=summary.registered.size,
        failure=float(asked.failure),
        unit="release",
        budget=summary.budget,
        left=left,
        closed=closed,
        evaluations=1,
        said=0.0,
        cost=max(mechanism.release_charge(own.units) for own in statistics.values()),
        currency=mechanism.currency,
        fresh=_fresh(summary.registered, asked.failure),
        next=worth(1, summary.queries + 1) if can_release else None,
        choices={"release": Price(shows="release", nats=None, last=worth(left, last))}
        if can_release
        else {},
    )


def _half_widths(claim: Certificate, registered: StoredRegistration) -> HalfWidths:
    fresh = _fresh(registered, claim.failure)
    ratios = (width / fresh[name] for name, width in claim.user_tolerance.items())
    return HalfWidths(by_statistic=claim.user_tolerance, ratio=max(ratios))


def _fresh(registered: StoredRegistration, failure: float) -> dict[str, float]:
    bracket = math.log(2 / failure)
    return {
        name: own.quotient.tolerance(bracket, own.units, registered.resolution)
        if own.is_ratio
        else hoeffding(own.units, failure) * (own.high - own.low)
        for name, own in registered.statistics.items()
    }
