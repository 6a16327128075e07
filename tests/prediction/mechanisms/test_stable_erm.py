"""Noise for one stable model: its law, its charge, and what an answer is worth."""

import math

import pytest
import torch
from torch_holdout._noise.fixed import normal_numbers
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.accounting import Concentrated, Pure, compose, epsilon_of_rho
from torch_holdout.bounds import convex_regulariser
from torch_holdout.bounds.published import convex_cost, strongly_convex_cost
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError
from torch_holdout.prediction.mechanisms.base import Setting
from torch_holdout.prediction.mechanisms.stable_erm import StableERM
from torch_holdout.prediction.stable.model import StableModel, fit_stable_model
from torch_holdout.prediction.stable.problem import StableProblem

from support.builders.stable import problem_of, records, worst_neighbours
from support.oracles.chi_square import fits
from support.oracles.laws import discrete_laplace

ONE = Setting(num_parts=1, num_outputs=1)
NAN = float("nan")


def mechanism_of(loss="logistic", **noise):
    return StableERM(problem=problem_of(loss), **(noise or {"epsilon": 0.5}))


@pytest.mark.parametrize("outputs", [1, 2, 10, 100])
def test_levels_move_by_no_more_than_is_charged(outputs):
    """Pairs of scores at the stability's distance, in directions that round worst too."""
    problem = StableProblem(
        size=50,
        regularisation=0.1,
        loss="softmax" if outputs > 1 else "logistic",
        num_outputs=outputs,
    )
    laplace, gaussian = (StableERM(problem=problem, **n) for n in ({"epsilon": 0.5}, {"sigma": 1}))
    middle = normal_numbers((1, 4000, outputs), seed=0).double()
    towards = normal_numbers((1, 4000, outputs), seed=1).double()
    towards[:, ::2] = towards[:, ::2].sign()
    step = problem.stability * towards / towards.norm(dim=2, keepdim=True)
    moved = (laplace.table(middle + step) - laplace.table(middle)).double()[..., None]
    sums, norms = moved.abs().sum(dim=(1, 2)).max(), moved.norm(dim=(1, 2)).max()
    charged_sum = 0.5 * laplace.scale
    rho = gaussian.charge(Setting(num_parts=1, num_outputs=outputs)).rho
    charged_norm = math.sqrt(2 * rho) * gaussian.scale
    assert 0.95 * charged_sum < sums <= charged_sum * (1 + 1e-12)
    assert 0.95 * charged_norm < norms <= charged_norm * (1 + 1e-12)


def loss_of(mechanism, levels):
    """The exact privacy loss of integer Laplace noise between two levels."""
    return abs(levels[0] - levels[1]) / mechanism.scale


def test_the_worst_neighbours_cost_epsilon_and_half_the_stability_would_cost_twice():
    problem = problem_of("smooth-hinge", size=1000, regularisation=0.1)
    models = [fit_stable_model(d, problem) for d in worst_neighbours(problem)]
    query = torch.tensor([[1.0, 0.0]])
    mechanism = StableERM(problem=problem, epsilon=0.2)
    levels = [int(mechanism.table(next(m.output_chunks(query)))) for m in models]
    assert 0.19 < loss_of(mechanism, levels) <= 0.2
    halved = StableERM(
        problem=problem_of("smooth-hinge", size=2000, regularisation=0.1), epsilon=0.2
    )
    levels = [int(halved.table(next(m.output_chunks(query)))) for m in models]
    assert loss_of(halved, levels) > 0.38


@pytest.mark.statistical
def test_laplace_noise_follows_its_law():
    """100,000 draws, false-alarm rate 1e-6 (chi-square); 10 % too little noise is caught."""
    mechanism = mechanism_of(epsilon=40.0, answers="values")
    table = torch.full((100_000, 1), -7)
    answers = mechanism.answer(table, ONE, SeededNoise(1).uniforms("law"))[:, 0]
    width = answers[answers != 0].abs().min()
    draws = (answers / width).round().long() + 7
    torch.testing.assert_close((draws - 7) * width, answers)
    assert fits(draws.tolist(), discrete_laplace(mechanism.scale))
    assert not fits(draws.tolist(), discrete_laplace(1.1 * mechanism.scale))


def rounded_normal(scale):
    reach = math.ceil(12 * scale)
    edges = torch.special.ndtr((torch.arange(-reach, reach + 2) - 0.5).double() / scale)
    return dict(zip(range(-reach, reach + 1), edges.diff().tolist(), strict=True))


