"""Thresholdout's law equals exact enumeration, in the mechanism and through the door.

Each check has a false-alarm rate of 1e-6 and fixed seeds; each broken twin must be caught.
"""

import sys
from fractions import Fraction

import pytest
import torch
import torch_holdout as th
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.holdouts import Account
from torch_holdout.mechanisms import Query, Thresholdout
from torch_holdout.mechanisms import rounds as module

from support.builders.holdouts import make_holdout
from support.oracles.chi_square import fits
from support.oracles.laws import answer_law, round_law

pytestmark = pytest.mark.statistical

UNITS, LEVELS, GRID, SIGMA, THRESHOLD = 6, 6, 4, 0.2, 1 / 3
SCALE = SIGMA * LEVELS
GUESS = 1
TOTALS = (3, 3, 3)  # the gap equals the threshold: the hardest case for ties and correlation
LAW = round_law(TOTALS, GUESS, threshold=2, levels=LEVELS, grid=GRID, scale=SCALE)


def play(number, totals=TOTALS, seed=11):
    """One round by the mechanism: which query fired, and its answer."""
    mechanism = Thresholdout(threshold=THRESHOLD, sigma=SIGMA, guess="train")
    secret = None
    for position, total in enumerate(totals):
        decision = mechanism.decide(
            Query(
                total=total,
                units=UNITS,
                resolution=1,
                grid=GRID,
                guess=Fraction(GUESS, LEVELS),
                threshold=secret,
                forced=False,
                noise=SeededNoise(seed).stream(number, position),
            )
        )
        if decision.index is not None:
            return position, decision.index
        secret = decision.threshold
    return None, None


def rounds(count=20_000):
    return [play(number) for number in range(count)]


def test_rounds_match_enumeration():
    assert fits(rounds(), LAW)


@pytest.mark.parametrize("totals", [(0, 5, 2), (6, 6, 1), (1, 1, 1)])
def test_other_totals_match_enumeration(totals):
    law = round_law(totals, GUESS, threshold=2, levels=LEVELS, grid=GRID, scale=SCALE)
    assert fits([play(number, totals) for number in range(10_000)], law)


def test_forced_releases_match_enumeration():
    mechanism = Thresholdout(threshold=THRESHOLD, sigma=SIGMA, guess="last")
    answers = []
    for number in range(20_000):
        decision = mechanism.decide(
            Query(
                total=2,
                units=UNITS,
                resolution=1,
                grid=GRID,
                guess=None,
                threshold=None,
                forced=True,
                noise=SeededNoise(2).stream(number),
            )
        )
        answers.append(decision.index)
    assert fits(answers, answer_law(2, LEVELS, GRID, SCALE))
    assert not fits(answers, answer_law(2, LEVELS, GRID, 0.9 * SCALE))


def test_twin_threshold_redrawn_per_query_is_caught(monkeypatch):
    decide = Thresholdout.decide

    def forgetful(self, query):
        return decide(self, Query(**{**vars(query), "threshold": None}))

    monkeypatch.setattr(Thresholdout, "decide", forgetful)
    assert not fits(rounds(), LAW)


def test_twin_without_threshold_noise_is_caught(monkeypatch):
    monkeypatch.setattr(module, "noisy_threshold", lambda threshold, scale, noise: threshold)
    assert not fits(rounds(), LAW)


def test_twin_without_comparison_noise_is_caught(monkeypatch):
    monkeypatch.setattr(module, "fires", lambda gap, secret, scale, noise: gap > secret)
    assert not fits(rounds(), LAW)


def test_twin_with_reused_noise_is_caught(monkeypatch):
    """Comparison and answer get the same draw, scaled: fired rounds then answer too high."""
    kept = {}

    def fires(gap, secret, scale, noise):
        kept["draw"] = noise.laplace(scale)
        return gap + 4 * kept["draw"] > secret

    def answer(total, levels, grid, scale, noise):
        return module_to_grid(total + kept["draw"], levels, grid)

    from torch_holdout.mechanisms.rounds import to_grid as module_to_grid

    monkeypatch.setattr(module, "fires", fires)
    monkeypatch.setattr(module, "noisy_answer", answer)
    assert not fits(rounds(), LAW)


def test_twin_with_greater_or_equal_is_caught(monkeypatch):
    from torch_holdout.mechanisms.rounds import fires

    monkeypatch.setattr(
        module, "fires", lambda gap, secret, scale, noise: fires(gap + 1, secret, scale, noise)
    )
    assert not fits(rounds(), LAW)


# Through the door: the ledger, not the caller, keeps the secret threshold between the queries.
DOOR_ROUNDS = 1_500
LEDGER = None


def door_round(seed):
    holdout = make_holdout(
        LEDGER.address,
        name=f"round {seed}",
        size=UNITS,
        statistics={"val_acc": th.BoundedMean(0.0, 1.0)},
        mechanism=Thresholdout(threshold=THRESHOLD, sigma=SIGMA, guess="train"),
        budget=1,
        grid=GRID,
        resolution=1,
        seed=seed,
    )
    for position, total in enumerate(TOTALS):
        sums = holdout.accumulator("val_acc")
        sums.update(torch.arange(UNITS) < total)
        answer = holdout.release("val_acc", sums, query=f"q{position}", guess=GUESS / LEVELS)
        if answer.kind == "release":
            return position, round(answer.value * GRID)
    return None, None


@pytest.fixture(autouse=True)
def ledger(monkeypatch):
    """One throw-away ledger for all rounds of a test."""
    monkeypatch.setattr(sys.modules[__name__], "LEDGER", Ledger("memory://"))


def test_door_rounds_match_enumeration():
    assert fits([door_round(seed) for seed in range(DOOR_ROUNDS)], LAW)


def test_twin_ledger_that_forgets_the_threshold_is_caught(monkeypatch):
    monkeypatch.setattr(Account, "threshold", lambda self, units: None)
    assert not fits([door_round(seed) for seed in range(DOOR_ROUNDS)], LAW)
