"""Certificates hold against analysts who try to break them; the naive union bound does not.

Each certificate may fail with probability BETA. Over REPETITIONS independent holdouts more than
LIMIT failures would happen with probability below 1e-6 if it held: that is the false-alarm rate of
every check here. Seeds are fixed.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats
from torch_holdout import bounds as tb
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.bounds import published as pb
from torch_holdout.bounds.certificate import Transcript, answer_interval, certify_transcript
from torch_holdout.bounds.channels import Channel
from torch_holdout.mechanisms import Ladder, Query, Thresholdout

from support.builders.analysts import ANALYSTS

pytestmark = pytest.mark.statistical

BETA, REPETITIONS, SIZE = 0.1, 150, 100
LIMIT = int(stats.binom.isf(1e-6, REPETITIONS, BETA))


@dataclass
class Asked:
    """One answered query: what was published, and what nobody but the test may know."""

    position: int
    before: int
    kind: str
    value: float
    mean: float
    truth: float


class Oracle:
    """A mechanism in front of a holdout of SIZE examples, without a ledger."""

    def __init__(self, mechanism, budget, grid, seed, mode="max"):
        self.mechanism, self.budget, self.grid, self.mode = mechanism, budget, grid, mode
        self.noise, self.asked, self.secret, self.best = SeededNoise(seed), [], None, None

    def __call__(self, values, truth):
        releases = sum(asked.kind == "release" for asked in self.asked)
        if releases >= self.budget:
            return None
        position = len(self.asked) + 1
        decision = self.mechanism.decide(
            Query(
                total=int(values.sum()),
                units=SIZE,
                resolution=1,
                grid=self.grid,
                guess=self.best,
                threshold=self.secret,
                forced=self.best is None,
                mode=self.mode,
                noise=self.noise.stream(position),
            )
        )
        self.secret = decision.threshold
        released = decision.index is not None
        value = Fraction(decision.index, self.grid) if released else self.best
        if released:
            self.best = value
        kind = "release" if released else "guess"
        self.asked.append(
            Asked(position, releases, kind, float(value), float(values.mean()), truth)
        )
        return float(value)


EVERY = Thresholdout(threshold=0.0, sigma=0.0, guess="last")  # released whenever it moves
SETTINGS = {
    "signs": (EVERY, 80, 80, 1),  # mechanism, queries, budget, grid: every answer is one bit
    "fine": (EVERY, 70, 70, 40),
    "threshold": (Thresholdout(threshold=0.04, sigma=0.0, guess="last"), 120, 12, 40),
    "noisy": (Thresholdout(threshold=0.05, sigma=0.005, guess="last"), 120, 12, 40),
    "ladder": (Ladder(step=0.02), 120, 12, 40),
    "noisy ladder": (Ladder(step=0.02, sigma=0.01), 120, 12, 40),
}


@cache
def runs(setting, analyst, p=0.5):
    """Transcripts of independent holdouts; each repetition draws its own examples."""
    mechanism, queries, budget, grid = SETTINGS[setting]
    found = []
    for repetition in range(REPETITIONS):
        generator = np.random.default_rng([repetition, 17])
        oracle = Oracle(mechanism, budget, grid, seed=repetition)
        ANALYSTS[analyst](generator, SIZE, queries, oracle, p)
        found.append(oracle.asked)
    return found


def failures(transcripts, holds, kind=None):
    """On how many holdouts at least one answer breaks the claim."""
    return sum(
        any(not holds(asked) for asked in transcript if kind in (None, asked.kind))
        for transcript in transcripts
    )


def sequences(setting):
    mechanism, _, _, grid = SETTINGS[setting]
    return (tb.monotone_sequences if isinstance(mechanism, Ladder) else tb.any_sequences)(grid + 1)


def brackets(setting):
    """Each counting theorem's bracket for a query."""
    _, queries, budget, _ = SETTINGS[setting]
    counts = {"sequences": sequences(setting), "failure": BETA}
    plan = {"queries": queries, "budget": budget}
    return {
        "fixed": lambda a: tb.bracket_fixed(**plan, **counts),
        "data-dependent": lambda a: pb.bracket_data_dependent(
            queries=queries, releases_before=a.before, **counts
        ),
        "anytime": lambda a: tb.bracket_anytime(
            position=a.position, releases_before=a.before, **counts
        ),
        "planned": lambda a: tb.bracket_planned(
            position=a.position, releases_before=a.before, **plan, **counts
        ),
    }