@pytest.mark.statistical
def test_normal_noise_follows_its_law():
    """100,000 draws, false-alarm rate 1e-6 (chi-square); 3 % too little noise is caught."""
    mechanism = mechanism_of(sigma=0.05 * problem_of().stability, answers="values")
    answers = mechanism.answer(
        torch.zeros(100_000, 1, dtype=torch.int64), ONE, SeededNoise(2).uniforms("law")
    )[:, 0]
    draws = (answers / answers[answers != 0].abs().min()).round().long().tolist()
    assert fits(draws, rounded_normal(mechanism.scale))
    assert not fits(draws, rounded_normal(1.03 * mechanism.scale))


def test_labels_are_those_of_the_largest_noisy_score():
    softmax = mechanism_of("softmax", sigma=1e-3 * problem_of("softmax").stability)
    scores = torch.tensor([[[0.1, 0.3, -0.2], [2.0, 0.0, 1.0], [-0.3, -0.2, 0.4]]])
    setting = Setting(num_parts=1, num_outputs=3)
    answers = softmax.answer(softmax.table(scores), setting, SeededNoise(0).uniforms())
    assert answers.tolist() == [1, 0, 2]
    assert answers.dtype == torch.int64
    binary = mechanism_of(epsilon=1000.0)
    scores = torch.tensor([[[0.1], [-0.1], [NAN], [math.inf], [-math.inf]]])
    levels = binary.table(scores)
    assert (levels.dtype, int(levels[2])) == (torch.int64, 0)
    answers = binary.answer(levels, ONE, SeededNoise(0).uniforms()).tolist()
    assert [answers[i] for i in (0, 1, 3, 4)] == [1, 0, 1, 0]


def test_values_are_the_noisy_scores():
    mechanism = mechanism_of("softmax", epsilon=1000.0, answers="values")
    scores = torch.tensor([[[0.1, 0.3, -0.2], [2.0, 0.0, 1.0]]], dtype=torch.float64)
    setting = Setting(num_parts=1, num_outputs=3)
    answers = mechanism.answer(mechanism.table(scores), setting, SeededNoise(0).uniforms())
    assert answers.dtype == torch.float64
    torch.testing.assert_close(answers, scores[0], atol=0.2 * mechanism.problem.stability, rtol=0)


def test_charges_identity_and_sampling():
    laplace, gaussian = mechanism_of(epsilon=0.5), mechanism_of(sigma=2.0)
    assert laplace.charge(ONE) == Pure(0.5)
    charge = gaussian.charge(ONE)
    assert isinstance(charge, Concentrated)
    assert charge.rho == pytest.approx((gaussian.problem.stability / 2.0) ** 2 / 2, rel=0.02)
    assert charge.rho > (gaussian.problem.stability / 2.0) ** 2 / 2
    assert laplace.identity() != gaussian.identity()
    assert laplace.identity()["problem"] == laplace.problem.identity()
    assert 0 < laplace.sampler_error(ONE) < 1e-16
    assert 0 < gaussian.sampler_error(ONE) < 1e-10


def test_another_model_or_setting_is_refused():
    mechanism = mechanism_of()
    problem = problem_of()
    mechanism.require_voters(fit_stable_model(records(problem), problem))
    for change in ({"regularisation": 0.5}, {"feature_bound": 2.0}, {"gradient_tolerance": 1e-3}):
        other = problem_of(**change)
        with pytest.raises(HoldoutMismatchError, match="build it with"):
            mechanism.require_voters(StableModel(other, 4))
    for setting in (
        Setting(num_parts=2, num_outputs=1),
        Setting(num_parts=1, num_outputs=2),
        Setting(num_parts=1, num_outputs=1, members_changed=2),
    ):
        for ask in (mechanism.charge, mechanism.sampler_error):
            with pytest.raises(InvalidArgumentError, match="Expected one model"):
                ask(setting)
    for shape in ((2, 5, 1), (1, 5, 2), (5, 1)):
        with pytest.raises(InvalidArgumentError, match="scores of one model"):
            mechanism.table(torch.zeros(shape))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"epsilon": 0.1, "sigma": 0.1},
        {"epsilon": 0},
        {"epsilon": NAN},
        {"sigma": -1.0},
        {"sigma": 1e20},
        {"sigma": "much"},
        {"epsilon": 0.1, "answers": "both"},
        {"epsilon": 0.1, "problem": "logistic"},
        {"epsilon": 0.1, "problem": problem_of("huber")},
        {
            "epsilon": 1e-9,
            "problem": StableProblem(
                size=10, regularisation=0.1, loss="softmax", num_outputs=2**16
            ),
        },
    ],
)
def test_bad_mechanisms_are_refused(wrong):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        StableERM(**{"problem": problem_of()} | wrong)


