"""Budgets that last, on curves with a steep start."""

import math

import pytest
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.planning.curves import (
    REGRET,
    finest_step,
    lasting_budget,
    lasting_interval,
    lasting_records,
)


def released(curve, step):
    """Count the releases of a Ladder without noise, on a grid as fine as its step."""
    grid = math.ceil(1 / step)
    best, count = math.inf, 0
    for value in curve:
        if best - value > step:
            best, count = round(value * grid) / grid, count + 1
    return count, best


def steep(evaluations, *, low=0.02):
    """A loss that starts at that of a guess and falls by a factor e in a 45th of the run."""
    return [low + 0.44 * math.exp(-45 * k / evaluations) for k in range(evaluations)]


@pytest.mark.parametrize("evaluations", [25, 50, 100, 200, 500, 2000])
@pytest.mark.parametrize("size", [100, 500, 2000, 10_000, 100_000])
def test_a_steep_start_does_not_spend_the_budget(evaluations, size):
    step, curve = finest_step(size), steep(evaluations)
    count, best = released(curve, step)
    assert count <= lasting_budget(evaluations, step)
    assert best - min(curve) <= 2 * step
    # The broken twin: what a tolerance once bought.
    assert count > 3


def test_the_largest_numbers_of_releases_that_were_measured():
    """At the step of 500 to 10,000 examples, validated at every, 2nd, 4th and 8th epoch of 200."""
    fitted = [lasting_budget(200 // every) for every in (1, 2, 4, 8)]
    assert fitted == [20, 13, 9, 6]


def test_rarer_evaluations_make_a_budget_last():
    for budget in range(2, 40):
        every = lasting_interval(200, budget)
        assert lasting_budget(-(-200 // every)) <= budget
        assert every == 1 or lasting_budget(-(-200 // (every - 1))) > budget
    assert lasting_interval(200, 1) == 200


def test_budgets_grow_with_evaluations_and_with_finer_steps():
    budgets = [lasting_budget(m) for m in range(1, 3000)]
    assert budgets == sorted(budgets)
    assert all(budget <= m for m, budget in enumerate(budgets, 1))
    assert lasting_budget(10**9) == math.ceil(0.46 / REGRET)
    finer = [lasting_budget(200, step) for step in (0.1, 0.02, 0.01, 0.005, 0.001)]
    assert finer == sorted(finer)


def test_steps_follow_the_size():
    steps = [finest_step(size) for size in (1, 10, 100, 625, 10_000, 40_000, 10**6)]
    assert steps == sorted(steps, reverse=True)
    assert steps[3] == steps[4] == REGRET
    assert steps[-1] == 0.0005


def test_records_of_a_search():
    assert [lasting_records(n) for n in (1, 2, 10)] == [1, 2, 6]
    for bad in (0, 1.5):
        with pytest.raises(InvalidArgumentError):
            lasting_records(bad)
