"""The Ladder's law equals exact enumeration; false-alarm rate 1e-6, fixed seeds, broken twins."""

import math
from fractions import Fraction

import pytest
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.mechanisms import Ladder, Query
from torch_holdout.mechanisms import ladder as module
from torch_holdout.mechanisms import rounds as sparse_rounds

from support.oracles.chi_square import fits
from support.oracles.laws import answer_law, round_law

pytestmark = pytest.mark.statistical

UNITS, GRID, SIGMA, STEP, BEST = 8, 4, 0.15, 0.25, 2  # best: 2 of 4 grid steps, 4 of 8 levels
SCALE = SIGMA * UNITS
TOTALS = (3, 2, 5)


def law(mode, totals=TOTALS, best=(BEST, BEST)):
    """``best``: the grid points that a published value is no worse than, for min and max."""
    bar = best[mode == "max"]
    sign = -1 if mode == "min" else 1
    better = min if mode == "min" else max
    return round_law(
        totals, guess=4, threshold=2, levels=UNITS, grid=GRID, scale=SCALE,
        gap=lambda difference: sign * difference, publish=lambda index: better(index, bar),
    )  # fmt: skip


def play(number, mode, totals=TOTALS, guess=Fraction(BEST, GRID)):
    secret = None
    for position, total in enumerate(totals):
        decision = Ladder(step=STEP, sigma=SIGMA).decide(
            Query(
                total=total,
                units=UNITS,
                resolution=1,
                grid=GRID,
                guess=guess,
                threshold=secret,
                forced=False,
                mode=mode,
                noise=SeededNoise(5).stream(number, position),
            )
        )
        if decision.index is not None:
            return position, decision.index
        secret = decision.threshold
    return None, None


def rounds(mode, count=15_000, **changes):
    return [play(number, mode, **changes) for number in range(count)]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_rounds_match_enumeration(mode):
    assert fits(rounds(mode), law(mode))


@pytest.mark.parametrize("mode", ["min", "max"])
def test_rounds_above_a_baseline_between_grid_points_match_enumeration(mode):
    """.45 is 4 of 8 levels; what is published is no worse: 1 of 4 steps or less, 2 or more."""
    found = rounds(mode, guess=Fraction(9, 20))
    assert fits(found, law(mode, best=(1, 2)))
    assert not fits(found, law(mode, best=(2, 1)))  # a twin that rounds it the other way


def test_twin_that_ignores_the_direction_is_caught():
    assert not fits(rounds("min"), law("max"))


def test_twin_that_compares_both_sides_is_caught(monkeypatch):
    decide = module.sparse_decision
    monkeypatch.setattr(
        module, "sparse_decision", lambda query, gap, *rest: decide(query, abs(gap), *rest)
    )
    assert not fits(rounds("min"), law("min"))


def test_twin_that_publishes_a_worse_answer_is_caught(monkeypatch):
    monkeypatch.setattr(module, "replace", lambda decision, index: decision)
    assert not fits(rounds("min"), law("min"))


def test_twin_with_answer_noise_ten_percent_too_small_is_caught(monkeypatch):
    answer = sparse_rounds.noisy_answer
    monkeypatch.setattr(
        sparse_rounds,
        "noisy_answer",
        lambda total, levels, grid, scale, noise: answer(total, levels, grid, 0.9 * scale, noise),
    )
    assert not fits(rounds("min", 40_000), law("min"))


def test_the_first_release_is_an_answer():
    found = [
        Ladder(step=STEP, sigma=SIGMA)
        .decide(
            Query(
                total=3, units=UNITS, resolution=1, grid=GRID, guess=None, threshold=None,
                forced=True, noise=SeededNoise(7).stream(number),
            )
        )
        .index
        for number in range(15_000)
    ]  # fmt: skip
    assert fits(found, answer_law(3, UNITS, GRID, SCALE))


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_round_and_its_answer_cost_two_a(mode):
    """Exact: adjacent totals of every pattern; publishing the better one is free."""
    a, worst = 1 / (UNITS * SIGMA), 0.0
    for moves in ((1, 1, 1), (-1, -1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, -1)):
        moved = tuple(t + m for t, m in zip(TOTALS, moves, strict=True))
        first, second = law(mode), law(mode, moved)
        likely = [o for o in first if min(first[o], second[o]) > 1e-12]
        worst = max(worst, *(abs(math.log(first[o] / second[o])) for o in likely))
    assert 0.8 * a < worst <= 2 * a + 1e-6
