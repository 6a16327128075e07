"""Each theorem: its formula on a case done by hand, its directions, its refusals."""

import inspect
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout import bounds as tb
from torch_holdout.accounting import PrivacyLoss, Pure, compose_advanced, epsilon_cap
from torch_holdout.accounting.pure import log_binomial
from torch_holdout.bounds import private_answers as pa
from torch_holdout.bounds import published as pb
from torch_holdout.bounds.brackets import worst_releases
from torch_holdout.errors import InvalidArgumentError

UP, DOWN = 1, -1
COUNTS = {"sequences": tb.any_sequences(65)}
NOISE = {"error": lambda failure: 0.01 * math.log(20 / failure)}
ANSWERS = {"units": 50_000, "step": 0.002, "count": 40, "failure": 0.05, **NOISE}


def of_pure(theorem):
    """A theorem about the privacy of ``count`` pure mechanisms of ``step`` each."""

    def tolerance(units, step, count, error, failure):
        loss = PrivacyLoss((Pure(step, count),))
        return theorem(pa.PrivateAnswers(units, loss, error, failure))

    tolerance.__name__ = theorem.__name__
    return tolerance


# A function, arguments at which it says something, and how its (first) result moves with each.
DIRECTIONS = {
    tb.hoeffding: ({"units": 900, "failure": 0.05}, {"units": DOWN, "failure": DOWN}),
    pb.naive_union: (
        {"units": 900, "queries": 9, "failure": 0.05},
        {"units": DOWN, "queries": UP, "failure": DOWN},
    ),
    pb.sample_splitting: (
        {"units": 900, "queries": 9, "failure": 0.05},
        {"units": DOWN, "queries": UP, "failure": DOWN},
    ),
    pb.counting_fixed: (
        {"units": 900, "queries": 90, "budget": 9, "answers": 65, "failure": 0.05},
        {"units": DOWN, "queries": UP, "budget": UP, "answers": UP, "failure": DOWN},
    ),
    pb.counting_data_dependent: (
        {"units": 900, "queries": 90, "releases_before": 9, "answers": 65, "failure": 0.05},
        {"units": DOWN, "queries": UP, "releases_before": UP, "answers": UP, "failure": DOWN},
    ),
    pb.counting_anytime: (
        {"units": 900, "position": 90, "releases_before": 9, "answers": 65, "failure": 0.05},
        {"units": DOWN, "position": UP, "releases_before": UP, "answers": UP, "failure": DOWN},
    ),
    tb.bracket_planned: (
        {"position": 50, "releases_before": 9, "queries": 90, "budget": 12, "failure": 0.05}
        | COUNTS,
        {"position": UP, "releases_before": UP, "queries": UP, "budget": UP, "failure": DOWN},
    ),
    pb.bracket_all_released: (
        {"queries": 9, "answers": 65, "failure": 0.05},
        {"queries": UP, "answers": UP, "failure": DOWN},
    ),
    pb.overfitting_from_information: (
        {"bits": 3.0, "failure": 0.01},
        {"bits": UP, "failure": UP},
    ),
    pb.information_allowed: (
        {"units": 900, "tolerance": 0.1},
        {"units": UP, "tolerance": UP},
    ),
    tb.information_tolerance: (
        {"units": 900, "bits": 9.0, "failure": 0.05},
        {"units": DOWN, "bits": UP, "failure": DOWN},
    ),
    tb.information_of_pure: ({"epsilon": 0.1, "units": 900}, {"epsilon": UP, "units": UP}),
    tb.information_of_pure_iid: (
        {"epsilon": 0.01, "units": 900, "failure": 0.05},
        {"epsilon": UP, "units": UP, "failure": DOWN},
    ),
    pb.information_of_description: (
        {"bits": 9.0, "failure": 0.05},
        {"bits": UP, "failure": DOWN},
    ),
    pb.pure_overfitting: (
        {"epsilon": 0.01, "units": 900, "failure": 1e-4},
        {"failure": UP},
    ),
    tb.pure_tolerance: (
        {"epsilon": 0.05, "units": 900, "failure": 0.05},
        {"epsilon": UP, "units": DOWN, "failure": DOWN},
    ),
    pb.pure_tolerance_two_sided: (
        {"epsilon": 0.05, "units": 900, "failure": 0.05},
        {"epsilon": UP, "units": DOWN, "failure": DOWN},
    ),
    pb.moment_transfer_size: (
        {"tolerance": 0.1, "failure": 0.05},
        {"tolerance": DOWN, "failure": DOWN},
    ),
    pb.approximate_transfer_size: (
        {"tolerance": 0.1, "failure": 0.05},
        {"tolerance": DOWN, "failure": DOWN},
    ),
    pb.expected_gap: ({"epsilon": 0.1, "delta": 1e-3}, {"epsilon": UP, "delta": UP}),
    tb.monitor_tolerance: (
        {"epsilon": 0.05, "delta": 1e-6, "units": 50_000},
        {"epsilon": UP, "units": DOWN},
    ),
    pb.composed_tolerance: (
        {"epsilon": 0.05, "delta": 1e-6, "units": 50_000, "queries": 9, "error": 0.01}
        | {"failure": 1e-4},
        {"epsilon": UP, "units": DOWN, "error": UP},
    ),
    tb.accuracy_transfer: (
        {"epsilon": 0.05, "delta": 1e-6, "error": 0.01, "error_failure": 1e-5, "slack": 0.01}
        | {"loss": 0.01},
        {"epsilon": UP, "error": UP, "slack": UP, "loss": UP},
    ),
    tb.information_mse: ({"information": 3.0, "units": 900}, {"information": UP, "units": DOWN}),
    pb.information_chebyshev: (
        {"information": 3.0, "units": 900, "failure": 0.05},
        {"information": UP, "units": DOWN, "failure": DOWN},
    ),
    pb.thresholdout_epsilon: (
        {"budget": 9, "sigma": 0.01, "units": 900, "delta": 1e-6},
        {"budget": UP, "sigma": DOWN, "units": DOWN, "delta": DOWN},
    ),
    pb.thresholdout_size_pure: (
        {"budget": 9, "sigma": 0.01, "tolerance": 0.1, "failure": 0.05},
        {"budget": UP, "sigma": DOWN, "tolerance": DOWN},
    ),
    pb.thresholdout_size_approximate: (
        {"budget": 9, "sigma": 0.01, "tolerance": 0.1, "failure": 0.05},
        {"budget": UP, "sigma": DOWN, "tolerance": DOWN, "failure": DOWN},
    ),
    pb.thresholdout_tolerance: (
        {"units": 10**8, "failure": 0.05, "queries": 90, "budget": 9},
        {"units": DOWN, "failure": DOWN, "queries": UP, "budget": UP},
    ),
    pb.laplace_error: (
        {"units": 900, "epsilon": 0.1, "failure": 0.05},
        {"units": DOWN, "epsilon": DOWN, "failure": DOWN},
    ),
    pb.laplace_size: (
        {"queries": 9, "accuracy": 0.1, "failure": 0.05, "epsilon": 0.1, "delta": 1e-6},
        {"queries": UP, "accuracy": DOWN, "failure": DOWN, "epsilon": DOWN, "delta": DOWN},
    ),
    pb.sparse_size: (
        {"rounds": 9, "accuracy": 0.1, "failure": 0.05, "epsilon": 0.1, "queries": 90}
        | {"delta": 1e-6},
        {"rounds": UP, "accuracy": DOWN, "failure": DOWN, "epsilon": DOWN, "queries": UP}
        | {"delta": DOWN},
    ),
    pb.laplace_population_size: (
        {"queries": 9, "tolerance": 0.1, "failure": 0.05},
        {"queries": UP, "tolerance": DOWN, "failure": DOWN},
    ),
    pb.lecture_size: (
        {"queries": 9, "tolerance": 0.1, "failure": 0.05},
        {"queries": UP, "tolerance": DOWN, "failure": DOWN},
    ),
    pb.ladder_error: (
        {"units": 9000, "queries": 90, "step": 0.05, "failure": 0.05},
        {"units": DOWN, "queries": UP, "failure": DOWN},
    ),
    pb.soft_majority_probability: (
        {"votes": 9, "others": 5, "epsilon": 0.5},
        {"votes": UP, "others": DOWN, "epsilon": UP},
    ),
    pb.soft_majority_parts: (
        {"error": 0.1, "epsilon": 0.5},
        {"error": DOWN, "epsilon": DOWN},
    ),
    pb.prediction_lower_bound: (
        {"dimension": 9, "error": 0.1, "epsilon": 0.5},
        {"dimension": UP, "error": DOWN, "epsilon": DOWN},
    ),
    pb.lipschitz_noise_cost: (
        {"lipschitz": 1.0, "stability": 0.1, "epsilon": 0.5},
        {"lipschitz": UP, "stability": UP, "epsilon": DOWN},
    ),
    pb.smooth_noise_cost: (
        {"smoothness": 1.0, "stability": 0.1, "epsilon": 0.5},
        {"smoothness": UP, "stability": UP, "epsilon": DOWN},
    ),
    pb.averaging: (
        {"stability": 1.0, "failure": 0.01, "parts": 9},
        {"stability": UP, "parts": DOWN},
    ),
    pb.agnostic_parts: ({"error": 0.1, "epsilon": 0.5}, {"error": DOWN, "epsilon": DOWN}),
    pb.strongly_convex_cost: (
        {"lipschitz": 1.0, "loss_lipschitz": 1.0, "convexity": 0.1, "units": 900, "epsilon": 0.5},
        {"lipschitz": UP, "loss_lipschitz": UP, "convexity": DOWN, "units": DOWN, "epsilon": DOWN},
    ),
    tb.convex_regulariser: (
        {"lipschitz": 1.0, "loss_lipschitz": 1.0, "radius": 0.1, "units": 900, "epsilon": 0.5},
        {"lipschitz": UP, "loss_lipschitz": UP, "radius": DOWN, "units": DOWN, "epsilon": DOWN},
    ),
    pb.convex_cost: (
        {"lipschitz": 1.0, "loss_lipschitz": 1.0, "radius": 0.1, "units": 900, "epsilon": 0.5},
        {"lipschitz": UP, "loss_lipschitz": UP, "radius": UP, "units": DOWN, "epsilon": DOWN},
    ),
    pb.smooth_convex_cost: (
        {"lipschitz": 1.0, "loss_lipschitz": 1.0, "smoothness": 0.5, "radius": 0.1, "units": 900}
        | {"epsilon": 0.5},
        {"lipschitz": UP, "loss_lipschitz": UP, "smoothness": UP, "radius": UP, "units": DOWN}
        | {"epsilon": DOWN},
    ),
    pb.private_expectation: (
        {"expectation": 0.1, "epsilon": 0.5, "delta": 1e-3, "bound": 2.0},
        {"expectation": UP, "epsilon": UP, "delta": UP, "bound": UP},
    ),
    pb.fresh_moment: (
        {"order": 2, "mean": 0.1, "epsilon": 0.1, "delta": 1e-3, "bound": 2.0},
        {"mean": UP, "epsilon": UP, "delta": UP, "bound": UP},
    ),
    pb.fresh_mean: (
        {"mean": 0.1, "epsilon": 0.1, "failure": 0.05, "delta": 1e-4, "bound": 2.0},
        {"mean": UP, "epsilon": UP, "failure": DOWN, "delta": UP, "bound": UP},
    ),
    of_pure(pa.by_pure_privacy): (
        ANSWERS,
        {"units": DOWN, "step": UP, "count": UP, "failure": DOWN},
    ),
    of_pure(pa.by_max_information): (ANSWERS, {"step": UP, "count": UP, "failure": DOWN}),
    of_pure(pa.by_monitor): (ANSWERS, {"units": DOWN, "step": UP, "count": UP, "failure": DOWN}),
    of_pure(pa.by_accuracy): (ANSWERS, {"step": UP, "count": UP, "failure": DOWN}),
    of_pure(pa.by_mutual_information): (ANSWERS, {"step": UP, "count": UP, "failure": DOWN}),
}
RANGES = {"error": 0.25, "failure": 0.99, "tolerance": 1 / 3, "delta": 0.4, "epsilon": 1.0}


