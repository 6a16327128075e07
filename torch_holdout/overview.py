"""From an account's counters to what a person wants to know: all of it public."""

import math

from torch_holdout.accounting import epsilon_cap, sampling_delta
from torch_holdout.bounds.certificate import Certificate, Channel, Transcript, certify_transcript
from torch_holdout.ledger import Summary
from torch_holdout.noise import sampler_error
from torch_holdout.registration import Registration
from torch_holdout.results import Status


def status_of(registration: Registration, summary: Summary, address: str) -> Status:
    """Return budget, counts and privacy. All statistics of the account count, also added ones."""
    registered = summary.registration["statistics"]
    mechanism = registration.mechanism
    steps = {s["units"]: mechanism.epsilon_per_step(s["units"]) for s in registered.values()}
    epsilon = epsilon_cap(list(steps.values()), summary.budget, registration.delta)
    per_draw = max(sampler_error(4 * registration.scale(units)) for units in steps)
    return Status(
        name=registration.name,
        size=registration.size,
        queries=summary.queries,
        releases=summary.releases,
        guesses=summary.queries - summary.releases,
        budget=summary.budget,
        budget_left=summary.budget - summary.releases,
        exhausted=summary.releases >= summary.budget,
        epsilon=epsilon,
        epsilon_spent=math.inf if summary.spent is None else summary.spent,
        delta=registration.delta,
        sampler_error=sampling_delta(epsilon, 3 * summary.queries * per_draw),
        rounds=summary.rounds,
        seeded=registration.seed is not None,
        renaming_detected=summary.fingerprinted,
        ledger=address,
        cost_per_release={name: 2 * steps[s["units"]] for name, s in registered.items()},
        mechanism=summary.registration["mechanism"],
        statistics=registered,
    )


def certificate_of(registration: Registration, summary: Summary, failure: float) -> Certificate:
    """Return what the published values are worth."""
    registered = summary.registration["statistics"]
    mechanism = summary.registration["mechanism"]
    facts = Transcript(
        queries=summary.queries,
        releases=summary.releases,
        last_release=summary.last_release,
        budget=summary.budget,
        rounds=summary.budget + len({s["units"] for s in registered.values()}) - 1,
        answers=1 + max(s["grid"] for s in registered.values()),
    )
    channels = {
        name: Channel(
            units=s["units"],
            resolution=registration.levels,
            grid=s["grid"],
            sigma=mechanism["sigma"],
            threshold=mechanism["threshold"],
            width=s["high"] - s["low"],
        )
        for name, s in registered.items()
    }
    return certify_transcript(facts, channels, failure)
