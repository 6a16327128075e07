"""Problems of one stable model, and records for them."""

import torch
from torch_holdout._noise.fixed import normal_numbers
from torch_holdout.prediction.stable.problem import StableProblem

LOSSES = ("logistic", "smooth-hinge", "softmax", "huber")


def problem_of(loss="logistic", size=60, regularisation=0.05, **more):
    outputs = 3 if loss == "softmax" else 1
    return StableProblem(
        size=size, regularisation=regularisation, loss=loss, num_outputs=outputs, **more
    )


def records(problem, num_features=4, seed=0, spread=1.0):
    """Features around the bound on the norm, and targets that follow the first of them."""
    x = spread * normal_numbers((problem.size, num_features), seed=seed).double()
    z = x[:, 0] + normal_numbers((problem.size,), seed=seed + 1000).double()
    if problem.loss == "huber":
        return x, 2 * z
    return x, (z > 0).long() + (z > 1).long() * (problem.num_outputs == 3)


def worst_neighbours(problem):
    """One record among records of zeros changes its label: nothing else pulls the weights."""
    x = torch.zeros(problem.size, 2)
    x[0] = torch.tensor([10.0, 0.0])
    y = torch.zeros(problem.size, dtype=torch.int64)
    return (x, y), (x, torch.cat([torch.ones(1, dtype=torch.int64), y[1:]]))
