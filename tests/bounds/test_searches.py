"""Searches: each point once, kernels that are the public functions, and floors that are floors."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout import bounds as tb
from torch_holdout._shared.numeric_search import best_argument, smallest_value
from torch_holdout.accounting import Concentrated, PrivacyLoss, Pure
from torch_holdout.bounds import channels, single_query, transfer
from torch_holdout.bounds.private_answers import THEOREMS, PrivateAnswers, best_theorem

settings_of_loss = st.tuples(
    st.integers(2, 10**6), st.floats(-5, 0), st.integers(1, 200), st.floats(0.001, 0.5)
)


def answers(units, log_sigma, budget, gaussian=False):
    """The loss of a budget, and the noise of its answers."""
    sigma = 10**log_sigma
    step = 1 / (units * sigma)
    charge = Concentrated(step**2 / 2, budget) if gaussian else Pure(step, 2 * budget)
    return PrivacyLoss((charge,)), lambda beta: sigma * math.log(budget / beta)


def is_floor(theorem, true, below, *facts):
    """Whether a theorem that is told what it has to beat still says the truth about that."""
    told = theorem(PrivateAnswers(*facts, below))
    return told == true if true < below else below <= told <= true * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(settings_of_loss, st.floats(0.3, 3.0), st.booleans())
@pytest.mark.parametrize("name", THEOREMS)
def test_a_theorem_that_cannot_win_is_not_below(name, given_, factor, gaussian):
    units, log_sigma, budget, failure = given_
    loss, error = answers(units, log_sigma, budget, gaussian)
    facts = (units, loss, error, failure)
    true = THEOREMS[name](PrivateAnswers(*facts))
    if math.isfinite(true):
        assert is_floor(THEOREMS[name], true, factor * true, *facts)


def test_a_floor_that_is_too_high_is_caught():
    loss, error = answers(10_000, -2, 10)
    facts = (10_000, loss, error, 0.05)
    true, name = best_theorem(PrivateAnswers(*facts))

    def hasty(given_):
        return 1.1 * THEOREMS[name](given_)

    assert is_floor(THEOREMS[name], true, 1.05 * true, *facts)
    assert not is_floor(hasty, true, 1.05 * true, *facts)


def test_each_point_is_evaluated_once():
    asked = []

    def curve(x):
        asked.append(x)
        return (x - 1) ** 2

    value = smallest_value(curve, -10, 10)
    assert len(asked) == 49 + 2 + 48
    assert value == curve(best_argument(curve, -10, 10))


@given(st.integers(1, 10**6), st.floats(1e-6, 0.9), st.floats(0, 3))
def test_kernels_are_the_checked_functions(units, failure, epsilon):
    assert single_query.hoeffding_distance(units, failure) == tb.hoeffding(units, failure)
    pure = tb.pure_tolerance(epsilon, units, failure)
    assert transfer.pure_distance(epsilon, units, failure) == pure
    bits = tb.information_of_pure_iid(epsilon, units, failure)
    assert transfer.bits_of_pure_iid(epsilon, units, failure) == bits
    distance = tb.information_tolerance(units, bits, failure)
    assert transfer.information_distance(units, bits, failure) == distance
    for sides in (1, 2):
        tail = tb.laplace_tail(units, failure, two_sided=sides == 2)
        assert channels.laplace_quantile(units, failure, sides) == tail
        tail = tb.gaussian_tail(units, failure, two_sided=sides == 2)
        assert channels.gaussian_quantile(units, failure, sides) == tail
    mean = failure
    low, high = tb.kl_interval(mean, epsilon)
    assert low == single_query.kl_edge(mean, 0.0, epsilon)
    assert high == single_query.kl_edge(mean, 1.0, epsilon)
