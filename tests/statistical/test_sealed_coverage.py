"""Intervals after closing hold against analysts who use all that sealed runs say.

Through the real door. Each closed holdout may have a wrong interval with probability BETA. Over
independent holdouts more failures than ``limit`` says would happen with probability below 1e-6 if
that held: the false-alarm rate of every check here. Seeds are fixed. What a twin forgets, the same
analysts find.
"""

from functools import cache, partial
from statistics import mean

import pytest
from scipy import stats

from support.builders import sealed_analysts as of
from support.machines.soak import soak

pytestmark = [pytest.mark.statistical, pytest.mark.soak]

BETA = 0.05
ANALYSTS = {  # analyst, account, holdouts at full size and in short
    "best of m": (of.best_of, {"evaluations": 40, "runs": 1}, 400, 16),
    "majority": soak(
        (partial(of.majority, patience=10), {"size": 1000, "evaluations": 20, "runs": 51}, 20, 0),
        (of.majority, {"evaluations": 10, "runs": 31}, 0, 8),
    ),
    "restarting": (of.restarting, {"evaluations": 10, "runs": 3}, 200, 12),
    "fine-tuning": (of.fine_tuning, {"evaluations": 8, "runs": 10}, 150, 8),
    "parallel": (of.parallel, {"evaluations": 8, "runs": 12}, 150, 8),
    "recording": (of.recording, {"evaluations": 1, "runs": 60}, 100, 8),
    "watching": (of.watching, {"evaluations": 15, "runs": 3}, 200, 12),
    "watching what is sealed": (
        partial(of.watching, shared=400),
        {"evaluations": 80, "runs": 1},
        20,
        8,
    ),
    "peeking": soak(
        (of.peeking, {"size": 1000, "evaluations": 200, "runs": 1}, 20, 0),
        (of.peeking, {"evaluations": 80, "runs": 1}, 0, 8),
    ),
}
HONEST = ["best of m", "majority", "restarting", "fine-tuning", "parallel", "recording", "watching"]


def limit(holdouts):
    return int(stats.binom.isf(1e-6, holdouts, BETA))


@cache
def played(analyst, kind="zero_one"):
    """Accounts of independent holdouts, after the analyst was there, all closed."""
    play, account, full, short = ANALYSTS[analyst]
    found = []
    for seed in range(soak(full, short)):
        coins = of.Coins([seed, 29], kind=kind, **{"size": 400} | account)
        play(coins)
        found.append(coins)
    return found


def missed(analyst, misses=of.misses, **more):
    """How many holdouts have a wrong interval, and of how many."""
    holdouts = played(analyst, **more)
    found = sum(misses(coins, BETA) for coins in holdouts)
    gap = mean(of.largest_gap(coins) for coins in holdouts)
    print(f"{analyst} {more or ''}: {found} of {len(holdouts)} miss, mean largest gap {gap:.3f}")
    return found, len(holdouts)


@pytest.mark.parametrize("analyst", HONEST)
def test_closed_intervals_hold(analyst):
    found, holdouts = missed(analyst)
    assert found <= limit(holdouts)


@pytest.mark.parametrize("analyst", ["best of m", "watching"])
def test_closed_intervals_of_values_hold(analyst):
    """By sum and sum of squares."""
    found, holdouts = missed(analyst, kind="values")
    assert found <= limit(holdouts)


@pytest.mark.parametrize("analyst", ["majority", "recording"])
def test_what_was_said_and_not_charged_is_caught(analyst):
    """The twin takes others = 0, although models are made of stop epochs, or of record bits."""
    found, holdouts = missed(analyst, of.misses_uncharged)
    assert found > limit(holdouts)


@pytest.mark.parametrize("analyst", ["peeking", "watching what is sealed"])
def test_values_that_are_not_charged_are_caught(analyst):
    """Values shown for the price of their number; a display with sealed examples in it."""
    found, holdouts = missed(analyst)
    assert found > limit(holdouts)