BUDGET = {"epsilon": 2.0, "queries": 1000, "size": 40_000, "loss": "logistic"}


def test_a_budget_is_spent_and_not_overspent():
    gaussian = StableERM.for_budget(delta=1e-5, **BUDGET).charge(ONE)
    assert 1.999 < epsilon_of_rho(1000 * gaussian.rho, 1e-5) <= 2.0
    pure = StableERM.for_budget(delta=None, noise="laplace", **BUDGET).charge(ONE)
    assert 1.999 < 1000 * pure.epsilon <= 2.0
    laplace = StableERM.for_budget(delta=1e-5, noise="laplace", **BUDGET).charge(ONE)
    assert laplace.epsilon > 5 * pure.epsilon
    assert compose([Pure(laplace.epsilon, count=1000)], 1e-5).epsilon <= 2.0
    single = StableERM.for_budget(delta=1e-5, noise="laplace", **BUDGET | {"queries": 1})
    assert 1.999 < single.charge(ONE).epsilon <= 2.0
    with pytest.raises(InvalidArgumentError, match="noise='laplace'"):
        StableERM.for_budget(delta=None, **BUDGET)
    for wrong in ({"epsilon": 0}, {"queries": 0}, {"noise": "uniform"}, {"radius": 0}):
        with pytest.raises(InvalidArgumentError, match="Expected"):
            StableERM.for_budget(delta=1e-5, **BUDGET | wrong)


def test_lambda_is_that_of_corollary_three():
    mechanism = StableERM.for_budget(
        delta=1e-5, radius=2.0, feature_bound=3.0, num_outputs=4, **BUDGET | {"loss": "softmax"}
    )
    each = math.sqrt(2 * mechanism.charge(Setting(num_parts=1, num_outputs=4)).rho)
    assert mechanism.problem.regularisation == pytest.approx(
        convex_regulariser(
            lipschitz=3.0, loss_lipschitz=math.sqrt(2), radius=2.0, units=40_000, epsilon=each
        )
    )
    given = StableERM.for_budget(delta=1e-5, regularisation=0.01, **BUDGET)
    assert given.problem.regularisation == 0.01


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 5.0])
def test_the_price_of_corollary_three_holds_for_half_the_regulariser_too(epsilon):
    facts = {"lipschitz": 2.0, "loss_lipschitz": 1.5, "units": 5000, "epsilon": epsilon}
    price = convex_cost(radius=3.0, **facts)
    chosen = convex_regulariser(radius=3.0, **facts)
    for convexity in (chosen, 2 * chosen):  # of lambda/2 |W|^2 and of lambda |w|^2
        cost = strongly_convex_cost(convexity=convexity, **facts) + convexity / 2 * 3.0**2
        assert cost == pytest.approx(0.75 * price)


def noisy_halfspace(size, seed):
    """Twenty normal features; a label follows a fixed direction with slope 0.7."""
    direction = normal_numbers((20,), seed=99).double()
    x = normal_numbers((size, 20), seed=seed).double()
    chance = torch.special.ndtr(normal_numbers((size,), seed=seed + 1).double())
    return x, (chance < torch.sigmoid(0.7 * (x @ direction) / direction.norm())).long()


def accuracies(regularisation):
    """The share of right labels on 50,000 fresh records, without and with noise.

    The noise is that of 1000 queries at (2, 1e-5). Chance moves each share by 0.0022 (one standard
    deviation); data and noise have fixed seeds.
    """
    mechanism = StableERM.for_budget(delta=1e-5, regularisation=regularisation, **BUDGET)
    model = fit_stable_model(noisy_halfspace(40_000, seed=1), mechanism.problem)
    mechanism.require_voters(model)
    x, y = noisy_halfspace(50_000, seed=5)
    (scores,) = model.output_chunks(x)
    answers = mechanism.answer(mechanism.table(scores), ONE, SeededNoise(3).uniforms("worth"))
    exact = (scores[0, :, 0] > 0).long()
    return [float((labels == y).double().mean()) for labels in (exact, answers)]


@pytest.mark.statistical
def test_a_large_lambda_is_close_to_no_noise_and_a_small_one_is_swamped():
    """Found: 62.9 % without noise; 61.4 (lambda of the corollary), 59.0 (.01), 52.1 (.001)."""
    found = {regularisation: accuracies(regularisation) for regularisation in (None, 0.01, 0.001)}
    assert all(abs(exact - 0.629) < 0.01 for exact, _ in found.values())
    assert found[None][1] > found[None][0] - 0.025
    assert found[0.01][1] > found[0.01][0] - 0.05
    assert found[None][1] > found[0.01][1] + 0.01
    assert found[0.001][1] < 0.54