def first(result):
    return result[0] if isinstance(result, tuple) else result


def moved(name, value, factor):
    if isinstance(value, int):
        return max(value + 1, round(value * factor))
    return min(value * factor, RANGES.get(name, math.inf))


CASES = [
    pytest.param(function, arguments, name, direction, id=f"{function.__name__}-{name}")
    for function, (arguments, directions) in DIRECTIONS.items()
    for name, direction in directions.items()
]


@pytest.mark.parametrize(("function", "arguments", "name", "direction"), CASES)
def test_moves_the_way_it_must(function, arguments, name, direction):
    factors = (1.001, 1.1, 1.9, 3.7)
    values = [arguments[name], *(moved(name, arguments[name], factor) for factor in factors)]
    found = [first(function(**{**arguments, name: value})) for value in values]
    steps = [direction * (b - a) for a, b in itertools.pairwise(found)]
    assert min(steps) >= -1e-9 * abs(found[0])
    # Where another argument decides (the largest of two terms), the result may stay.
    flat = {"monitor_tolerance", "composed_tolerance", "by_pure_privacy", "by_monitor"}
    if name != "units" or function.__name__ not in flat:
        assert found[0] != found[-1]


BAD = {
    "units": [0, -1, 1.5, float("nan"), True, "9"],
    "queries": [0, -1, 2.5],
    "budget": [0, -1, 2.5],
    "rounds": [0, 1.5],
    "answers": [0, -4],
    "position": [0, -1],
    "releases_before": [-1, 10**6],
    "failure": [0, 1, -0.1, 1.1, float("nan"), None],
    "delta": [-0.1, 1.5, float("nan")],
    "epsilon": [-0.1, float("nan"), "x"],
    "tolerance": [-0.1, 0.0, 1.5, float("nan"), math.inf],
    "accuracy": [0, 1, -0.1, float("nan")],
    "sigma": [0, -1, float("nan")],
    "bits": [-1, float("nan")],
    "information": [-1, float("nan")],
    "step": [-1, float("nan")],
    "count": [-1, 1.5],
    "error": [-1, float("nan")],
    "slack": [0, 1, float("nan")],
    "loss": [-0.1, 1.1],
    "votes": [-1, 0.5],
    "parts": [0, 1.5],
    "dimension": [0, 1.5],
    "stability": [-1, float("nan")],
    "convexity": [0, -1],
    "smoothness": [-1, float("nan")],
    "radius": [0, -1],
    "lipschitz": [0, -1],
    "mean": [-0.1, 5.0, float("nan")],
    "bound": [-1, float("nan")],
    "order": [0, 1.5],
}
REFUSALS = [
    pytest.param(function, arguments, name, value, id=f"{function.__name__}-{name}-{value}")
    for function, (arguments, _) in DIRECTIONS.items()
    for name in arguments
    for value in BAD.get(name, ())
    if not (name == "error" and callable(arguments[name]))
]


