"""The integer sparse vector: exact privacy of small rounds by enumeration."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_holdout.mechanisms.rounds import to_grid, to_levels

from support.oracles.laws import answer_law, discrete_laplace, round_law


@given(st.integers(-50, 150), st.integers(1, 100), st.integers(1, 64))
def test_grid_rounding_is_nearest_after_clipping(noisy, levels, grid):
    index = to_grid(noisy, levels, grid)
    clipped = min(max(noisy, 0), levels)
    assert 0 <= index <= grid
    assert abs(Fraction(index, grid) - Fraction(clipped, levels)) <= Fraction(1, 2 * grid)


@given(st.fractions(-1, 2), st.integers(1, 1000))
def test_levels_rounding_is_nearest_after_clipping(value, levels):
    found = to_levels(value, levels)
    assert abs(found - min(max(value, 0), 1) * levels) <= Fraction(1, 2)


def largest_log_ratio(law, other):
    return max(
        abs(math.log(law[o] / other[o])) for o in law if law[o] > 1e-12 and other.get(o, 0) > 1e-12
    )


@pytest.mark.parametrize("resolution", [1, 2])
@pytest.mark.parametrize("sigma", [0.3, 0.6])
def test_a_round_and_its_answer_cost_two_a(resolution, sigma):
    """Adjacent totals of every pattern over three queries: the loss is at most 2a, nearly met."""
    units = 4
    levels = units * resolution
    scale, a = sigma * levels, 1 / (units * sigma)
    worst = 0.0
    base = (2 * resolution,) * 3
    for signs in ((1, 1, 1), (-1, -1, 1), (1, -1, 1), (-1, 1, -1), (0, 0, 1), (-1, -1, -1)):
        moved = tuple(t + s * resolution for t, s in zip(base, signs, strict=True))
        laws = [
            round_law(t, guess=resolution, threshold=resolution, levels=levels, grid=4, scale=scale)
            for t in (base, moved)
        ]
        worst = max(worst, largest_log_ratio(*laws))
    assert worst <= 2 * a + 1e-6
    assert worst > 0.8 * a


def test_twin_with_a_fresh_threshold_for_each_query_costs_more():
    """Fifty quiet queries: one threshold costs at most a, a fresh one each far more."""
    units, sigma, quiet = 4, 0.6, 50
    scale, a = sigma * units, 1 / (units * sigma)
    gamma, eta = discrete_laplace(2 * scale), discrete_laplace(4 * scale)

    def stays(gap, secret):
        return math.fsum(p for e, p in eta.items() if gap + e <= secret)

    def one(gap):
        return math.log(math.fsum(p * stays(gap, 1 + g) ** quiet for g, p in gamma.items()))

    def fresh(gap):
        return quiet * math.log(math.fsum(p * stays(gap, 1 + g) for g, p in gamma.items()))

    assert abs(one(1) - one(2)) <= a
    assert abs(fresh(1) - fresh(2)) > 2 * a


@pytest.mark.parametrize("grid", [4, 16, 10])
def test_an_answer_costs_a(grid):
    """Every grid point, ends included, for adjacent totals: the loss is at most a, and met."""
    scale = 2.0
    ratios = [
        largest_log_ratio(
            answer_law(total, 10, grid, scale), answer_law(total + 1, 10, grid, scale)
        )
        for total in range(10)
    ]
    assert max(ratios) <= 1 / scale + 1e-9
    assert max(ratios) > 0.99 / scale
