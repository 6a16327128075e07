"""The majority attack works on a raw holdout and not on a guarded one."""

import math

import pytest
import torch_holdout as th
from scipy import stats
from torch_holdout.experiments.demo import attacks
from torch_holdout.experiments.majority import guarded_answers, majority_attack

from support.holdouts import make_holdout


@pytest.mark.parametrize(("size", "queries"), [(1000, 100), (1000, 500), (4000, 400)])
def test_raw_accuracy_is_what_theory_says(size, queries):
    """Ten repetitions; the mean's standard error is below .008 / sqrt(10): 0.015 is six of them."""
    claims = [
        majority_attack(
            lambda c: float(c.double().mean()), size=size, queries=queries, seed=10 * s
        ).claimed
        for s in range(10)
    ]
    theory = stats.norm.cdf(math.sqrt(2 / math.pi) * math.sqrt(queries / size))
    assert sum(claims) / len(claims) == pytest.approx(theory, abs=0.015)


def test_the_guarded_holdout_stays_near_the_truth():
    raw, guarded, left = attacks(seed=1)
    assert raw.claimed > 0.65
    assert abs(guarded.claimed - 0.5) < 0.06
    assert abs(guarded.fresh - 0.5) < 0.01
    assert 0 <= left <= 20


def test_a_threshold_without_noise_or_enough_width_is_no_protection():
    """The negative control: answers that are released every time let the attack through."""
    holdout = make_holdout(
        size=1000,
        mechanism=th.Thresholdout(threshold=0.0, sigma=0.0, guess="last"),
        budget=600,
        grid=1000,
    )
    answers = guarded_answers(holdout, "val_acc")
    assert majority_attack(answers, size=1000, queries=500, seed=11).claimed > 0.65