@pytest.mark.parametrize(("function", "arguments", "name", "value"), REFUSALS)
def test_refuses_with_the_range(function, arguments, name, value):
    with pytest.raises(ValueError, match="Expected") as caught:
        function(**{**arguments, name: value})
    assert isinstance(caught.value, InvalidArgumentError)
    known = {"step": "epsilon"} if function.__name__.startswith("by_") else {}
    assert known.get(name, name) in str(caught.value) or "a fixed plan" in str(caught.value)


def test_every_theorem_has_a_direction_and_an_example():
    listed = {function.__name__ for function in DIRECTIONS}
    elsewhere = {
        # intervals, kinds of counts and compound results have tests of their own
        *("any_sequences", "falling_sequences", "monotone_sequences", "improvement_bits"),
        *("bracket_anytime", "bracket_fixed", "bracket_data_dependent", "hoeffding_tolerance"),
        *("binary_kl", "kl_interval", "chernoff_interval", "kl_answer_interval", "laplace_tail"),
        "gaussian_tail",
        *("certify_transcript", "thresholdout_plan", "effective_rounds_size"),
        *("multiplicative_weights_size", "ladder_best_step", "soft_majority_size"),
        "agnostic_size",
    }
    named = [getattr(module, name) for module in (tb, pb) for name in module.__all__]
    functions = {value.__name__: value for value in named if inspect.isfunction(value)}
    assert set(functions) == (listed | elsewhere) - {f.__name__ for f in pa.THEOREMS.values()}
    for function in functions.values():
        assert ">>>" in function.__doc__


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 2**62), st.data())
def test_log_binomial_is_exact_for_huge_numbers(n, data):
    from mpmath import loggamma, mp

    k = data.draw(st.one_of(st.integers(0, min(n, 2000)), st.integers(0, n)))
    with mp.workdps(60):
        exact = float(loggamma(n + 1) - loggamma(k + 1) - loggamma(n - k + 1))
    assert log_binomial(n, k) == pytest.approx(exact, rel=1e-9, abs=1e-7)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 400), st.integers(1, 400), st.integers(2, 600),
    st.sampled_from([tb.any_sequences, tb.monotone_sequences, tb.falling_sequences]),
)  # fmt: skip
def test_worst_releases_is_the_largest_bracket(position, budget, answers, count):
    def at(before):
        return tb.bracket_anytime(
            position=position, releases_before=before, sequences=count(answers), failure=0.05
        )

    found = worst_releases(position, budget, count(answers))
    assert at(found) == pytest.approx(max(at(b) for b in range(min(budget, position))))


