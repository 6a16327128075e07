"""Status, certificate and intervals of an account, from its counters: all of it public."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import final

from torch_holdout._noise.gaussian import gaussian_error
from torch_holdout._noise.laplace import sampler_error
from torch_holdout._shared.checks import require_instance
from torch_holdout.accounting import Charge, PrivacyLoss, compose
from torch_holdout.accounting.compose import sampling_delta
from torch_holdout.bounds.assumptions import assumptions_about
from torch_holdout.bounds.certificate import (
    Certificate,
    Interval,
    Transcript,
    answer_interval,
    certify_transcript,
)
from torch_holdout.bounds.channels import Channel
from torch_holdout.bounds.sealed_certificate import (
    ERASED,
    SHOWN,
    SHOWN_IF_ASKED,
    RunFacts,
    certify_sealed,
)
from torch_holdout.errors import HoldoutError, InvalidArgumentError, LedgerError
from torch_holdout.holdout.prices import Prices
from torch_holdout.holdout.pricing import Asked, SealedPricing, live_prices
from torch_holdout.holdout.results import Answer, RunStatus, Status
from torch_holdout.holdout.run_results import shares_taken
from torch_holdout.ledger import Ledger, Recorded, Summary
from torch_holdout.ledger.chains import public_mark
from torch_holdout.ledger.challenges import challenges_of, incumbents_after, query_mark
from torch_holdout.ledger.registration import UNREADABLE
from torch_holdout.ledger.run_events import marked_run
from torch_holdout.ledger.symbols import Said, records_said, symbols_said
from torch_holdout.mechanisms import Mechanism
from torch_holdout.mechanisms.private_patience import PrivatePatience
from torch_holdout.mechanisms.sealed import Sealed


@final
class AccountReading:
    """An account as its counters show it, with all statistics, also those that were added later.

    Args:
        summary: The account's counters.
        address: Its ledger, as it may be shown.
        mechanism: The holdout's own; None to read the registered one (``LedgerError`` if that
            cannot be read).
    """

    def __init__(self, summary: Summary, address: str, mechanism: Mechanism | None = None) -> None:
        self.summary = summary
        self._registered = summary.registered
        self._address = address
        self._own = mechanism is not None
        with self.readable():
            self.mechanism = self._registered.mechanism() if mechanism is None else mechanism

    @cached_property
    def status(self) -> Status:
        """Budget, counts and privacy."""
        with self.readable():
            summary, registered, mechanism = self.summary, self._registered, self.mechanism
            epsilon = compose(self._charges, registered.delta).epsilon
            if summary.closed == "exact":
                epsilon = math.inf  # whatever the noise was
            in_epsilon = mechanism.currency == "epsilon"
            spent = math.inf if summary.spent is None else summary.spent
            sealed = isinstance(mechanism, Sealed)
            if isinstance(mechanism, Sealed):
                costs = (
                    mechanism.epsilon_spent(r.passes, r.patience, r.best) for r in summary.runs
                )
                spent = math.fsum(costs) if mechanism.epsilon is not None else math.inf
            evaluations = sum(run.evaluations for run in summary.runs)
            taken = shares_taken(summary.runs) if sealed else summary.releases
            return Status(
                name=summary.name,
                size=registered.size,
                queries=evaluations if sealed else summary.queries,
                releases=taken,
                guesses=0 if sealed else summary.queries - summary.releases,
                budget=summary.budget,
                budget_left=summary.budget - taken,
                exhausted=taken >= summary.budget,
                unit="run" if sealed else "release",
                closed=summary.closed != "open",
                nats=self._nats(),
                incumbents=self._incumbents(),
                runs=self._runs(),
                prices=SealedPricing(summary, mechanism, Asked()).line
                if isinstance(mechanism, Sealed)
                else "",
                epsilon=epsilon,
                epsilon_spent=spent if in_epsilon and not math.isinf(epsilon) else math.inf,
                rho_spent=None if in_epsilon else spent,
                delta=registered.delta,
                sampler_error=self._sampler_error(epsilon),
                rounds=summary.rounds,
                seeded=registered.seeded,
                renaming_detected=summary.fingerprinted,
                split_detected=summary.sketched,
                ledger=self._address,
                account=summary.account,
                cost_per_release={
                    name: mechanism.release_charge(statistic.units)
                    for name, statistic in registered.statistics.items()
                },
                mechanism=registered.mechanism_identity,
                statistics=registered.content["statistics"],
            )

    @cached_property
    def transcript(self) -> Transcript:
        """The counters a certificate depends on."""
        with self.readable():
            summary, registered = self.summary, self._registered
            # A replaced example must be one unit for every statistic, and the noise unknown.
            cuts = {statistic.cut for statistic in registered.statistics.values()}
            counts = len(cuts) == 1 and self.mechanism.is_private() and not registered.seeded
            return Transcript(
                queries=summary.queries,
                releases=summary.releases,
                last_release=summary.last_release,
                budget=summary.budget,
                rounds=summary.budget + len(registered.units) - 1,
                planned=registered.planned,
                loss=PrivacyLoss(tuple(self._charges)) if counts else None,
            )

    @cached_property
    def channels(self) -> dict[str, Channel]:
        """How each statistic's value becomes an answer."""
        with self.readable():
            return {
                name: self.mechanism.channel(
                    units=statistic.units,
                    resolution=self._registered.resolution,
                    grid=statistic.grid,
                    mode=statistic.mode,
                    low=statistic.low,
                    width=statistic.high - statistic.low,
                    quotient=statistic.quotient if statistic.is_ratio else None,
                )
                for name, statistic in self._registered.statistics.items()
            }

    def require_readable(self) -> None:
        """Raise ``LedgerError`` unless every registered parameter can be read."""
        with self.readable():
            _ = self._registered.size, self._registered.delta, self.transcript, self.channels

    def certificate(self, failure: float) -> Certificate:
        """Return how far the published values can be from the population."""
        with self.readable():
            if isinstance(self.mechanism, Sealed):
                return self.sealed_certificate(self._facts(self.mechanism), failure)
            claim = certify_transcript(self.transcript, self.channels, failure)
            return replace(claim, assumptions=self.assumptions)

    def prices(self, asked: Asked, compared: Mapping[str, int]) -> Prices:
        """Return what the next run or release would cost and be worth.

        ``compared``: by statistic, how many ended runs have values (``Ledger.compared``).
        """
        with self.readable():
            summary, mechanism = self.summary, self.mechanism
            if isinstance(mechanism, Sealed):
                return SealedPricing(summary, mechanism, asked, compared).prices
            return live_prices(summary, mechanism, self.transcript, self.channels, asked)

    def interval(self, answer: Recorded, releases_before: int, failure: float) -> Interval:
        """Return the confidence interval of one recorded answer."""
        with self.readable():
            return answer_interval(
                self.transcript,
                self.channels,
                statistic=answer.statistic,
                position=answer.position,
                releases_before=releases_before,
                kind=answer.kind,
                value=answer.value,
                failure=failure,
            )

    def intervals(
        self, answers: Sequence[Recorded], failure: float, before: int = 0
    ) -> "Intervals":
        """Return the intervals of the account's answers, each computed when it is asked for.

        ``before``: how many releases came before the first of them.
        """
        return Intervals(self, answers, failure, before)

    def sealed_certificate(self, runs: Sequence[RunFacts], failure: float) -> Certificate:
        """Return what closing will be worth for some runs of a sealed account."""
        with self.readable():
            mechanism, registered = self.mechanism, self._registered
            if not isinstance(mechanism, Sealed):
                raise InvalidArgumentError("Expected a sealed account, but it shows values.")
            statistics = registered.statistics
            claim = certify_sealed(
                runs,
                units={name: statistic.units for name, statistic in statistics.items()},
                widths={name: own.high - own.low for name, own in statistics.items()},
                quotients=registered.quotients,
                resolution=registered.resolution,
                budget=self.summary.budget,
                evaluations=mechanism.evaluations,
                failure=failure,
                shown=self._shown(mechanism),
            )
            return replace(claim, assumptions=self.assumptions)

    def _shown(self, mechanism: Sealed) -> str:
        if mechanism.epsilon is None or self.summary.closed == "exact":
            return SHOWN
        return ERASED if self.summary.closed == "private" else SHOWN_IF_ASKED

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the account's claims assume, by the units of its statistics."""
        statistics = self._registered.statistics
        groups = {name: own.units for name, own in statistics.items() if own.counts_groups}
        sizes = {name: own.content.get("batch_size") for name, own in statistics.items()}
        batches = {name: size for name, size in sizes.items() if isinstance(size, int)}
        return assumptions_about(groups, len(statistics) - len(groups), batches)

    def said(self, mechanism: Sealed) -> Said:
        """Return what runs and symbols have said so far."""
        return Said(self.summary.runs, symbols_said(self.summary.symbols), mechanism)

    def _facts(self, mechanism: Sealed) -> list[RunFacts]:
        said = self.said(mechanism)
        return [
            RunFacts(run.share, run.evaluations, said.by_others(run.run))
            for run in self.summary.runs
            if run.share is not None
        ]

    def _runs(self) -> tuple[RunStatus, ...]:
        mechanism = self.mechanism
        if not isinstance(mechanism, Sealed):
            return ()
        records = records_said(self.summary.symbols)
        return tuple(
            RunStatus(
                number=run.run,
                name=run.label,
                state=run.state,
                evaluations=run.evaluations,
                passes=run.passes,
                best_evaluation=run.best,
                nats=run.said(mechanism),
                id=marked_run(self.summary.account, run.run),
                record=records.get(run.run),
                closed=self.summary.closed != "open",
            )
            for run in self.summary.runs
        )

    def _nats(self) -> dict[str, float]:
        """Return what was said: by runs, by how they ended; by symbols, by their kind."""
        said: dict[str, float] = {}
        for run in self._runs():
            said[run.state] = said.get(run.state, 0.0) + run.nats
        for symbol in self.summary.symbols:
            said[symbol.kind] = said.get(symbol.kind, 0.0) + symbol.nats
        return said

    def _incumbents(self) -> dict[str, str]:
        """Return the public id of each statistic's incumbent."""
        symbols = (symbol for symbol in self.summary.symbols if symbol.kind == "challenge")
        kept = incumbents_after(challenges_of(symbols))
        return {name: query_mark(name, own.query) for name, own in kept.items()}

    def _sampler_error(self, epsilon: float) -> float:
        """Bound what inexact sampling adds to delta; without an epsilon, the total variation."""
        resolution = self._registered.resolution
        if isinstance(self.mechanism, Sealed):
            if self.mechanism.epsilon is None:
                return 0.0
            rule = PrivatePatience(epsilon=self.mechanism.epsilon, resolution=resolution)
            drawn = sum(rule.sampler_error(run.passes) for run in self.summary.runs)
            return drawn if math.isinf(epsilon) else sampling_delta(epsilon, drawn)
        scales = [self.mechanism.noise_scale(u, resolution) for u in self._registered.units]
        if self.mechanism.currency == "epsilon":
            one_query = 3 * max(sampler_error(4 * scale) for scale in scales)
        else:
            one_query = max(gaussian_error(scale) for scale in scales)
        variation = self.summary.queries * one_query
        return variation if math.isinf(epsilon) else sampling_delta(epsilon, variation)

    @cached_property
    def _charges(self) -> list[Charge]:
        return self.mechanism.budget_charges(self._registered.units, self.summary.budget)

    @contextlib.contextmanager
    def readable(self) -> Iterator[None]:
        """Turn an error of reading registered parameters into ``LedgerError``."""
        try:
            yield
        except HoldoutError:
            raise
        except UNREADABLE:
            if self._own:  # an error of the user's mechanism
                raise
            raise LedgerError(
                f"Expected readable parameters of holdout {self.summary.name!r} in "
                f"{self._address}, but they were edited or damaged. Nothing was repaired. Restore "
                f"the ledger from a backup."
            ) from None


