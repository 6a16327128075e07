import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.accounting import compose_pure, delta_of_pure, epsilon_cap
from torch_holdout.accounting.compose import sampling_delta
from torch_holdout.errors import InvalidArgumentError


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("count", [1, 10, 100, 1000])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
def test_agrees_with_dp_accounting(epsilon, count, delta):
    """dp-accounting's worst-case pure mechanism, rounded up on its own grid."""
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    worst = pld.from_privacy_parameters(
        common.DifferentialPrivacyParameters(epsilon, 0),
        value_discretization_interval=min(1e-4, epsilon / 100),
    )
    oracle = worst.self_compose(count).get_epsilon_for_delta(delta)
    ours = compose_pure(epsilon, count, delta)
    assert ours == pytest.approx(oracle, rel=1e-3, abs=1e-9)
    assert ours <= epsilon * count


@pytest.mark.parametrize(
    ("epsilon", "count", "expected"),
    [(0.01, 100, 0.392), (0.01, 1000, 1.37), (0.1, 100, 4.77), (1.0, 100, 83.5), (1.0, 1000, 591)],
)
def test_known_values(epsilon, count, expected):
    assert compose_pure(epsilon, count, 1e-6) == pytest.approx(expected, rel=5e-3)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-4, 5), st.integers(1, 300), st.floats(1e-12, 0.5))
def test_inverts_and_is_monotone(epsilon, count, delta):
    found = compose_pure(epsilon, count, delta)
    assert delta_of_pure(epsilon, count, found) <= delta * (1 + 1e-6)
    assert found <= compose_pure(epsilon, count + 1, delta) * (1 + 1e-6)
    assert compose_pure(epsilon, count, min(0.9, 2 * delta)) <= found * (1 + 1e-6)


def test_window_loses_nothing():
    """The full sum, without the window around the mean."""
    epsilon, count, at = 0.02, 4000, 2.0
    log_all = count * math.log1p(math.exp(epsilon))
    full = math.fsum(
        math.exp(
            math.lgamma(count + 1)
            - math.lgamma(k + 1)
            - math.lgamma(count - k + 1)
            + (count - k) * epsilon
            - log_all
        )
        * max(0.0, -math.expm1(at - (count - 2 * k) * epsilon))
        for k in range(count + 1)
    )
    assert delta_of_pure(epsilon, count, at) == pytest.approx(full, rel=1e-9)


def test_large_counts_use_a_bound_that_is_never_smaller():
    exact = compose_pure(0.001, 100_000, 1e-6)
    bound = compose_pure(0.001, 100_001, 1e-6)
    assert exact < bound < 1.5 * exact


def test_no_cost_and_infinite_cost():
    assert compose_pure(0.0, 10, 1e-6) == 0
    assert compose_pure(0.5, 0) == 0
    assert math.isinf(compose_pure(math.inf, 3, 1e-6))


@pytest.mark.parametrize(
    "arguments", [(-1, 2), (float("nan"), 2), (1, -1), (1, 1.5), (1, 2, 0), (1, 2, 1)]
)
def test_bad_arguments(arguments):
    with pytest.raises(InvalidArgumentError):
        compose_pure(*arguments)


class TestCap:
    def test_one_units_value(self):
        assert epsilon_cap([0.1], 20) == pytest.approx(4.0)

    def test_each_other_units_value_leaves_one_round_open(self):
        assert epsilon_cap([0.1, 0.5, 0.02], 10) == pytest.approx(2 * 10 * 0.5 + 0.1 + 0.02)

    @pytest.mark.parametrize("steps", [[math.inf], [math.inf, math.inf], [1.0, math.inf]])
    @pytest.mark.parametrize("delta", [None, 1e-6])
    def test_without_noise(self, steps, delta):
        assert epsilon_cap(steps, 5, delta) == math.inf

    def test_delta_never_hurts(self):
        for step in (1e-4, 0.01, 1.0, 10.0):
            assert epsilon_cap([step], 50, 1e-6) <= epsilon_cap([step], 50)

    def test_sampling_delta(self):
        assert sampling_delta(1.0, 1e-70) == pytest.approx((1 + math.e) * 1e-70)
        assert sampling_delta(1e5, 1e-70) == 1.0
        assert sampling_delta(1.0, 0.0) == 0.0
