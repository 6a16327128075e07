"""The gradient is as small as declared, whatever the search does."""

import pytest
import torch
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.prediction.stable import fit as stable_fit
from torch_holdout.prediction.stable.model import cut_features, fit_stable_model

from support.builders.stable import LOSSES, problem_of, records

NAN = float("nan")


def gradient_by_autograd(problem, x, y, weights):
    """The objective as torch's own losses write it."""
    functional = torch.nn.functional
    weights = weights.detach().clone().requires_grad_()
    scores = cut_features(x, problem.feature_bound) @ weights.T
    if problem.loss == "softmax":
        losses = functional.cross_entropy(scores, y)
    elif problem.loss == "logistic":
        losses = functional.binary_cross_entropy_with_logits(scores[:, 0], y.double())
    elif problem.loss == "huber":
        losses = functional.huber_loss(scores[:, 0], y)
    else:  # the smooth hinge is the Huber loss of what the margin lacks, where it lacks something
        lacking = (1 - (2 * y - 1) * scores[:, 0]).clamp(min=0)
        losses = functional.huber_loss(lacking, torch.zeros_like(lacking))
    total = losses + problem.regularisation / 2 * weights.square().sum()
    return torch.autograd.grad(total, weights)[0]


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_is_as_small_as_declared(loss):
    problem = problem_of(loss, size=500, regularisation=0.003)
    x, y = records(problem)
    weights = fit_stable_model((x, y), problem).weights
    assert gradient_by_autograd(problem, x, y, weights).norm() <= problem.tolerance
    assert gradient_by_autograd(problem, x, y, 1.01 * weights).norm() > problem.tolerance
    assert problem.feature_bound * weights.norm() <= problem.score_bound


@pytest.mark.parametrize("loss", LOSSES)
def test_public_steps_are_enough_without_the_search(loss, monkeypatch):
    monkeypatch.setattr(stable_fit, "_search", lambda objective, start, allowed: start)
    for regularisation in (0.5, 0.002):
        problem = problem_of(loss, size=200, regularisation=regularisation)
        x, y = records(problem, seed=3)
        weights = fit_stable_model((x, y), problem).weights
        assert gradient_by_autograd(problem, x, y, weights).norm() <= problem.tolerance


def test_huge_targets_and_a_useless_search_do_not_stop_it():
    problem = problem_of("huber", size=20, regularisation=0.01)
    x, y = records(problem)
    weights = fit_stable_model((x, y * 1e300), problem).weights
    assert gradient_by_autograd(problem, x, y * 1e300, weights).norm() <= problem.tolerance


def test_a_search_that_ends_nowhere_is_not_followed(monkeypatch):
    class Lost(torch.optim.LBFGS):
        def step(self, closure):
            self.param_groups[0]["params"][0].fill_(NAN)

    monkeypatch.setattr(torch.optim, "LBFGS", Lost)
    problem = problem_of()
    x, y = records(problem)
    weights = fit_stable_model((x, y), problem).weights
    assert gradient_by_autograd(problem, x, y, weights).norm() <= problem.tolerance


def test_weights_that_are_not_certified_are_an_error_without_a_number(monkeypatch):
    monkeypatch.setattr(stable_fit, "_search", lambda objective, start, allowed: start)
    monkeypatch.setattr(stable_fit, "_descend", lambda problem, objective, start, allowed: start)
    problem = problem_of()
    with pytest.raises(HoldoutError, match="Raise `gradient_tolerance`") as caught:
        fit_stable_model(records(problem), problem)
    assert not any(character.isdigit() for character in str(caught.value))


def test_what_might_not_converge_or_be_certified_is_refused_by_public_facts():
    problem = problem_of()
    with pytest.raises(InvalidArgumentError, match="`max_iterations`"):
        fit_stable_model(records(problem), problem, max_iterations=problem.sufficient_steps - 1)
    fit_stable_model(records(problem), problem, max_iterations=problem.sufficient_steps)
    fine = problem_of(gradient_tolerance=1e-14)
    with pytest.raises(InvalidArgumentError, match="double precision can certify"):
        fit_stable_model(records(fine), fine)


def test_training_is_the_same_every_time():
    problem = problem_of("softmax")
    first, second = (fit_stable_model(records(problem), problem).weights for _ in range(2))
    assert torch.equal(first, second)