class TestByHand:
    def test_max_information(self):
        assert pb.overfitting_from_information(2.0, 0.1) == pytest.approx(0.4)
        assert pb.overfitting_from_information(20.0, 0.1) == 1.0
        bits, failure = pb.information_allowed(1000, 0.1)
        assert (bits, failure) == pytest.approx((math.log2(math.e) * 10, 2 * math.exp(-10)))
        # Theorem 2.1 with Hoeffding's event gives the corollary back.
        fixed = 2 * math.exp(-2 * 0.1**2 * 1000)
        assert pb.overfitting_from_information(bits, fixed) == pytest.approx(failure)
        assert tb.information_tolerance(1000, bits, failure) == pytest.approx(0.1)

    def test_transcript_bits_of_the_notes(self):
        """k = 1000 queries, 256 steps: 20 releases are 302 bits, allowed at tau 0.1, n = 50,000."""
        bits = math.log2(math.comb(1000, 20)) + math.log2(21) + 20 * math.log2(257)
        assert bits == pytest.approx(302, abs=1)
        assert pb.information_of_description(bits, 0.01) < pb.information_allowed(50_000, 0.1)[0]
        assert pb.information_of_description(bits, 0.01) > pb.information_allowed(10_000, 0.1)[0]

    def test_pure_privacy(self):
        limit = math.sqrt(math.log(1e4) / 1800)
        assert pb.pure_overfitting(limit * 0.999, 900, 1e-4) == pytest.approx(0.03)
        assert pb.pure_overfitting(limit * 1.001, 900, 1e-4) == 1.0
        tau = tb.pure_tolerance(0.0, 900, 0.05)
        assert 6 * math.exp(-(tau**2) * 900) == pytest.approx(0.05)
        tau = pb.pure_tolerance_two_sided(0.0, 900, 0.05)
        assert 3 * math.sqrt(2) * math.exp(-(tau**2) * 900) == pytest.approx(0.05)

    def test_approximate_privacy(self):
        examples, epsilon, delta = pb.approximate_transfer_size(0.2, 0.05)
        assert examples == pytest.approx(48 * math.log(80) / 0.04)
        assert epsilon == pytest.approx(0.05)
        assert delta == pytest.approx((0.05 / 8) ** 20)

    def test_monitor(self):
        tolerance, failure = tb.monitor_tolerance(0.1, 1e-4, 10_000)
        assert (tolerance, failure) == pytest.approx((0.6, max(4e-3, math.exp(-12.5))))
        # Below the theorem's range epsilon counts as sqrt(12/n); above it nothing is said.
        assert tb.monitor_tolerance(0.0, 0.0, 10_000)[0] == pytest.approx(6 * math.sqrt(12e-4))
        assert tb.monitor_tolerance(0.13, 0.0, 10_000) == (math.inf, 1.0)
        assert tb.monitor_tolerance(0.1, 0.01, 10_000) == (math.inf, 1.0)
        answers = {"queries": 10, "error": 0.05, "failure": 1e-3}
        tolerance, failure = pb.composed_tolerance(0.1, 1e-4, 10_000, **answers)
        assert (tolerance, failure) == pytest.approx((0.65, 0.014))

    def test_accuracy_without_loss_needs_pure_privacy(self):
        facts = {"error": 0.1, "error_failure": 1e-3, "slack": 0.1}
        assert tb.accuracy_transfer(0.1, 1e-6, loss=0.0, **facts)[1] == 1.0
        assert tb.accuracy_transfer(0.1, 0.0, loss=0.0, **facts)[1] == pytest.approx(0.01)

    def test_information_is_an_upper_bound_on_the_variance(self):
        """Without information the mean square of a coin's mean is 1/(4n): the bound's limit."""
        assert tb.information_mse(0.0, 100) == pytest.approx(1 / 400, rel=1e-6)
        assert tb.information_mse(0.0, 100) >= 1 / 400

    def test_thresholdout(self):
        assert pb.thresholdout_epsilon(100, 0.01, 10_000) == pytest.approx(2.0)
        assert pb.thresholdout_epsilon(100, 0.01, 10_000, 1e-6) == pytest.approx(2.16, abs=0.01)
        assert pb.thresholdout_size_pure(5, 0.01, 0.1, 0.05) == pytest.approx(10_000)
        expected = 4 / (0.01 * 0.1) * math.sqrt(160 * (math.log(2) + 40 * math.log(160)))
        assert pb.thresholdout_size_approximate(5, 0.01, 0.1, 0.05) == pytest.approx(expected)

    @settings(max_examples=100, deadline=None)
    @given(st.integers(1, 2000), st.floats(1e-3, 50), st.floats(1e-12, 0.9))
    def test_the_closed_form_is_used_only_where_it_is_one(self, budget, step, delta):
        """sqrt(32 B ln(2/delta)) a falls below the exact value when a round costs much."""
        found = pb.thresholdout_epsilon(budget, 1.0 / step, 1, delta)
        assert found >= epsilon_cap([step], budget, delta) * (1 - 1e-6)

    def test_the_closed_form_alone_would_be_wrong(self):
        closed = math.sqrt(32 * 100 * math.log(2 / 0.01)) * 5.0
        assert closed < epsilon_cap([5.0], 100, 0.01)

    def test_laplace(self):
        assert pb.laplace_error(1000, 0.1, math.exp(-3)) == pytest.approx(0.03)
        size = pb.laplace_size(10, 0.05, 0.01, epsilon=0.5)
        assert pb.laplace_error(round(size), 0.5 / 10, 0.01) == pytest.approx(0.05, rel=1e-3)
        # At delta, each of m answers may cost epsilon/sqrt(8 m ln(1/delta)).
        size = pb.laplace_size(100, 0.05, 0.01, epsilon=0.5, delta=1e-6)
        each = math.log(100) / (size * 0.05)
        assert compose_advanced(each, 100, 1e-6)[0] <= 0.5

    def test_sparse(self):
        assert pb.sparse_size(3, 0.1, 0.05, 1.0) == pytest.approx(270 * math.log(80))
        log = math.log(50) + math.log(4 * 3 / 0.05)
        assert pb.sparse_size(3, 0.1, 0.05, 1.0, queries=50) == pytest.approx(270 * log)
        factor = (math.sqrt(512) + 1) * math.sqrt(3 * math.log(2e6))
        found = pb.sparse_size(3, 0.1, 0.05, 1.0, delta=1e-6)
        assert found == pytest.approx(10 * factor * math.log(80))

    def test_effective_rounds(self):
        found = pb.effective_rounds_size(3, 0.2, 0.06)
        assert (found.threshold, found.epsilon) == pytest.approx((0.05, 0.0125))
        assert found.estimation == pytest.approx(math.log(100) / (2 * 0.025**2))
        assert found.detection == pytest.approx(27 * math.log(200) / (0.025 * 0.0125))
        assert found.total == pytest.approx(3 * found.estimation + found.detection)

    def test_multiplicative_weights(self):
        found = pb.multiplicative_weights_size(100, 50, 0.2, 0.05, 0.5)
        updates = 4 * math.log(100) / 0.04
        log = math.log(100) + math.log(4 * updates / 0.05)
        assert (found.learning_rate, found.threshold) == pytest.approx((0.1, 0.4))
        assert found.size == pytest.approx(9 * updates * log / 0.1)
        assert (found.updates, found.error) == pytest.approx((updates, 0.6))

    def test_population_size_contains_both_parts(self):
        size = pb.laplace_population_size(10, 0.1, 0.05)
        share = 0.05 / 20
        assert size >= pb.moment_transfer_size(0.05, share)[0]
        assert size >= pb.laplace_size(10, 0.05, share, 0.025)

    def test_prediction(self):
        calls = []

        def learner(error, failure):
            calls.append((error, failure))
            return 10 / error

        assert pb.soft_majority_size(0.4, 0.06, 1.0, learner) == pytest.approx(14 * 100)
        assert calls == [pytest.approx((0.1, 0.06 / 14))]
        assert pb.agnostic_size(0.4, 0.06, 0.5, learner) == pytest.approx(10 * 50)
        assert calls[1] == pytest.approx((0.2, 0.006))
        assert pb.averaging(1.0, 0.5, 4) == (0.25, 1.0)
        facts = {"lipschitz": 2.0, "loss_lipschitz": 3.0, "units": 100}
        assert pb.strongly_convex_cost(convexity=0.5, epsilon=1.0, **facts) == pytest.approx(5.76)
        assert pb.convex_cost(radius=1.0, epsilon=1.0, **facts) == pytest.approx(24 / math.sqrt(50))
        # The regulariser balances its own bias, lambda R^2, with Corollary 2's cost.
        weight = tb.convex_regulariser(radius=1.0, epsilon=1.0, **facts)
        cost = pb.strongly_convex_cost(convexity=2 * weight, epsilon=1.0, **facts)
        assert weight + cost <= pb.convex_cost(radius=1.0, epsilon=1.0, **facts) * (1 + 1e-9)
        smooth = {"smoothness": 0.5, "radius": 1.0, "epsilon": 0.5}
        assert pb.smooth_convex_cost(**facts, **smooth) == pytest.approx(1.2 + 0.5 * 16 / 100)
        assert pb.smooth_convex_cost(**facts, **{**smooth, "smoothness": 1e6}) == math.inf

    @settings(max_examples=100, deadline=None)
    @given(st.floats(1e-3, 1), st.floats(1e-4, 2), st.floats(1e-6, 0.9), st.floats(0, 1e-2))
    def test_fresh_mean_is_the_smallest_over_whole_orders(self, mean, epsilon, failure, delta):
        found = pb.fresh_mean(mean, epsilon, failure, delta=delta)
        by_hand = min(
            (mean + k * delta) * math.exp(min(700, k * epsilon + math.log(1 / failure) / k))
            for k in range(1, 700)
        )
        assert found <= by_hand * (1 + 1e-9)
        if math.sqrt(math.log(1 / failure) / epsilon) < 600:
            assert found == pytest.approx(by_hand, rel=1e-9)
        assert found >= mean * math.exp(2 * math.sqrt(epsilon * math.log(1 / failure))) * 0.999999

    def test_fresh_moment_and_mean_agree(self):
        """Markov's inequality on the k-th moment gives Lemma 7's term."""
        for order in (1, 2, 5):
            moment = pb.fresh_moment(order, 0.1, 0.05, 1e-3)
            term = (moment / 0.05) ** (1 / order)
            assert pb.fresh_mean(0.1, 0.05, 0.05, delta=1e-3) <= term * (1 + 1e-9)
        assert pb.fresh_mean(0.0, 0.1, 0.05) == 0.0

    def test_ladder(self):
        error = pb.ladder_error(10_000, 50, 0.05, 0.05) - 0.05
        exponent = -2 * error**2 * 10_000 + 22 * math.log(4000) + 1
        assert math.exp(exponent) == pytest.approx(0.05)

    def test_sequences(self):
        assert math.exp(tb.any_sequences(7)(3)) == pytest.approx(343)
        assert math.exp(tb.falling_sequences(7)(3)) == pytest.approx(math.comb(7, 3))
        # Never fewer for more releases: the last release's claim covers the ones before.
        counts = [tb.falling_sequences(7).up_to(b) for b in range(12)]
        assert counts == sorted(counts)
        assert math.exp(tb.monotone_sequences(7)(3)) == pytest.approx(math.comb(9, 3))
        # Two statistics: all ways to share b releases, which Vandermonde sums up.
        shared = sum(math.comb(4 + k - 1, k) * math.comb(5 + 3 - k - 1, 3 - k) for k in range(4))
        assert math.exp(tb.monotone_sequences(9)(3)) == pytest.approx(shared)
