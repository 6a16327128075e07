"""Slopes of the losses, and the constants that are claimed for them."""

import pytest
import torch
from torch_holdout._noise.fixed import normal_numbers
from torch_holdout.prediction.stable.losses import stable_loss

from support.builders.stable import LOSSES


def slopes(loss, scale, draws=20_000):
    single = stable_loss(loss).single
    scores = scale * normal_numbers((draws, 1 if single else 3), seed=1).double()
    targets = torch.arange(draws) % (2 if single else 3)
    targets = targets.double() * 3 if loss == "huber" else targets
    return scores, targets


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_gradients(loss):
    scores, targets = slopes(loss, scale=2.0)
    scores.requires_grad_()
    formula = stable_loss(loss)
    found = torch.autograd.grad(formula.value(scores, targets).sum(), scores)[0]
    torch.testing.assert_close(found, formula.slope(scores, targets).detach(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("loss", LOSSES)
def test_lipschitz_constants_hold_and_are_the_smallest(loss):
    formula = stable_loss(loss)
    norms = torch.cat([formula.slope(*slopes(loss, s)).norm(dim=1) for s in (0.1, 3.0, 60.0)])
    assert norms.max() <= formula.lipschitz * (1 + 1e-12)
    assert norms.max() > 0.99 * formula.lipschitz  # a smaller constant would be caught


@pytest.mark.parametrize("loss", LOSSES)
def test_smoothness_constants_hold_and_are_the_smallest(loss):
    formula = stable_loss(loss)
    scores, targets = slopes(loss, scale=3.0)
    steps = 1e-4 * normal_numbers(tuple(scores.shape), seed=2).double()
    if loss == "softmax":  # the steepest direction: two equal classes, the third far below
        scores[:100] = torch.tensor([0.0, 0.0, -40.0])
        steps[:100] = torch.tensor([1e-4, -1e-4, 0.0])
    moved = formula.slope(scores + steps, targets) - formula.slope(scores, targets)
    ratios = moved.norm(dim=1) / steps.norm(dim=1)
    assert ratios.max() <= formula.smoothness * (1 + 1e-6)
    assert ratios.max() > 0.99 * formula.smoothness
