"""From an account's counters to what a person wants to know: all of it public."""

import math
from collections.abc import Iterable

from torch_holdout.accounting import epsilon_cap, sampling_delta
from torch_holdout.bounds.certificate import (
    Certificate,
    Interval,
    Transcript,
    answer_interval,
    certify_transcript,
)
from torch_holdout.bounds.channels import Channel
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.ledger import Recorded, Summary
from torch_holdout.mechanisms import Mechanism
from torch_holdout.noise import sampler_error
from torch_holdout.results import Answer, Status


def status_of(summary: Summary, mechanism: Mechanism, address: str) -> Status:
    """Return budget, counts and privacy. All statistics of the account count, also added ones."""
    registered = summary.registration["statistics"]
    resolution, delta = summary.registration["resolution"], summary.registration["delta"]
    steps = {s["units"]: mechanism.epsilon_per_step(s["units"]) for s in registered.values()}
    epsilon = epsilon_cap(list(steps.values()), summary.budget, delta)
    per_draw = max(
        0.0 if math.isinf(step) else sampler_error(4 * resolution / step) for step in steps.values()
    )
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
        epsilon_spent=math.inf if summary.spent is None else summary.spent,
        delta=delta,
        sampler_error=sampling_delta(epsilon, 3 * summary.queries * per_draw),
        rounds=summary.rounds,
        seeded=summary.registration["seeded"],
        renaming_detected=summary.fingerprinted,
        ledger=address,
        cost_per_release={name: 2 * steps[s["units"]] for name, s in registered.items()},
        mechanism=summary.registration["mechanism"],
        statistics=registered,
    )


def certificate_of(summary: Summary, failure: float) -> Certificate:
    """Return what the published values are worth."""
    return certify_transcript(transcript_of(summary), channels_of(summary), failure)


def intervals_of(summary: Summary, answers: Iterable[Recorded], failure: float) -> list[Interval]:
    """Return the interval of each answer, in the order of the ledger."""
    facts, channels = transcript_of(summary), channels_of(summary)
    releases, found = 0, []
    for answer in answers:
        found.append(
            answer_interval(
                facts,
                channels,
                statistic=answer.statistic,
                position=answer.position,
                releases_before=releases,
                kind=answer.kind,
                value=answer.value,
                failure=failure,
            )
        )
        releases += answer.kind == "release"
    return found


def interval_of(answer: Answer, intervals: Iterable[Interval]) -> Interval:
    """Return the interval of an answer; one that is not in the ledger has none."""
    for interval in intervals:
        if interval.position == answer.position and interval.value == answer.value:
            return interval
    raise InvalidArgumentError(
        "Expected an answer that is in this holdout's ledger, but got another one. Exhausted and "
        "stale values certify nothing."
    )


def transcript_of(summary: Summary) -> Transcript:
    """Return the counters a certificate depends on."""
    registered = summary.registration["statistics"]
    return Transcript(
        queries=summary.queries,
        releases=summary.releases,
        last_release=summary.last_release,
        budget=summary.budget,
        rounds=summary.budget + len({s["units"] for s in registered.values()}) - 1,
        planned=summary.registration.get("planned"),
        secret_noise=not summary.registration["seeded"],
    )


def channels_of(summary: Summary) -> dict[str, Channel]:
    """Return how each statistic's value becomes an answer."""
    mechanism = summary.registration["mechanism"]
    if mechanism.get("kind") not in ("thresholdout", "ladder"):
        raise HoldoutError(
            f"No certificate is known for the mechanism {mechanism.get('kind')!r}: none is given."
        )
    ladder = mechanism["kind"] == "ladder"
    return {
        name: Channel(
            units=s["units"],
            resolution=summary.registration["resolution"],
            grid=s["grid"],
            sigma=mechanism["sigma"],
            threshold=mechanism["step" if ladder else "threshold"],
            rule="improvement" if ladder else "both",
            mode=s["mode"],
            low=s["low"],
            width=s["high"] - s["low"],
        )
        for name, s in summary.registration["statistics"].items()
    }
