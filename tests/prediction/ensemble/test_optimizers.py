"""Optimizers that couple members are found by trying."""

from functools import partial

import pytest
import torch
from torch_holdout.errors import InvalidArgumentError

from support.builders.ensembles import (
    ADAM,
    SGD,
    ensemble,
    fitted,
)

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")


class Lamb(torch.optim.Optimizer):
    """Its step is scaled by norms over the whole tensor."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(group["lr"] * p.grad * p.norm() / (p.grad.norm() + 1e-9))


class Skipping(torch.optim.SGD):
    """Skips the step of every member when one gradient is huge."""

    def step(self, closure=None):
        largest = max(p.grad.abs().max() for g in self.param_groups for p in g["params"])
        return super().step() if largest < 1e20 else None


@pytest.mark.parametrize(
    "factory", [Lamb, partial(torch.optim.Adafactor, lr=0.1), partial(Skipping, lr=0.1)]
)
def test_optimizers_that_couple_are_found_by_trying(factory):
    with pytest.raises(InvalidArgumentError, match="element by element"):
        fitted(optimizer=factory)


@pytest.mark.parametrize(
    "factory", [torch.optim.LBFGS, getattr(torch.optim, "Muon", torch.optim.LBFGS)]
)
def test_optimizers_that_cannot_step_are_refused(factory):
    with pytest.raises(InvalidArgumentError, match="without a closure"):
        fitted(optimizer=factory)


@pytest.mark.parametrize(
    "factory",
    [
        torch.optim.SGD, SGD, ADAM, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad,
        torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adadelta, torch.optim.Adamax,
        partial(torch.optim.Adam, foreach=True), partial(torch.optim.Adam, amsgrad=True),
    ],
)  # fmt: skip
def test_elementwise_optimizers_pass(factory):
    ensemble(optimizer=factory).configure_optimizers()


def test_a_factory_may_group_the_parameters_there_are():
    def factory(parameters):
        assert len(parameters) == 4
        return torch.optim.SGD([{"params": parameters[:3], "lr": 0.1}, {"params": parameters[3:]}])

    fitted(optimizer=factory)
