"""Budgets as filters of one order."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.accounting import (
    Concentrated,
    DiscreteLaplace,
    Pure,
    SampledGaussian,
    SoftVote,
    capacity,
    compose,
    epsilon_of_rho,
    largest_parameter,
    queries_for,
)
from torch_holdout.accounting.filters import (
    best_order,
    capacity_in_picos,
    charge_in_picos,
    divergence,
)
from torch_holdout.errors import InvalidArgumentError

DELTA = 1e-5
TOTALS = (1, 2, 4, 8)
BUYS = {0.1: (6, 21, 74, 245), 0.05: (24, 86, 298, 983)}


@pytest.mark.parametrize("eta", BUYS)
def test_known_numbers_of_queries(eta):
    simple = [queries_for(Concentrated(eta**2 / 2), total, DELTA) for total in TOTALS]
    assert tuple(simple) == BUYS[eta]
    exact = [queries_for(SoftVote(eta, 50, 10), total, DELTA) for total in TOTALS]
    assert all(more > fewer for more, fewer in zip(exact, simple, strict=True))


CHARGES = [
    Concentrated(0.003),
    Pure(0.05),
    DiscreteLaplace(20.0, 1),
    SoftVote(0.05, 30, 5),
    SoftVote(0.05, 30, 5, members_changed=2),
    SampledGaussian(0.1, 12.0),
]


@pytest.mark.parametrize("charge", CHARGES, ids=str)
@pytest.mark.parametrize("total", [0.3, 1.0, 4.0, 20.0])
def test_what_it_pays_for_composes_to_at_most_epsilon(charge, total):
    """The same number of charges, fixed beforehand, is at most epsilon; a little more is not."""
    count = queries_for(charge, total, DELTA)
    curve = charge.curve()

    def renyi(times):
        return min(
            times * charge.epsilon,
            *(
                times * curve(order) + total - capacity(total, DELTA, order)
                for order in (*(1 + math.exp(k / 16) for k in range(-60, 200)), *range(2, 257))
            ),
        )

    assert count == 0 or renyi(count) <= total * (1 + 1e-3)
    assert renyi(max(count + 1, 1.02 * count)) > total * (1 - 1e-3)
    if count:
        repeated = {**vars(charge), "count": count}
        assert compose([type(charge)(**repeated)], DELTA).epsilon <= total * (1 + 1e-9)


@settings(max_examples=80, deadline=None)
@given(st.floats(0.01, 50), st.floats(1e-12, 0.1), st.floats(1.01, 1e6))
def test_capacity_inverts_the_conversion(epsilon, delta, order):
    room = capacity(epsilon, delta, order)
    rest = math.log1p(-1 / order) + (math.log(1 / delta) - math.log(order)) / (order - 1)
    assert room + rest == pytest.approx(epsilon, rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 20), st.floats(1e-10, 1e-2), st.floats(1e-6, 1e-2))
def test_the_best_order_is_that_of_the_conversion(epsilon, delta, rho):
    count = queries_for(Concentrated(rho), epsilon, delta)
    assert count == 0 or epsilon_of_rho(count * rho, delta) <= epsilon * (1 + 1e-6)
    assert epsilon_of_rho((count + 1) * rho * (1 + 1e-5), delta) > epsilon


def test_pure_budgets_add_up():
    assert queries_for(Pure(0.1), 2.0, None) == 20
    assert queries_for(Pure(0.3), 0.9, None) == 3
    assert queries_for(Concentrated(0.1), 2.0, None) == 0
    assert best_order(Pure(0.1), 2.0, None) == math.inf
    # One query at its whole price: no order does better than adding up.
    assert best_order(Pure(2.0), 2.0, 1e-9) == math.inf
    assert divergence(SoftVote(0.1, 50, 10), math.inf) == SoftVote(0.1, 50, 10).epsilon


def test_picos_are_on_the_safe_side():
    charge = Concentrated(1e-13 / 3)
    assert charge_in_picos(charge, 2.0) == 1
    assert charge_in_picos(Pure(0.0), math.inf) == 0
    assert charge_in_picos(Pure(0.1), math.inf) == 10**11
    assert charge_in_picos(Concentrated(0.1), math.inf) is None
    assert capacity_in_picos(1.0, 1e-9, 1.5) == 0  # this order cannot give epsilon at all
    assert capacity_in_picos(0.1, None, math.inf) == 10**11
    assert queries_for(Pure(0.0), 1.0, 1e-6) == 2**62


@pytest.mark.parametrize("delta", [None, 1e-5])
@pytest.mark.parametrize("queries", [1, 10, 1000])
@pytest.mark.parametrize("total", [0.1, 2.0, 30.0])
def test_the_largest_parameter_is_tight(delta, queries, total):
    def vote(eta):
        return SoftVote(eta, 20, 4)

    for charge in (Pure, vote, *((Concentrated,) if delta else ())):
        found = largest_parameter(charge, queries, total, delta)
        assert queries_for(charge(found), total, delta) >= queries
        assert queries_for(charge(found * (1 + 1e-6)), total, delta) < queries


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.01, 300),
    st.one_of(st.none(), st.floats(1e-12, 0.01)),
    st.integers(1, 100_000),
    st.integers(1, 2000),
    st.sampled_from([2, 3, 10, 1000]),
    st.sampled_from([1, 2]),
)
def test_the_largest_parameter_anywhere(epsilon, delta, queries, parts, classes, changed):
    """Tight up to one pico of each charge."""

    def vote(eta):
        return SoftVote(eta, parts, classes, members_changed=changed)

    found = largest_parameter(vote, queries, epsilon, delta)
    assert queries_for(vote(found), epsilon, delta) >= queries
    if found > 1e-5:
        assert queries_for(vote(found * (1 + 1e-5)), epsilon, delta) < queries


@pytest.mark.parametrize(
    ("epsilon", "delta", "queries", "parts", "classes", "changed"),
    [
        (
            142.49915770276243,
            0.00010350430806807946,
            20,
            76,
            1000,
            1,
        ),  # the exact curve ends: a jump
        (201.47486336434335, 0.0003571587088248591, 25, 70, 2, 1),
        (
            5.810984254384266,
            0.0007692367403804521,
            4,
            41,
            10,
            2,
        ),  # another order takes over: a kink
        (24.780084503630313, 3.3947455356993705e-11, 87464, 104, 1000, 1),  # steeper than a square
        (183.6230835758233, 2.0693144556778715e-09, 63310, 19, 1000, 1),
    ],
)
def test_the_largest_parameter_at_jumps_kinks_and_steep_slopes(
    epsilon, delta, queries, parts, classes, changed
):
    def vote(eta):
        return SoftVote(eta, parts, classes, members_changed=changed)

    def bought(eta):
        return queries_for(vote(eta), epsilon, delta)

    found = largest_parameter(vote, queries, epsilon, delta)
    assert bought(found) >= queries > bought(found * (1 + 1e-9))


def test_the_largest_parameter_of_a_budget_that_pays_for_nothing_is_nothing():
    assert largest_parameter(Concentrated, 2**40, 1e-9, 1e-300) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: capacity(1.0, 1e-5, 1.0),
        lambda: capacity(1.0, 1e-5, float("nan")),
        lambda: capacity(1.0, 0.0, 2.0),
        lambda: capacity(-1.0, 1e-5, 2.0),
        lambda: capacity(1.0, None, 2.0),
        lambda: queries_for(Pure(0.1), 1.0, 1.0),
        lambda: largest_parameter(Pure, 0, 1.0, None),
        lambda: largest_parameter(Pure, 1, 0.0, None),
        lambda: largest_parameter(Concentrated, 1, 1.0, None),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        call()
