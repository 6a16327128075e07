"""Errors of a fit tell nothing about records."""

import traceback

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from torch_holdout.errors import InvalidArgumentError

from support.builders.ensembles import (
    data,
    ensemble,
    fitted,
    records,
)

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")
QUERIES = torch.randn(9, 6, generator=torch.Generator().manual_seed(1))


def leaked(error):
    text = "".join(traceback.format_exception(error))
    return [word for word in ("8117", "out of bounds", "secret") if word in text]


@pytest.mark.parametrize("backend", ["vmap", "loop"])
def test_a_wrong_label_is_named_and_not_shown(backend):
    x, y = records().tensors
    wrong = y.clone()
    wrong[5] = 8117
    with pytest.raises(InvalidArgumentError, match="from 0 to 2 or -100") as caught:
        fitted(datamodule=data(TensorDataset(x, wrong), steps_per_epoch=30), backend=backend)
    assert leaked(caught.value) == []
    wrong[5] = -100
    fitted(datamodule=data(TensorDataset(x, wrong), steps_per_epoch=30), backend=backend)


def test_whole_number_targets_of_other_losses_are_left_alone():
    x, y = records().tensors
    fitted(
        loss=lambda output, target: (output[:, 0] - target).square().mean(),
        datamodule=data(TensorDataset(x, y + 500)),
    )


@pytest.mark.parametrize("backend", ["vmap", "loop"])
def test_an_error_on_private_values_loses_its_message(backend):
    x, y = records().tensors

    def loss(output, target):
        if len(target) == 4 and backend == "loop" and target.sum() > 0:
            raise KeyError(f"secret {target}")
        return torch.ops.aten.nll_loss_nd(output.log_softmax(1), target + 8000 * (target > 0))

    with pytest.raises(InvalidArgumentError, match="withheld") as caught:
        fitted(loss=loss, datamodule=data(TensorDataset(x, y)), backend=backend)
    assert leaked(caught.value) == []
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        if x.any():
            raise ValueError(f"secret {x}")
        return gradient


def test_an_error_in_a_backward_pass_loses_its_message_too():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.head = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(Failing.apply(x * self.scale))

    with pytest.raises(InvalidArgumentError, match="withheld") as caught:
        fitted(Inner, backend="loop")
    assert leaked(caught.value) == []
    assert caught.value.__context__ is None


def test_a_wrong_shape_is_told_because_zeros_show_it():
    with pytest.raises(InvalidArgumentError, match=r"On zeros of the same shape they raised.*5"):
        fitted(lambda: nn.Linear(5, 3))


def test_values_that_are_not_finite_raise_nothing():
    x, y = records().tensors
    poisoned = x.clone()
    poisoned[0] = torch.inf
    found = fitted(datamodule=data(TensorDataset(poisoned, y), steps_per_epoch=30), clip_norm=1.0)
    finite = torch.stack([p.flatten(1).isfinite().all(dim=1) for p in found.members.parameters()])
    assert int(finite.all(dim=0).sum()) == 3


class Picky(nn.Module):
    """Raises and warns when its own weights are not finite, as distributions do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        scores = self.layer(x)
        if not torch.compiler.is_compiling() and not _finite(scores):
            raise ValueError("found invalid values")
        return scores


def _finite(scores):
    return bool(torch.isfinite(scores).all())


def test_a_member_that_fails_because_of_its_weights_says_nan_and_nothing_else():
    """That a query raises for one training set and not for another would be an answer, free."""
    found = ensemble(Picky, backend="loop")
    with torch.no_grad():
        found.members.layer.weight[2].fill_(torch.nan)
    outputs = found.member_outputs(QUERIES)
    assert outputs[2].isnan().all()
    assert outputs[[0, 1, 3]].isfinite().all()
    with pytest.raises(RuntimeError, match="shapes"):  # the public twin fails too: the inputs do
        found.member_outputs(torch.zeros(2, 9))
