"""Composition against dp-accounting and against the published tables."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout import accounting as ac
from torch_holdout.accounting import Concentrated, DiscreteLaplace, Pure, compose, compose_mixed
from torch_holdout.errors import InvalidArgumentError

DELTA = 1e-6
# epsilon_0, k: basic, advanced, zCDP, Renyi (Laplace), loss distribution (Laplace), worst case
T1 = {
    (0.01, 1): (0.01, 0.0527, 0.0526, 0.0151, 0.0100, 0.0100),
    (0.01, 10): (0.1, 0.167, 0.167, 0.0990, 0.0990, 0.0990),
    (0.01, 100): (1, 0.536, 0.531, 0.421, 0.391, 0.392),
    (0.01, 1000): (10, 1.76, 1.71, 1.47, 1.36, 1.37),
    (0.1, 1): (0.1, 0.536, 0.531, 0.105, 0.100, 0.100),
    (0.1, 10): (1, 1.77, 1.71, 0.999, 0.999, 0.999),
    (0.1, 100): (10, 6.31, 5.76, 4.98, 4.69, 4.77),
    (0.1, 1000): (100, 27.1, 21.6, 20.1, 19.0, 19.3),
    (1.0, 1): (1, 6.98, 5.76, 1.01, 1.00, 1.00),
    (1.0, 10): (10, 33.8, 21.6, 10.0, 10.0, 10.0),
    (1.0, 100): (100, 224, 103, 73.8, 71.6, 83.5),
    (1.0, 1000): (1000, 1885, 666, 497, 486, 591),
}
# a, B: basic, paper, advanced on 2a, Renyi, loss distribution
T2 = {
    (0.001, 100): (0.2, 0.216, 0.106, 0.0538, 0.0487),
    (0.001, 1000): (2, 0.681, 0.337, 0.190, 0.168),
    (0.01, 10): (0.2, 0.681, 0.337, 0.166, 0.157),
    (0.01, 100): (2, 2.16, 1.09, 0.615, 0.571),
    (0.01, 1000): (20, 6.81, 3.73, 2.14, 1.99),
    (0.05, 100): (10, 10.8, 6.31, 3.48, 3.26),
    (0.05, 1000): (100, 34.1, 27.1, 13.3, 12.5),
}


def close(expected):
    """Within 1 %, and what three printed digits round away."""
    return pytest.approx(expected, rel=0.01)


def laplace(epsilon, levels=65536):
    """Integer noise so fine that it is as good as continuous."""
    return DiscreteLaplace(scale=levels / epsilon, sensitivity=levels)


def repeated(charge, count):
    curve = charge.curve()
    return ac.rdp.epsilon_of_rdp(lambda alpha: count * curve(alpha), DELTA)


@pytest.mark.parametrize(("epsilon", "count"), T1)
def test_table_one(epsilon, count):
    basic, advanced, zcdp, renyi, _, worst = T1[epsilon, count]
    assert ac.compose_basic([(epsilon, 0.0)] * count)[0] == close(basic)
    assert ac.compose_advanced(epsilon, count, DELTA)[0] == close(advanced)
    assert ac.rdp.epsilon_of_rho_simple(count * ac.rdp.rho_of_pure(epsilon), DELTA) == close(zcdp)
    assert ac.compose_pure(epsilon, count, DELTA) == close(worst)
    if count == 1:
        # The table's orders end early; without an end one query costs its own epsilon.
        assert repeated(laplace(epsilon), count) == close(epsilon)
    else:
        assert min(basic, repeated(laplace(epsilon), count)) == close(renyi)


@pytest.mark.parametrize(("epsilon", "count"), [(0.01, 100), (0.1, 100), (1.0, 10), (1.0, 100)])
def test_the_loss_distribution_column_is_for_continuous_noise(epsilon, count):
    """It is below the worst case; for integers of one level it would be wrong (71.6, not 83.5)."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    continuous = pld.from_laplace_mechanism(
        1 / epsilon, value_discretization_interval=min(1e-4, epsilon / 20)
    )
    found = continuous.self_compose(count).get_epsilon_for_delta(DELTA)
    assert found == close(T1[epsilon, count][4])
    one_level = compose_mixed([DiscreteLaplace(1 / epsilon, 1, count)], DELTA).epsilon
    assert one_level == pytest.approx(T1[epsilon, count][5], rel=0.01)
    assert found <= one_level * 1.001


