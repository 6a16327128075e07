"""How far one record moves a stable model, against what is claimed."""

import math

import pytest
import torch
from torch_holdout._noise.fixed import normal_numbers
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.stable.fit import Objective
from torch_holdout.prediction.stable.model import fit_stable_model
from torch_holdout.prediction.stable.problem import StableProblem

from support.builders.stable import LOSSES, problem_of, records, worst_neighbours

NAN = float("nan")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bound", [1.0, 3.0])
def test_one_record_moves_weights_and_scores_by_no_more_than_claimed(loss, bound):
    """Fifteen pairs of neighbours for each loss, refitted; queries in every direction."""
    problem = problem_of(loss, feature_bound=bound)
    queries = 10 * normal_numbers((200, 4), seed=77)
    for seed in range(15):
        x, y = records(problem, seed=seed, spread=bound)
        other_x, other_y = x.clone(), y.clone()
        other_x[seed] = 10 * x[seed - 1]
        other_y[seed] = -y[seed] if loss == "huber" else (y[seed] + 1) % max(2, problem.num_outputs)
        first, second = (fit_stable_model(d, problem) for d in ((x, y), (other_x, other_y)))
        moved = (first.weights - second.weights).norm()
        assert 0 < moved <= problem.weight_stability
        assert (first(queries) - second(queries)).norm(dim=1).max() <= problem.stability


def test_the_constant_is_attained_so_half_of_it_is_caught():
    problem = problem_of("smooth-hinge", size=1000, regularisation=0.1, feature_bound=2.0)
    first, second = (fit_stable_model(d, problem) for d in worst_neighbours(problem))
    moved = (first.weights - second.weights).norm()
    assert 0.95 * problem.weight_stability < moved <= problem.weight_stability
    scores = [model(torch.tensor([[7.0, 0.0]])) for model in (first, second)]
    assert 0.95 * problem.stability < (scores[0] - scores[1]).norm() <= problem.stability


def test_the_tolerance_counts_so_leaving_it_out_is_caught():
    """Weights with a gradient of tau either way are certified, and further apart without it."""
    problem = problem_of("logistic", size=1000, gradient_tolerance=0.01)
    x, y = torch.zeros(1000, 2, dtype=torch.float64), torch.zeros(1000, dtype=torch.int64)
    objective = Objective(problem, x, y)
    far = torch.tensor([[problem.tolerance / problem.regularisation, 0.0]], dtype=torch.float64)
    assert all(objective.gradient(w).norm() <= problem.tolerance * (1 + 1e-9) for w in (far, -far))
    without = StableProblem(
        size=1000, regularisation=0.05, loss="logistic", gradient_tolerance=1e-15
    )
    assert without.weight_stability < (2 * far).norm() <= problem.weight_stability


def test_stability_is_that_of_the_literature():
    problem = problem_of(size=40_000, regularisation=0.01, gradient_tolerance=1e-15)
    assert problem.stability == pytest.approx(2 / (0.01 * 40_000), rel=1e-9)
    softmax = problem_of("softmax", size=100, regularisation=0.5, gradient_tolerance=1e-3)
    assert softmax.stability == pytest.approx(2 * math.sqrt(2) / (0.5 * 100) + 2 * 1e-3 / 0.5)
    wide = problem_of(size=100, regularisation=0.5, gradient_tolerance=1e-12, feature_bound=3.0)
    assert wide.stability == pytest.approx(9 * 2 / (0.5 * 100))


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"size": 2.5},
        {"regularisation": 0.0},
        {"regularisation": NAN},
        {"loss": "squared"},
        {"num_outputs": 2},
        {"loss": "softmax"},
        {"feature_bound": 0},
        {"gradient_tolerance": 0},
        {"gradient_tolerance": math.inf},
    ],
)
def test_bad_problems_are_refused(wrong):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        StableProblem(**{"size": 10, "regularisation": 0.1, "loss": "logistic"} | wrong)
