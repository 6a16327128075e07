"""From an account's counters to what a person wants to know: all of it public."""

import math
from collections.abc import Iterable, Sequence
from typing import final

from torch_holdout._noise.streams import sampler_error
from torch_holdout.accounting import PrivacyLoss, compose
from torch_holdout.accounting.compose import sampling_delta
from torch_holdout.bounds.certificate import (
    Certificate,
    Interval,
    Transcript,
    answer_interval,
    certify_transcript,
)
from torch_holdout.bounds.channels import Channel
from torch_holdout.errors import HoldoutError, InvalidArgumentError, LedgerError
from torch_holdout.holdout.results import Answer, Status
from torch_holdout.ledger import Recorded, Summary
from torch_holdout.mechanisms import Mechanism, mechanism_of


def status_of(summary: Summary, mechanism: Mechanism, address: str) -> Status:
    """Return budget, counts and privacy. All statistics of the account count, also added ones."""
    registered = summary.registration["statistics"]
    resolution, delta = summary.registration["resolution"], summary.registration["delta"]
    all_units = {s["units"] for s in registered.values()}
    epsilon = compose(mechanism.budget_charges(all_units, summary.budget), delta).epsilon
    in_epsilon = mechanism.currency == "epsilon"
    spent = math.inf if summary.spent is None else summary.spent
    # Gaussian draws are exact; the three Laplace draws of a query are not quite.
    scales = [mechanism.noise_scale(units, resolution) for units in all_units]
    per_draw = max(sampler_error(4 * scale) for scale in scales) if in_epsilon else 0.0
    return Status(
        name=summary.name,
        size=summary.registration["size"],
        queries=summary.queries,
        releases=summary.releases,
        guesses=summary.queries - summary.releases,
        budget=summary.budget,
        budget_left=summary.budget - summary.releases,
        exhausted=summary.releases >= summary.budget,
        epsilon=epsilon,
        epsilon_spent=spent if in_epsilon else math.inf,
        rho_spent=None if in_epsilon else spent,
        delta=delta,
        sampler_error=sampling_delta(epsilon, 3 * summary.queries * per_draw),
        rounds=summary.rounds,
        seeded=summary.registration["seeded"],
        renaming_detected=summary.fingerprinted,
        ledger=address,
        account=summary.account,
        cost_per_release={
            name: mechanism.release_charge(s["units"]) for name, s in registered.items()
        },
        mechanism=summary.registration["mechanism"],
        statistics=registered,
    )


def reading_of(summary: Summary, address: str, failure: float) -> tuple[Status, Certificate]:
    """Return status and certificate from the ledger alone, without the user's own parameters."""
    try:
        mechanism = mechanism_of(summary.registration["mechanism"])
        state = status_of(summary, mechanism, address)
        return state, certificate_of(summary, mechanism, failure)
    except HoldoutError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError):
        raise LedgerError(
            f"Expected readable parameters of holdout {summary.name!r} in {address}, but they were "
            f"edited or damaged. Nothing was repaired. Restore the ledger from a backup."
        ) from None


def certificate_of(summary: Summary, mechanism: Mechanism, failure: float) -> Certificate:
    """Return what the published values are worth."""
    facts = transcript_of(summary, mechanism)
    return certify_transcript(facts, channels_of(summary, mechanism), failure)


@final
class Intervals:
    """Where the population values of an account's answers lie; one takes a millisecond, once."""

    def __init__(
        self, summary: Summary, mechanism: Mechanism, answers: Iterable[Recorded], failure: float
    ) -> None:
        self._facts = transcript_of(summary, mechanism)
        self._channels = channels_of(summary, mechanism)
        self._failure = failure
        self._releases_before = _releases_before(answers)
        self._known: dict[int, Interval] = {}

    def of(self, answer: Recorded) -> Interval:
        """Return the interval of one of the answers."""
        if answer.position not in self._known:
            self._known[answer.position] = answer_interval(
                self._facts,
                self._channels,
                statistic=answer.statistic,
                position=answer.position,
                releases_before=self._releases_before[answer.position],
                kind=answer.kind,
                value=answer.value,
                failure=self._failure,
            )
        return self._known[answer.position]


def intervals_of(
    summary: Summary, mechanism: Mechanism, answers: Sequence[Recorded], failure: float
) -> list[Interval]:
    """Return the interval of each answer, in the order of the ledger."""
    intervals = Intervals(summary, mechanism, answers, failure)
    return [intervals.of(answer) for answer in answers]


def interval_of(answer: Answer, intervals: Iterable[Interval]) -> Interval:
    """Return the interval of an answer; one that is not in the ledger has none."""
    for interval in intervals:
        if interval.position == answer.position and interval.value == answer.value:
            return interval
    raise InvalidArgumentError(
        "Expected an answer that is in this holdout's ledger, but got another one. Exhausted and "
        "stale values certify nothing."
    )


def transcript_of(summary: Summary, mechanism: Mechanism) -> Transcript:
    """Return the counters a certificate depends on."""
    units = {s["units"] for s in summary.registration["statistics"].values()}
    loss = None
    # A replaced example must be one unit for every statistic, and the noise nobody's to know.
    cuts = {(s["units"], s.get("seed")) for s in summary.registration["statistics"].values()}
    if len(cuts) == 1 and mechanism.is_private() and not summary.registration["seeded"]:
        loss = PrivacyLoss(tuple(mechanism.budget_charges(units, summary.budget)))
    return Transcript(
        queries=summary.queries,
        releases=summary.releases,
        last_release=summary.last_release,
        budget=summary.budget,
        rounds=summary.budget + len(units) - 1,
        planned=summary.registration.get("planned"),
        loss=loss,
    )


def channels_of(summary: Summary, mechanism: Mechanism) -> dict[str, Channel]:
    """Return how each statistic's value becomes an answer."""
    return {
        name: mechanism.channel(
            units=s["units"],
            resolution=summary.registration["resolution"],
            grid=s["grid"],
            mode=s["mode"],
            low=s["low"],
            width=s["high"] - s["low"],
        )
        for name, s in summary.registration["statistics"].items()
    }


def _releases_before(answers: Iterable[Recorded]) -> dict[int, int]:
    releases, before = 0, {}
    for answer in answers:
        before[answer.position] = releases
        releases += answer.kind == "release"
    return before