@pytest.mark.parametrize(("step", "budget"), T2)
def test_table_two(step, budget):
    basic, _, advanced, renyi, best = T2[step, budget]
    assert ac.epsilon_cap([step], budget) == close(basic)
    assert ac.compose_advanced(2 * step, budget, DELTA)[0] == close(advanced)
    pure, noise = Pure(step).curve(), laplace(step).curve()
    found = ac.rdp.epsilon_of_rdp(lambda alpha: budget * (pure(alpha) + noise(alpha)), DELTA)
    # The table's orders are few at small epsilon: ours may be lower, by at most 5 %.
    assert 0.95 * renyi <= found <= 1.01 * renyi
    # The answers as arbitrary pure mechanisms, too: what is shipped is at most 1 % above.
    assert ac.epsilon_cap([step], budget, DELTA) == close(best)


def test_the_cap_of_the_issue():
    assert ac.epsilon_cap([0.01], 100, DELTA) <= 0.58


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("count", [1, 7, 100])
def test_discrete_laplace_curve_is_the_sum_over_the_integers(epsilon, count):
    sensitivity = 1 + count % 5
    scale = sensitivity / epsilon
    q = math.exp(-1 / scale)
    reach = range(int(-60 * scale), int(60 * scale) + sensitivity)
    for alpha in (1.1, 2.0, 9.5):
        total = math.fsum(
            math.exp(-(alpha * abs(x) + (1 - alpha) * abs(x - sensitivity)) / scale) for x in reach
        )
        curve = DiscreteLaplace(scale, sensitivity).curve()
        assert curve(alpha) == pytest.approx(
            math.log(total * (1 - q) / (1 + q)) / (alpha - 1), rel=1e-6
        )


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-4, 3), st.integers(1, 400), st.floats(1e-12, 0.3))
def test_between_one_query_and_the_sum(epsilon, count, delta):
    found = compose([Pure(epsilon, count)], delta).epsilon
    assert found <= epsilon * count
    assert found >= compose([Pure(epsilon)], delta).epsilon * (1 - 1e-6)
    # One query: the exact value is where delta(e) = (e^eps0 - e^e)/(1 + e^eps0).
    one = math.log(max(1.0, math.exp(epsilon) - delta * (1 + math.exp(epsilon))))
    assert compose([Pure(epsilon)], delta).epsilon == pytest.approx(one, abs=1e-6)
    # Every other valid composition is at least the exact one.
    exact = ac.compose_pure(epsilon, count, delta) * (1 - 1e-6) - 1e-9 * count * epsilon
    assert ac.epsilon_of_rho(count * ac.rdp.rho_of_pure(epsilon), delta) >= exact
    curve = ac.rdp.rdp_of_pure(epsilon)
    assert ac.rdp.epsilon_of_rdp(lambda alpha: count * curve(alpha), delta) >= exact
    if epsilon * count < 700:
        assert ac.compose_advanced(epsilon, count, delta)[0] >= exact


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 50), st.floats(1e-12, 0.5))
def test_rho_conversions(rho, delta):
    found = ac.epsilon_of_rho(rho, delta)
    assert found <= ac.rdp.epsilon_of_rho_simple(rho, delta)
    assert found <= ac.epsilon_of_rho(rho * 1.1, delta) + 1e-9
    if found > 0:
        assert ac.rho_for(found, delta) == pytest.approx(rho, rel=1e-3)


