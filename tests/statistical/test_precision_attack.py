"""The precision attack: do the low bits of an answer tell which of two neighbours was read?

Errors 0 and 1/n at n = 10,000 and scale 0.005, where epsilon 0.02 is claimed. The event "the answer
has bits finer than ulp(1/n)" has probabilities whose ratio must stay below exp(0.02). The lower
confidence bound on the log ratio (Clopper-Pearson, 1e-6 altogether) must exceed the claim for a
float Laplace, and must not for ours.
"""

import math

import numpy as np
import pytest
from scipy import stats
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.mechanisms.rounds import noisy_answer

pytestmark = pytest.mark.statistical

N, SCALE, CLAIMED, DRAWS = 10_000, 0.005, 0.02, 200_000
FALSE_ALARM = 1e-6


def has_fine_bits(values):
    scaled = np.asarray(values) / np.spacing(1 / N)
    return scaled != np.floor(scaled)


def log_ratio_lower_bound(first, second):
    """A lower confidence bound on ln(P(first)/P(second))."""
    share = FALSE_ALARM / 2
    low = stats.beta.ppf(share, first.sum(), len(first) - first.sum() + 1) if first.any() else 0.0
    high = stats.beta.ppf(1 - share, second.sum() + 1, len(second) - second.sum())
    return math.log(low / high) if low > 0 else -math.inf


def test_float_laplace_fails():
    generator = np.random.default_rng(0)
    errors = [e + generator.laplace(0, SCALE, DRAWS) for e in (0.0, 1 / N)]
    assert log_ratio_lower_bound(*map(has_fine_bits, errors)) > CLAIMED


def answers(error_count, grid, draws):
    levels, stream = N, SeededNoise(4).stream(error_count)
    indices = [
        noisy_answer(error_count, levels, grid, SCALE * levels, stream) for _ in range(draws)
    ]
    return np.array(indices) / grid


def test_ours_passes():
    events = [has_fine_bits(answers(count, 512, 20_000)) for count in (0, 1)]
    assert log_ratio_lower_bound(*events) <= CLAIMED
    assert log_ratio_lower_bound(*events[::-1]) <= CLAIMED
