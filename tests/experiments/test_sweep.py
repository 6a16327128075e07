"""The sweep on coin flips: the raw holdout overshoots, the guarded one does not.

Seeds are fixed: a failure is a change and not luck. Each fact states with which probability other
seeds would refute it although nothing is wrong.
"""

from functools import cache

import pytest
from experiments.sweep import BUDGET, Coins, guarded_sweep, raw_sweep, sealed_sweep
from experiments.sweep_picture import draw

SIZE, TRIALS, SEEDS = 2000, 100, 3
NEAR = 0.03


@cache
def sweeps(seed):
    coins = Coins(SIZE, seed)
    return (
        raw_sweep(coins, trials=TRIALS, seed=seed),
        guarded_sweep(coins, trials=TRIALS, seed=seed, secret=seed),
    )


def is_near_chance(sweep):
    return abs(sweep.claimed - 0.5) <= NEAR


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_guarded_claim_is_near_chance(seed):
    """The first release is half a grid step (0.002), noise (0.001) and 0.0112 (one standard
    deviation) off: beyond 0.03 at 1.2e-2 per seed. Over 12 seeds it was off by at most 0.012.
    """
    _, guarded = sweeps(seed)
    assert is_near_chance(guarded)
    assert len(guarded.told) == TRIALS
    assert guarded.claim.low <= 0.5 <= guarded.claim.high
    assert guarded.claim.value in guarded.told
    assert guarded.spent <= BUDGET


@pytest.mark.parametrize("seed", range(SEEDS))
def test_twin_on_the_raw_holdout_is_caught(seed):
    """Over 12 seeds the raw claim was 0.542 on average, standard deviation 0.007, smallest 0.5315:
    with another seed it is below 0.53 at 4e-2 (these three are at 0.545 and more).
    """
    raw, _ = sweeps(seed)
    assert not is_near_chance(raw)
    assert abs(raw.fresh - 0.5) < 0.02  # 0.0035 is one deviation, and it was not selected by it


def test_the_winner_was_asked_again_and_the_ledger_paid_for_it():
    _, guarded = sweeps(0)
    assert guarded.again.fresh
    assert guarded.again.position == TRIALS + 1
    assert guarded.spent == sum(guarded.released) + 1
    assert is_near_chance(guarded)


def test_both_are_drawn(tmp_path):
    draw(*sweeps(0), tmp_path / "sweep.png", size=SIZE)
    assert (tmp_path / "sweep.png").stat().st_size > 20_000


def test_a_sealed_study_climbs_on_its_display_and_claims_what_that_was_worth():
    """The display's best is 0.58 of 1,000 coins; the holdout's interval has 0.5, which it misses
    at 5 % at most: with a fixed seed that does not happen by chance.
    """
    found = sealed_sweep(Coins(SIZE, 0), trials=TRIALS, seed=0)
    assert max(found.told) > 0.53
    assert found.claim.low <= 0.5 <= found.claim.high
    assert found.claim.high - found.claim.low < 0.12
    assert abs(found.fresh - 0.5) < 0.02
