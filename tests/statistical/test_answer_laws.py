"""Laplace and Gaussian answers have exactly their law; false-alarm rate 1e-6, fixed seeds."""

import math

import pytest
import torch_holdout as th
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.mechanisms import Query

from support.oracles.chi_square import fits
from support.oracles.laws import answer_law, discrete_gaussian, discrete_laplace

pytestmark = pytest.mark.statistical

UNITS, RESOLUTION, GRID, TOTAL = 10, 4, 20, 14
LEVELS = UNITS * RESOLUTION


def drawn(mechanism, count=20_000):
    return [
        mechanism.decide(
            Query(
                total=TOTAL, units=UNITS, resolution=RESOLUTION, grid=GRID, guess=None,
                threshold=None, forced=True, noise=SeededNoise(3).stream(number),
            )
        ).index
        for number in range(count)
    ]  # fmt: skip


def grid_law(noise):
    law = {}
    for k, probability in noise.items():
        clipped = min(max(TOTAL + k, 0), LEVELS)
        index = math.floor(clipped * GRID / LEVELS + 0.5)
        law[index] = law.get(index, 0.0) + probability
    return law


def test_laplace():
    """Scale: the resolution, by which one example can move the sum, over epsilon."""
    found = drawn(th.LaplaceMechanism(epsilon=0.5))
    assert fits(found, answer_law(TOTAL, LEVELS, GRID, RESOLUTION / 0.5))
    assert fits(found, grid_law(discrete_laplace(RESOLUTION / 0.5)))


def test_twin_with_noise_ten_percent_too_small_is_caught():
    found = drawn(th.LaplaceMechanism(epsilon=0.5 / 0.9))
    assert not fits(found, answer_law(TOTAL, LEVELS, GRID, RESOLUTION / 0.5))


def test_gaussian():
    """Standard deviation: sigma times the largest sum."""
    found = drawn(th.GaussianMechanism(sigma=0.12))
    assert fits(found, grid_law(discrete_gaussian(0.12 * LEVELS)))


def test_gaussian_twin_with_noise_ten_percent_too_small_is_caught():
    found = drawn(th.GaussianMechanism(sigma=0.9 * 0.12), count=40_000)
    assert not fits(found, grid_law(discrete_gaussian(0.12 * LEVELS)))


@pytest.mark.parametrize("scale", [0.7, 3.0, 20.0])
@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-4])
@pytest.mark.parametrize("two_sided", [True, False])
def test_gaussian_tail_is_an_upper_bound(scale, failure, two_sided):
    from torch_holdout.bounds import gaussian_tail

    k = gaussian_tail(scale, failure, two_sided=two_sided)
    law = discrete_gaussian(scale)
    beyond = math.fsum(p for x, p in law.items() if (abs(x) if two_sided else x) > k)
    assert beyond <= failure
    assert k <= 4 + 2 * scale * math.sqrt(2 * math.log(2 / failure))


def test_gaussian_privacy_is_rho():
    """Renyi divergence of neighbouring sums, exactly: at most alpha rho for every order."""
    sigma = 0.12 * LEVELS
    rho = th.GaussianMechanism(sigma=0.12).charge_per_step(UNITS)
    law = discrete_gaussian(sigma)
    shift = RESOLUTION
    for alpha in (1.5, 2.0, 8.0):
        total = math.fsum(
            p**alpha * law[k + shift] ** (1 - alpha)
            for k, p in law.items()
            if k + shift in law and law[k + shift] > 0
        )
        assert math.log(total) / (alpha - 1) <= alpha * rho * (1 + 1e-9)
