"""A minimiser of strongly convex objectives that certifies a small gradient."""

from typing import final

import torch
from torch import Tensor

from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.prediction.stable.problem import CHUNK, StableProblem

_SEARCH_ROUNDS, _ROUND_STEPS = 12, 25


@final
class Objective:
    """Mean loss and regulariser of prepared records, in double precision."""

    def __init__(self, problem: StableProblem, features: Tensor, targets: Tensor) -> None:
        self._problem = problem
        self._chunks = list(
            zip(torch.split(features, CHUNK), torch.split(targets, CHUNK), strict=True)
        )

    def value(self, weights: Tensor) -> Tensor:
        """Return the objective."""
        loss = self._problem.formula.value
        total = torch.stack([loss(x @ weights.T, y).sum() for x, y in self._chunks]).sum()
        penalty = self._problem.regularisation / 2 * weights.square().sum()
        return total / self._problem.size + penalty

    def gradient(self, weights: Tensor) -> Tensor:
        """Return its gradient; chunks keep the rounding error small."""
        slope = self._problem.formula.slope
        total = torch.stack([slope(x @ weights.T, y).T @ x for x, y in self._chunks]).sum(dim=0)
        return total / self._problem.size + self._problem.regularisation * weights


def minimise(
    problem: StableProblem, features: Tensor, targets: Tensor, max_iterations: int
) -> Tensor:
    """Return weights [K, d] whose full gradient is at most tau, rounding included.

    A quasi-Newton search, then, if that was not enough, as many accelerated gradient steps as are
    enough for all records there can be.
    """
    num_features = features.shape[1]
    problem.require_features(num_features)
    _require_steps(problem, max_iterations)
    objective = Objective(problem, features, targets)
    allowed = problem.tolerance - problem.rounding(num_features)
    start = features.new_zeros((problem.num_outputs, num_features))
    weights = _search(objective, start, allowed)
    if not _certified(objective, weights, allowed):
        weights = _descend(problem, objective, weights, allowed)
    if not _certified(objective, weights, allowed):
        raise HoldoutError(
            "Expected the gradient at the trained weights to be within `gradient_tolerance`, but "
            "it is not; nothing was kept. Raise `gradient_tolerance` or `regularisation`."
        )
    return weights


def _certified(objective: Objective, weights: Tensor, allowed: float) -> bool:
    return bool(objective.gradient(weights).norm() <= allowed)


def _search(objective: Objective, start: Tensor, allowed: float) -> Tensor:
    """Return the weights of an L-BFGS search from ``start``, or ``start`` if they are worse."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights],
        max_iter=_ROUND_STEPS,
        tolerance_grad=allowed / start.numel() ** 0.5,  # of the largest entry
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        with torch.no_grad():
            weights.grad = objective.gradient(weights)
            return objective.value(weights)

    with torch.no_grad():
        best = objective.value(start)
        for _ in range(_SEARCH_ROUNDS):
            optimizer.step(closure)  # type: ignore[no-untyped-call]
            if _certified(objective, weights, allowed):
                return weights.detach()
        better = bool(objective.value(weights) <= best)  # false also for NaN
    return weights.detach() if better else start


def _descend(problem: StableProblem, objective: Objective, start: Tensor, allowed: float) -> Tensor:
    """Take Nesterov's steps for a strongly convex and smooth objective."""
    root = problem.condition**0.5
    momentum = (root - 1) / (root + 1)
    length = 1 / (problem.condition * problem.regularisation)
    weights = ahead = start
    for _ in range(problem.sufficient_steps):
        gradient = objective.gradient(ahead)
        if gradient.norm() <= allowed:
            return ahead
        last, weights = weights, ahead - length * gradient
        ahead = weights + momentum * (weights - last)
    return weights


def _require_steps(problem: StableProblem, max_iterations: int) -> None:
    # Before training: an error afterwards would tell of the records.
    if problem.sufficient_steps > max_iterations:
        raise InvalidArgumentError(
            f"Expected {max_iterations} iterations to be enough for every set of records, but it "
            f"takes {problem.sufficient_steps}. Raise `regularisation`, `gradient_tolerance` or "
            f"`max_iterations`."
        )
