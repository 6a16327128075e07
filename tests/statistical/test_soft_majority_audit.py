"""A sampling audit of the soft majority where it is worst: all votes on one class.

2,000,000 draws on each side of 32 votes, ten classes. Fixed seeds.
"""

import math

import pytest
import torch
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.accounting import soft_majority_epsilon
from torch_holdout.prediction.mechanisms import Setting, SoftMajority

pytestmark = pytest.mark.statistical
PARTS, CLASSES, EPSILON = 32, 10, 0.1
DRAWS, CHUNK = 2_000_000, 200_000


def frequency(mechanism, votes, seed):
    """How often the class that gains the vote is answered."""
    setting = Setting(num_parts=PARTS, num_outputs=CLASSES)
    uniforms = SeededNoise(seed).uniforms("audit")
    table = torch.tensor([votes]).expand(CHUNK, -1)
    hits = sum(
        int((mechanism.answer(table, setting, uniforms) == 1).sum()) for _ in range(DRAWS // CHUNK)
    )
    return hits / DRAWS


def empirical(eta):
    mechanism = SoftMajority(eta=eta)
    before = frequency(mechanism, [PARTS, *[0] * (CLASSES - 1)], seed=1)
    after = frequency(mechanism, [PARTS - 1, 1, *[0] * (CLASSES - 2)], seed=2)
    spread = math.sqrt((1 - before) / (before * DRAWS) + (1 - after) / (after * DRAWS))
    return math.log(after / before), spread


def test_the_claim_is_not_refuted():
    """The truth is 0.063: 0.1 plus three standard errors is passed by chance far below 1e-9."""
    found, spread = empirical(EPSILON / 2)
    assert found <= EPSILON + 3 * spread
    exact = soft_majority_epsilon(EPSILON / 2, PARTS, CLASSES)
    assert abs(found - exact) <= 5 * spread  # false-alarm rate 6e-7
    assert exact == pytest.approx(0.063, abs=0.001)


def test_twin_with_twice_the_weight_is_caught():
    """The form exp(epsilon * votes) that is often printed."""
    found, spread = empirical(EPSILON)
    assert found > EPSILON + 3 * spread
    assert found == pytest.approx(0.17, abs=0.02)
