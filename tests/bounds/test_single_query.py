import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_holdout.bounds import binary_kl, hoeffding, kl_interval
from torch_holdout.bounds.published import (
    chernoff_interval,
    counting_anytime,
    counting_data_dependent,
    counting_fixed,
    naive_union,
    sample_splitting,
)
from torch_holdout.errors import InvalidArgumentError

means = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(1e-9, 1 - 1e-9))


def failure_of(interval, units, truth):
    """Exact probability that an interval around a binomial mean misses the truth."""
    missed = 0.0
    for hits in range(units + 1):
        low, high = interval(hits / units)
        if not low <= truth <= high:
            missed += stats.binom.pmf(hits, units, truth)
    return missed


@pytest.mark.parametrize("units", [10, 80])
@pytest.mark.parametrize("truth", [0.01, 0.2, 0.5, 0.93])
def test_intervals_cover_exactly_as_claimed(units, truth):
    beta = 0.1
    tau = hoeffding(units, beta)
    assert failure_of(lambda h: (h - tau, h + tau), units, truth) <= beta
    assert failure_of(lambda h: chernoff_interval(h, units, beta), units, truth) <= beta


def test_a_narrower_interval_is_caught():
    """A quarter of the width does not cover: the check above can fail."""
    tau = hoeffding(80, 0.1) / 4
    assert failure_of(lambda h: (h - tau, h + tau), 80, 0.5) > 0.1


@settings(max_examples=200, deadline=None)
@given(means, st.floats(0, 2))
def test_kl_interval_inverts(mean, divergence):
    low, high = kl_interval(mean, divergence)
    assert 0 <= low <= mean <= high <= 1
    for edge, end in ((low, 0.0), (high, 1.0)):
        # The edge is outside or on it, and a millionth of the way back is inside.
        if edge != end:
            assert binary_kl(mean, edge) >= divergence * (1 - 1e-9)
        assert binary_kl(mean, edge + (mean - edge) * 1e-6) <= divergence * (1 + 1e-9) + 1e-12


@settings(max_examples=200, deadline=None)
@given(means, st.integers(1, 10**6), st.floats(1e-9, 0.5))
def test_chernoff_is_inside_hoeffding(mean, units, beta):
    low, high = chernoff_interval(mean, units, beta)
    tau = hoeffding(units, beta)
    assert mean - tau - 1e-9 <= low
    assert high <= mean + tau + 1e-9


@pytest.mark.parametrize(
    ("units", "queries", "naive", "split"),
    [(1000, 50, 0.062, 0.436), (10_000, 50, 0.019, 0.138), (50_000, 1000, 0.010, 0.326)],
)
def test_known_values(units, queries, naive, split):
    assert naive_union(units, queries, 0.05) == pytest.approx(naive, abs=6e-4)
    assert sample_splitting(units, queries, 0.05) == pytest.approx(split, abs=6e-4)


def test_splitting_fewer_units_than_queries_is_infinite():
    assert sample_splitting(10, 11, 0.05) == math.inf


def best_grid(bound):
    """The total error of an answer with the best grid: the bound plus half a grid step."""
    return min(bound(grid + 1) + 0.5 / grid for grid in range(2, 3000))


class TestCounting:
    @pytest.mark.parametrize(
        ("units", "queries", "budget", "expected"),
        [(1000, 50, 5, 0.140), (10_000, 1000, 20, 0.101), (50_000, 1000, 20, 0.047)],
    )
    def test_fixed_budget(self, units, queries, budget, expected):
        found = best_grid(
            lambda g: counting_fixed(units, queries=queries, budget=budget, answers=g, failure=0.05)
        )
        assert found == pytest.approx(expected, abs=2e-3)

    def test_counting_up_to_the_budget_would_be_a_little_more(self):
        """theory's table adds the guesses after the last release: .151 instead of .140."""
        found = best_grid(
            lambda g: counting_fixed(1000, queries=50, budget=6, answers=g, failure=0.05)
        )
        assert found == pytest.approx(0.151, abs=2e-3)

    def test_data_dependent_costs_little_more_than_fixed(self):
        facts = {"queries": 200, "answers": 129, "failure": 0.05}
        fixed = counting_fixed(1000, budget=8, **facts)
        paid = counting_data_dependent(1000, releases_before=7, **facts)
        assert fixed < paid < fixed + 0.008
        anytime = counting_anytime(1000, position=200, releases_before=7, answers=129, failure=0.05)
        assert paid < anytime + 0.008

    @pytest.mark.parametrize(
        "change", [{"queries": 0}, {"budget": 0}, {"answers": 0}, {"failure": 0.0}, {"units": 0}]
    )
    def test_bad_arguments(self, change):
        values = {"units": 10, "queries": 5, "budget": 2, "answers": 9, "failure": 0.1} | change
        with pytest.raises(InvalidArgumentError):
            counting_fixed(values.pop("units"), **values)


@pytest.mark.parametrize(
    "call",
    [
        lambda: hoeffding(0, 0.1),
        lambda: hoeffding(10, 0.0),
        lambda: kl_interval(float("nan"), 0.1),
        lambda: kl_interval(0.5, -1.0),
        lambda: naive_union(10, 0, 0.1),
        lambda: sample_splitting(10, 1.5, 0.1),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(InvalidArgumentError):
        call()
