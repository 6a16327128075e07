"""Certificates of a board against one person with many accounts, through the real ledger.

Each account submits one file to a Ladder of its own; a last file is made from all that they were
told. A claim may miss with probability .05. All seeds are fixed, so there are no false alarms; by
chance as many misses as the limit below would come with probability 1e-6 at most.
"""

import math
from functools import cache

import pytest

from support.builders.sybils import ATTACKS, attacked
from support.machines.soak import soak

BETA = 0.05
REPETITIONS = soak(40, 8)
ROWS, ACCOUNTS = soak(1000, 400), soak(500, 100)
HARMLESS = "coin flips above .55"


def too_many(repetitions, rate=BETA, alarm=1e-6):
    """The fewest misses that a claim of that rate has with probability at most 1e-6."""
    tail, misses = 1.0, 0
    while tail > alarm:
        tail -= math.comb(repetitions, misses) * rate**misses * (1 - rate) ** (repetitions - misses)
        misses += 1
    return misses


@cache
def outcomes(attack):
    return [
        attacked(ATTACKS[attack], rows=ROWS, accounts=ACCOUNTS, seed=seed)
        for seed in range(REPETITIONS)
    ]


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_boards_certificate_holds_under_many_accounts(attack):
    """It counts what all accounts were told: no miss at all, and certainly not above beta."""
    found = outcomes(attack)
    missed = sum(not each.covered(each.board) for each in found)
    told = sum(each.told for each in found) / len(found)
    overfit = sum(each.overfit for each in found) / len(found)
    print(f"{attack}: {told:.0f} told, overfit {overfit:.3f}, missed {missed} of {len(found)}")
    assert missed < too_many(len(found))
    assert missed == 0


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("attack", [name for name in ATTACKS if name != HARMLESS])
def test_a_twin_that_counts_its_own_feedback_only_is_broken(attack):
    """The last account was told nothing itself; what it knows, others were told."""
    found = outcomes(attack)
    missed = sum(not each.covered(each.own) for each in found)
    assert missed >= too_many(len(found))


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_baseline_tells_useless_accounts_nothing_and_costs_little():
    """Hardly one of them is told a value; then the certificate stays narrow."""
    found = outcomes(HARMLESS)
    told = sum(each.told for each in found) / len(found)
    assert told <= 0.02 * ACCOUNTS
    typical = sorted(each.board for each in found)[len(found) // 2]
    every_value = outcomes("coin flips, every first value told")[0].board
    assert typical < every_value / 20
    assert math.sqrt(typical / (2 * ROWS)) < 0.18


def test_the_limit_is_what_it_says():
    misses = too_many(8)
    tails = [
        sum(math.comb(8, k) * BETA**k * (1 - BETA) ** (8 - k) for k in range(least, 9))
        for least in (misses - 1, misses)
    ]
    assert tails[1] <= 1e-6 < tails[0]
