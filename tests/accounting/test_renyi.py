"""From Renyi divergence to epsilon: one function, against high precision and its inverse."""

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.accounting import capacity, compose_pure, epsilon_of_rho
from torch_holdout.accounting.rdp import epsilon_at_order, epsilon_of_rdp, simple_epsilon

divergences = st.floats(0, 50)
orders = st.floats(-5, 8).map(lambda log: 1 + math.exp(log))
deltas = st.floats(-40, -0.1).map(math.exp)


def delta_of(epsilon, divergence, order):
    """The delta of a Renyi divergence at epsilon (Canonne, Kamath and Steinke 2020, Prop. 12)."""
    with mpmath.workdps(50):
        alpha, gap = mpmath.mpf(order), mpmath.mpf(divergence) - mpmath.mpf(epsilon)
        return mpmath.exp((alpha - 1) * gap) * (1 - 1 / alpha) ** alpha / (alpha - 1)


def converts(conversion, divergence, order, delta):
    """Whether a conversion gives back its delta, as exactly as doubles can."""
    ratio = delta_of(conversion(divergence, order, delta), divergence, order) / delta
    return abs(ratio - 1) < 1e-12 * (1 + order * (1 + divergence))


@settings(max_examples=300, deadline=None)
@given(divergences, orders, deltas)
def test_epsilon_at_an_order_is_that_of_its_delta(divergence, order, delta):
    assert converts(epsilon_at_order, divergence, order, delta)


def test_the_older_conversion_is_caught():
    def mironov(divergence, order, delta):
        return divergence + math.log(1 / delta) / (order - 1)

    assert not converts(mironov, 0.05, 10.0, 1e-5)
    assert mironov(0.05, 10.0, 1e-5) > epsilon_at_order(0.05, 10.0, 1e-5)


@settings(max_examples=300, deadline=None)
@given(st.floats(0.01, 100), orders, deltas)
def test_capacity_is_the_inverse(epsilon, order, delta):
    room = capacity(epsilon, delta, order)
    scale = 1 + abs(room) + epsilon
    assert epsilon_at_order(room, order, delta) == pytest.approx(epsilon, abs=1e-13 * scale)


@pytest.mark.parametrize("rho", [1e-6, 0.005, 0.3, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_concentrated_privacy_is_the_straight_curve(rho, delta):
    assert epsilon_of_rho(rho, delta) == min(
        simple_epsilon(rho, delta), epsilon_of_rdp(lambda order: order * rho, delta)
    )


@given(st.floats(1e-9, 1e3), deltas)
def test_the_simple_epsilon_is_the_best_order_of_the_older_conversion(rho, delta):
    """At its best order, 1 + sqrt(ln(1/delta)/rho), and one beside it is worse."""
    with mpmath.workdps(30):
        log = mpmath.log(1 / mpmath.mpf(delta))
        best = 1 + mpmath.sqrt(log / rho)
        least, beside = (order * rho + log / (order - 1) for order in (best, best * 1.01))
        assert simple_epsilon(rho, delta) == pytest.approx(float(least), rel=1e-13)
        assert beside > least


def test_very_many_pure_mechanisms_use_it():
    assert compose_pure(1e-4, 200_000, 1e-6) == simple_epsilon(200_000 * 1e-4**2 / 2, 1e-6)