def test_gaussian_agrees_with_the_oracle_and_is_never_below_it():
    """A zCDP statement is weaker than the Gaussian it comes from."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    for sigma in (5.0, 50.0):
        gaussian = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
        oracle = gaussian.self_compose(100).get_epsilon_for_delta(DELTA)
        rho = 100 * ac.rho_of_gaussian(sigma, 1.0)
        found = compose([Concentrated(ac.rho_of_gaussian(sigma, 1.0), 100)], DELTA)
        assert oracle <= found.epsilon <= ac.rdp.epsilon_of_rho_simple(rho, DELTA)


@pytest.mark.parametrize(("epsilon", "count"), [(1e-9, 10**16), (1e-8, 10**14), (1e-6, 10**10)])
def test_tiny_epsilons_lose_no_digits(epsilon, count):
    """All have rho = 0.005: rounding must not make one of them cheaper."""
    curve = ac.rdp.rdp_of_pure(epsilon)
    found = ac.rdp.epsilon_of_rdp(lambda alpha: count * curve(alpha), DELTA)
    assert found == pytest.approx(ac.epsilon_of_rho(0.005, DELTA), rel=1e-6)


def test_mixed_charges():
    charges = [Pure(0.02, 50), DiscreteLaplace(100.0, 1, 50)]
    mixed, plain = compose_mixed(charges, DELTA), compose(charges, DELTA)
    assert mixed.epsilon < plain.epsilon < 1.5
    assert mixed.method == "loss distribution"
    assert "replacing one example" in str(mixed)
    gaussian = [*charges, Concentrated(0.01)]
    assert compose_mixed(gaussian, DELTA) == compose(gaussian, DELTA)


def test_accountant_that_ignores_the_count_is_not_used():
    """dp-accounting's accountant composes randomised responses once; its functions do not."""
    assert compose_mixed([Pure(0.5, 100)], DELTA).epsilon == pytest.approx(33.32, rel=2e-3)


def test_gaussian_noise_has_no_pure_epsilon():
    assert compose([Concentrated(0.1)]).epsilon == math.inf
    assert compose([Concentrated(0.1), Pure(1.0)], DELTA).method in ("zCDP", "Renyi")
    assert compose([], DELTA).epsilon == 0
    assert compose([Concentrated(0.0)]).epsilon == 0
    assert compose([Pure(math.inf)], DELTA).epsilon == math.inf


def test_sampler_error_is_added_to_delta():
    found = compose([Pure(1.0)], DELTA, variation=1e-9)
    assert found.delta == pytest.approx(DELTA + (1 + math.exp(found.epsilon)) * 1e-9)


def test_group_privacy():
    assert ac.group_privacy(0.1, 4) == (0.4, 0.0)
    epsilon, delta = ac.group_privacy(0.1, 4, 1e-6)
    assert (epsilon, delta) == (0.4, pytest.approx(4 * math.exp(0.3) * 1e-6))
    assert ac.group_privacy(3.0, 10, 0.1)[1] == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: Pure(-1.0),
        lambda: Pure(float("nan")),
        lambda: Pure(1.0, 1.5),
        lambda: DiscreteLaplace(0.0, 1),
        lambda: DiscreteLaplace(1.0, 0),
        lambda: Concentrated(-0.1),
        lambda: compose([Pure(1.0)], 0.0),
        lambda: compose([Pure(1.0)], 1.0),
        lambda: compose([Pure(1.0)], variation=-1.0),
        lambda: ac.compose_advanced(0.1, -1, 0.1),
        lambda: ac.compose_advanced(0.1, 1, 0.0),
        lambda: ac.compose_basic([(0.1, 2.0)]),
        lambda: ac.group_privacy(0.1, 0),
        lambda: ac.epsilon_of_rho(-1.0, 0.1),
        lambda: ac.rho_of_gaussian(0.0, 1.0),
        lambda: ac.rdp.epsilon_of_rdp(ac.rdp.rdp_of_rho(1.0), float("nan")),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(InvalidArgumentError, match="Expected `"):
        call()
