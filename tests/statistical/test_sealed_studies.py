"""The winner of a sealed study of coin flips lies in its interval, whatever reads the display.

Through the real door, `sharing` and `close()`: at full size 1,000 studies of 200 trials, half with
500 and half with 2,000 examples; random search without a display, TPE and a vote of all models that
read one. The winner's interval may miss with probability BETA; over independent studies more misses
than ``limit`` says would happen with probability below 1e-5 if that held: the false-alarm rate of
every check here, at which four misses of the four winners of a short run are too many. Seeds are
fixed. The same vote that reads the sealed values is caught.
"""

import optuna
import pytest
from scipy import stats

from support.builders.coin_studies import TRUTH, CoinStudy, Voting
from support.machines.soak import soak

pytestmark = [
    pytest.mark.statistical,
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(soak(4 * 3600, 300)),
]
BETA = 0.05
TRIALS = soak(200, 60)
KINDS = {  # the sampler, what it reads, studies of each size at full size and in short
    "random": (lambda: optuna.samplers.RandomSampler(seed=0), {"display": False}, 200, 2),
    "TPE": (lambda: optuna.samplers.TPESampler(seed=0), {}, 200, 2),
    "vote": (lambda: Voting(TRIALS), {}, 100, 2),
    "twin": (lambda: Voting(TRIALS), {"reads_sealed": True}, 20, 4),
}


def limit(studies):
    return int(stats.binom.isf(1e-5, studies, BETA))


def missed(kind):
    """How many winners lie outside of their interval, and of how many studies."""
    sampler, options, full, short = KINDS[kind]
    found = [
        CoinStudy(seed, size=size, trials=TRIALS).run(sampler(), **options)
        for size in (500, 2000)
        for seed in range(soak(full, short))
    ]
    misses = sum(not each.low <= TRUTH <= each.high for each in found)
    gap = max(each.value - TRUTH for each in found)
    print(f"{kind}: {misses} of {len(found)} winners miss, largest gap {gap:.3f}")
    return misses, len(found)


@pytest.mark.parametrize("kind", ["random", "TPE", "vote"])
def test_the_winners_interval_holds(kind):
    misses, studies = missed(kind)
    assert misses <= limit(studies)


def test_twin_whose_sampler_reads_the_sealed_values_is_caught():
    misses, studies = missed("twin")
    assert misses > limit(studies)
