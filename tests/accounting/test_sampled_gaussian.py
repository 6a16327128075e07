"""The curve of sampled counts with integer noise: against enumeration, forty digits and others."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.accounting import (
    Concentrated,
    SampledGaussian,
    compose,
    compose_mixed,
    largest_parameter,
    queries_for,
    sampled_gaussian_rdp,
)
from torch_holdout.accounting.filters import best_order, capacity, charge_in_picos, divergence
from torch_holdout.accounting.sampled_gaussian import ORDERS
from torch_holdout.errors import InvalidArgumentError

DELTA = 1e-5
RATES = (1e-4, 1e-3, 0.01, 0.1, 0.37, 0.9, 0.999, 1.0)
SIGMAS = (0.5, 1.0, 3.3, 20.0, 500.0, 1e4)
rates_and_sigmas = pytest.mark.parametrize(
    ("rate", "sigma"), list(itertools.product(RATES, SIGMAS)), ids=str
)


def curve_in_digits(rate, sigma, order):
    """The formula of integer orders, term by term in forty digits."""
    with mp.workdps(40):
        q, variance = mp.mpf(rate), mp.mpf(sigma) ** 2
        moment = mp.fsum(
            mp.binomial(order, j)
            * ((1 - q) ** (order - j) if j < order else 1)
            * q**j
            * mp.exp(j * (j - 1) / variance)
            for j in range(order + 1)
        )
        return mp.log(moment) / (order - 1)


@rates_and_sigmas
def test_forty_digits(rate, sigma):
    """Never below (without sampling: but for the last digit), and above by at most 1e-11."""
    curve = sampled_gaussian_rdp(rate, sigma)
    for order in (2, 3, 7, 30, 101, 256):
        exact = curve_in_digits(rate, sigma, order)
        assert (-1e-15 if rate == 1 else 0) <= curve(float(order)) / exact - 1 <= 1e-11


@rates_and_sigmas
def test_equals_dp_accounting_at_all_integer_orders(rate, sigma):
    """Its noise multiplier is for sensitivity 1.

    Its logarithms of factorials have errors of 1e-13: relative to it where that is small enough.
    """
    from dp_accounting.rdp import rdp_privacy_accountant as theirs

    orders = np.array(ORDERS)
    exact = theirs._compute_rdp_poisson_subsampled_gaussian(rate, sigma / math.sqrt(2), orders)
    ours = np.array([sampled_gaussian_rdp(rate, sigma)(float(order)) for order in orders])
    assert np.all(np.abs(ours - exact) <= 1e-9 * np.maximum(1, exact))
    clear = exact * (orders - 1) > 1e-3
    assert np.all(np.abs(ours[clear] / exact[clear] - 1) <= 1e-9)


@pytest.mark.parametrize("queries", [1, 30, 1000, 100_000])
@pytest.mark.parametrize(("rate", "sigma"), [(1e-3, 1.0), (0.01, 2.5), (0.2, 14.0), (1.0, 60.0)])
def test_epsilon_equals_dp_accounting(rate, sigma, queries):
    """Theirs is over the whole orders; ours may use more at the ends, and is never above."""
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant(orders=range(2, 257))
    event = dp.GaussianDpEvent(sigma / math.sqrt(2))
    accountant.compose(dp.PoissonSampledDpEvent(rate, event), queries)
    theirs = accountant.get_epsilon(DELTA)
    curve = SampledGaussian(rate, sigma).curve()
    whole = min(
        queries * curve(float(order)) + 1 - capacity(1.0, DELTA, float(order)) for order in ORDERS
    )
    assert whole == pytest.approx(theirs, abs=1e-3)
    found = compose([SampledGaussian(rate, sigma, queries)], DELTA)
    assert found.epsilon <= theirs + 1e-3
    assert found.relation == "add-remove"
    assert "adding or removing one example" in str(found)


def discrete_laws(rate, sigma, shift, reach=90):
    """Logarithms of the laws without and with one record, on the integers of a square."""
    grid = np.arange(-reach, reach + 1)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    without = -(x**2 + y**2) / (2 * sigma**2)
    moved = -((x - shift[0]) ** 2 + (y - shift[1]) ** 2) / (2 * sigma**2)
    total = np.logaddexp.reduce(without.ravel())
    stays = math.log1p(-rate) if rate < 1 else -math.inf
    both = np.logaddexp(stays + without, math.log(rate) + moved)
    return (both - total).ravel(), (without - total).ravel()


def enumerated(p, q, order):
    return float(np.logaddexp.reduce(order * p + (1 - order) * q)) / (order - 1)


SHIFTS = ((1, -1), (1, 0), (0, 0))  # a vote for a vote, a vote more, another vote for the same
SMALL = list(itertools.product((0.01, 0.2, 0.6, 1.0), (0.5, 0.8, 1.5, 3.0)))


@pytest.mark.parametrize(("rate", "sigma"), SMALL)
def test_enumeration_of_integer_noise(rate, sigma):
    """Reached by adding a record that displaces another vote; nothing else costs more."""
    curve = sampled_gaussian_rdp(rate, sigma)
    for shift in SHIFTS:
        added, without = discrete_laws(rate, sigma, shift)
        for order in (2, 3, 5, 8, 17):
            claimed = curve(float(order))
            adding, removing = (
                enumerated(added, without, order),
                enumerated(without, added, order),
            )
            slack = 1e-9 * claimed + 1e-13
            assert max(adding, removing) <= claimed + slack
            assert removing <= adding + slack
            if shift == (1, -1):
                assert adding == pytest.approx(claimed, rel=1e-8, abs=1e-13)


@pytest.mark.parametrize(("rate", "sigma"), SMALL)
@pytest.mark.parametrize("order", [1.05, 1.3, 1.7, 2.2, 2.5, 3.9, 7.5, 16.1])
def test_fractional_orders_are_bounded(rate, sigma, order):
    curve = sampled_gaussian_rdp(rate, sigma)
    for shift in SHIFTS:
        added, without = discrete_laws(rate, sigma, shift)
        true = max(enumerated(added, without, order), enumerated(without, added, order))
        assert true <= curve(order) * (1 + 1e-9) + 1e-12


def fractional_moments(rate, sigma, order):
    """Moments of integer and of continuous noise along the shift (1, -1), in thirty digits.

    The ratio of the laws depends on u = x - y alone; of integers, x + y is even where u is.
    """
    with mp.workdps(30):
        q, variance, order = mp.mpf(rate), mp.mpf(sigma) ** 2, mp.mpf(order)

        def integrand(u):
            return (
                mp.exp(-u * u / (4 * variance)) * (1 - q + q * mp.exp((u - 1) / variance)) ** order
            )

        sides = [
            mp.fsum(mp.exp(-(mp.mpf(2 * v + odd) ** 2) / (4 * variance)) for v in range(-40, 40))
            for odd in (0, 1)
        ]
        places = range(-60, 61)
        total = mp.fsum(sides[u % 2] * mp.exp(-(mp.mpf(u) ** 2) / (4 * variance)) for u in places)
        integers = mp.fsum(sides[u % 2] * integrand(mp.mpf(u)) for u in places) / total
        points = [-30, -10, -5, 0, 1, 3, 6, 10, 30]
        continuous = mp.quad(integrand, points) / mp.sqrt(4 * mp.pi * variance)
        return float(mp.log(integers) / (order - 1)), float(mp.log(continuous) / (order - 1))


def test_the_continuous_formula_is_no_bound_at_fractional_orders():
    """Integer noise costs .28 % more there than the formula says; what we claim is above both."""
    rate, sigma, order = 1e-3, 0.6, 1.7
    integers, continuous = fractional_moments(rate, sigma, order)
    assert integers > 1.002 * continuous
    assert sampled_gaussian_rdp(rate, sigma)(order) > integers
    whole = fractional_moments(rate, sigma, 2)
    assert whole[0] == pytest.approx(whole[1], rel=1e-9)
    assert whole[0] == pytest.approx(sampled_gaussian_rdp(rate, sigma)(2.0), rel=1e-9)


@pytest.mark.parametrize(
    "twin",
    [
        lambda rate, sigma, order: curve_in_digits(rate, sigma * math.sqrt(2), order),
        lambda rate, sigma, order: curve_in_digits(rate**2, sigma, order),
        lambda rate, sigma, order: enumerated(*discrete_laws(rate, sigma, (1, -1))[::-1], order),
    ],
    ids=["sensitivity 1", "sampled twice", "removing only"],
)
def test_twins_that_claim_less_are_caught(twin):
    added, without = discrete_laws(0.3, 1.0, (1, -1))
    for order in (2, 5, 8):
        assert float(twin(0.3, 1.0, order)) < 0.999 * enumerated(added, without, order)


def test_twin_no_sampling_is_caught():
    """Charged as sampled, but every record is counted."""
    everyone, without = discrete_laws(1.0, 3.0, (1, -1))
    for order in (2, 5, 8):
        assert sampled_gaussian_rdp(0.2, 3.0)(order) < 0.5 * enumerated(everyone, without, order)


@settings(max_examples=150, deadline=None)
@given(st.floats(1e-12, 1), st.floats(1e-3, 1e9), st.floats(1.0001, 1e9))
def test_always_a_number_below_no_sampling(rate, sigma, order):
    found = sampled_gaussian_rdp(rate, sigma)(order)
    assert 0 <= found <= order / sigma**2 * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 1), st.floats(0.3, 1e5))
def test_grows_with_the_order_and_the_rate(rate, sigma):
    orders = (1.001, 1.5, 2, 2.4, 3, 9.7, 10, 64, 200.5, 256)
    curve, more = sampled_gaussian_rdp(rate, sigma), sampled_gaussian_rdp(min(1, 2 * rate), sigma)
    values = [curve(order) for order in orders]
    assert values == sorted(values)
    assert all(curve(order) <= more(order) * (1 + 1e-10) for order in orders)
    steps = [curve(order) * (order - 1) for order in (2, 2.25, 2.5, 2.75, 3)]
    if rate < 0.5:  # above, no sampling may be the smaller bound
        assert np.allclose(np.diff(steps), (steps[-1] - steps[0]) / 4, rtol=1e-6)


class TestCharges:
    ONE = SampledGaussian(0.1, 12.0)

    def test_what_it_is(self):
        assert self.ONE.epsilon == math.inf
        assert self.ONE.rho == pytest.approx(1 / 144)
        assert SampledGaussian(0.0, 12.0).epsilon == SampledGaussian(0.0, 12.0).rho == 0
        assert SampledGaussian(0.0, 12.0).curve()(5.0) == 0
        unsampled, gaussian = SampledGaussian(1.0, 12.0), Concentrated(1 / 144)
        for order in (1.5, 8.0, 300.0):
            assert unsampled.curve()(order) == pytest.approx(gaussian.curve()(order))
        assert compose_mixed([self.ONE], DELTA) == compose([self.ONE], DELTA)
        assert compose([self.ONE]).epsilon == math.inf

    @pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
    @pytest.mark.parametrize("rate", [0.01, 0.2, 0.99])
    def test_the_best_order_is_the_best_whole_one(self, epsilon, rate):
        charge = SampledGaussian(rate, 12.0)
        order = best_order(charge, epsilon, DELTA)
        assert order in ORDERS
        prices = {
            whole: divergence(charge, float(whole)) / capacity(epsilon, DELTA, float(whole))
            for whole in ORDERS
            if capacity(epsilon, DELTA, float(whole)) > 0
        }
        assert prices[order] == min(prices.values())

    @pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0])
    @pytest.mark.parametrize("rate", [0.001, 0.05, 1.0])
    @pytest.mark.parametrize("queries", [1, 300, 10**6])
    def test_the_largest_parameter_is_tight(self, epsilon, rate, queries):
        def charge(sharpness):
            return SampledGaussian(rate, 1 / sharpness)

        found = largest_parameter(charge, queries, epsilon, DELTA)
        assert queries_for(charge(found), epsilon, DELTA) >= queries
        assert queries_for(charge(found * (1 + 1e-4)), epsilon, DELTA) < queries
        total = SampledGaussian(rate, 1 / found, queries)
        assert compose([total], DELTA).epsilon <= epsilon * (1 + 1e-9)

    @pytest.mark.parametrize("epsilon", [0.3, 8.0, 100.0])
    def test_without_sampling_any_order_will_do(self, epsilon):
        order = best_order(SampledGaussian(1.0, 12.0), epsilon, DELTA)
        assert order == pytest.approx(best_order(Concentrated(1 / 144), epsilon, DELTA), rel=1e-6)

    def test_sampling_buys_more(self):
        few = queries_for(SampledGaussian(1.0, 12.0), 2.0, DELTA)
        assert queries_for(self.ONE, 2.0, DELTA) > 20 * few > 0

    def test_budgets_with_room_at_large_orders_only(self):
        assert capacity(1e-3, DELTA, 256.0) < 0
        order = best_order(self.ONE, 1e-3, DELTA)
        assert 256 < order < math.inf
        assert charge_in_picos(self.ONE, order) > 0
        assert best_order(self.ONE, 2.0, None) == math.inf
        assert queries_for(self.ONE, 2.0, None) == 0

    @pytest.mark.parametrize(
        "call",
        [
            lambda: SampledGaussian(-0.1, 1.0),
            lambda: SampledGaussian(1.1, 1.0),
            lambda: SampledGaussian(0.1, 0.0),
            lambda: SampledGaussian(0.1, math.inf),
            lambda: SampledGaussian(0.1, 1.0, -1),
            lambda: sampled_gaussian_rdp(math.nan, 1.0),
        ],
    )
    def test_bad_arguments(self, call):
        with pytest.raises(InvalidArgumentError, match="Expected"):
            call()