def own_interval(
    given: Answer, ledger: Ledger, account: str, mechanism: Mechanism, failure: float
) -> Interval:
    """Return the interval of one answer, read by its position; raise unless the account gave it."""
    require_instance("answer", given, Answer)
    if given.account not in (None, public_mark(account)):
        raise InvalidArgumentError(
            "Expected an answer of this holdout's account, but this one was given by another "
            "account, whose width and history differ. Ask the holdout that gave it."
        )
    found = ledger.answer(account, given.position) if isinstance(given.position, int) else None
    if found is None or found[1].value != given.value:
        raise InvalidArgumentError(
            "Expected an answer that is in this holdout's ledger, but got another one. Exhausted "
            "and stale values certify nothing."
        )
    summary, answer, releases_before = found
    if given.statistic not in (None, answer.statistic):
        raise InvalidArgumentError(
            f"Expected an answer of statistic {answer.statistic!r}, which this query of the ledger "
            f"is about, but this one is of {given.statistic!r}. Pass the answer as it was given."
        )
    return AccountReading(summary, ledger.address, mechanism).interval(
        answer, releases_before, failure
    )


@final
class Intervals:
    """Confidence intervals of an account's answers; each takes a millisecond, once."""

    def __init__(
        self, reading: AccountReading, answers: Sequence[Recorded], failure: float, before: int
    ) -> None:
        self._reading = reading
        self._answers = answers
        self._failure = failure
        releases = accumulate((answer.kind == "release" for answer in answers), initial=before)
        self._releases_before = {a.position: n for a, n in zip(answers, releases, strict=False)}
        self._known: dict[int, Interval] = {}

    def of(self, answer: Recorded) -> Interval:
        """Return the interval of one of the answers."""
        if answer.position not in self._known:
            before = self._releases_before[answer.position]
            self._known[answer.position] = self._reading.interval(answer, before, self._failure)
        return self._known[answer.position]

    def all(self) -> list[Interval]:
        """Return the interval of each answer, in the order of the ledger."""
        return [self.of(answer) for answer in self._answers]