@pytest.mark.parametrize("theorem", ["fixed", "data-dependent", "anytime", "planned"])
@pytest.mark.parametrize("form", ["Hoeffding", "KL"])
@pytest.mark.parametrize("analyst", ANALYSTS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_counting_holds(setting, analyst, form, theorem):
    """The event itself, about the holdout's own mean: sharper than any published value."""
    bracket = brackets(setting)[theorem]

    def holds(asked):
        if form == "KL":
            return SIZE * tb.binary_kl(asked.mean, asked.truth) <= bracket(asked)
        return abs(asked.mean - asked.truth) <= tb.hoeffding_tolerance(bracket(asked), SIZE)

    assert failures(runs(setting, analyst), holds) <= LIMIT


@pytest.mark.parametrize("form", ["Hoeffding", "KL"])
@pytest.mark.parametrize("setting", ["signs", "threshold", "ladder"])
def test_counting_holds_for_small_error_rates(setting, form):
    """Coins of 10 %, where the KL form is much narrower than Hoeffding's."""
    _, _, _, grid = SETTINGS[setting]
    bracket = brackets(setting)["anytime"]

    def holds(asked):
        if form == "KL":
            low, high = tb.kl_answer_interval(asked.value, 0.5 / grid, bracket(asked), SIZE)
            return low <= asked.truth <= high
        distance = tb.hoeffding_tolerance(bracket(asked), SIZE) + 0.5 / grid
        return abs(asked.value - asked.truth) <= distance

    assert failures(runs(setting, "signs", 0.1), holds, "release") <= LIMIT


@pytest.mark.parametrize("setting", ["signs", "fine"])
def test_the_naive_union_bound_is_broken_by_the_same_analysts(setting):
    """Negative control: the checks above can fail."""
    _, queries, _, _ = SETTINGS[setting]
    tau = pb.naive_union(SIZE, queries, BETA)
    found = failures(runs(setting, "signs"), lambda a: abs(a.mean - a.truth) <= tau)
    assert found > LIMIT


@pytest.mark.parametrize("form", ["Hoeffding", "KL"])
def test_twin_that_forgets_the_released_values_is_caught(form):
    """Counting positions only, as if the answers carried nothing."""

    def holds(asked):
        bracket = tb.bracket_anytime(
            position=asked.position, releases_before=0, sequences=tb.any_sequences(1), failure=BETA
        )
        if form == "KL":
            return SIZE * tb.binary_kl(asked.mean, asked.truth) <= bracket
        return abs(asked.mean - asked.truth) <= tb.hoeffding_tolerance(bracket, SIZE)

    assert failures(runs("fine", "signs"), holds) > LIMIT


def certificates(setting, transcript):
    mechanism, queries, budget, grid = SETTINGS[setting]
    ladder = isinstance(mechanism, Ladder)
    channel = Channel(
        units=SIZE,
        resolution=1,
        grid=grid,
        sigma=mechanism.sigma,
        threshold=mechanism.step if ladder else mechanism.threshold,
        rule="improvement" if ladder else "both",
        mode="max",
    )
    released = [asked.position for asked in transcript if asked.kind == "release"]
    facts = Transcript(
        queries=len(transcript),
        releases=len(released),
        last_release=released[-1],
        budget=budget,
        rounds=budget,
        planned=queries,
    )
    return facts, {"x": channel}


@pytest.mark.parametrize("kind", ["release", "guess"])
@pytest.mark.parametrize("analyst", ANALYSTS)
@pytest.mark.parametrize("setting", ["threshold", "noisy", "ladder", "noisy ladder"])
def test_what_the_library_prints_holds(setting, analyst, kind):
    """Certificate and intervals of published values, noise, grid and threshold included."""
    broken = {"certificate": 0, "interval": 0}
    for transcript in runs(setting, analyst):
        facts, channels = certificates(setting, transcript)
        claim = certify_transcript(facts, channels, BETA)
        own = [asked for asked in transcript if asked.kind == kind]
        if kind == "release":
            broken["certificate"] += any(abs(a.value - a.truth) > claim.tolerance for a in own)
        elif claim.one_sided_guesses:  # more is better: the truth is not much above the guess
            broken["certificate"] += any(a.truth - a.value > claim.guess_tolerance for a in own)
        else:
            broken["certificate"] += any(
                abs(a.value - a.truth) > claim.guess_tolerance for a in own
            )
        broken["interval"] += any(
            a.truth
            not in answer_interval(
                facts,
                channels,
                statistic="x",
                position=a.position,
                releases_before=a.before,
                kind=kind,
                value=a.value,
                failure=BETA,
            )
            for a in sorted(own, key=lambda a: abs(a.value - a.truth))[-3:]  # the most dangerous
        )
    assert max(broken.values()) <= LIMIT


@pytest.mark.parametrize("setting", ["noisy", "noisy ladder"])
def test_noise_and_threshold_are_really_needed(setting):
    """Negative control: published values leave the holdout's mean by more than grid and sampling.

    The error terms without noise and threshold are exceeded on most holdouts.
    """
    _, _, _, grid = SETTINGS[setting]
    found = failures(runs(setting, "hunter"), lambda a: abs(a.value - a.mean) <= 0.5 / grid + 1e-9)
    assert found > LIMIT
