"""Members trained together have the numbers of members trained alone."""

import logging
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.ensemble.members import stack_members
from torch_holdout.prediction.lightning import PartitionedEnsemble

import pytorch_lightning
from support.builders.ensembles import (
    ADAM,
    QUERIES,
    Recurrent,
    batch_norm,
    close,
    data,
    deep,
    dropping,
    ensemble,
    fitted,
    group_norm,
    linear,
    same,
    state,
    trainer,
)

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_first_weights_depend_on_seed_and_member_only():
    few, many = (stack_members(deep, count, seed=3).state_dict() for count in (2, 5))
    assert all(torch.equal(few[name], many[name][:2]) for name in few)
    assert not torch.equal(many["0.weight"][0], many["0.weight"][1])
    before = torch.get_rng_state()
    stack_members(deep, 2, seed=4)
    assert torch.equal(before, torch.get_rng_state())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 6), nn.Linear(6, 6)
        self.down.weight = self.up.weight
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.down(self.up(x).relu()))


def test_tied_weights_stay_tied():
    found = fitted(Tied)
    assert found.members.up.weight is found.members.down.weight
    by_hand = Tied()
    by_hand.load_state_dict({n: v[2] for n, v in found.members.state_dict().items()})
    assert torch.allclose(found.member_outputs(QUERIES)[2], by_hand(QUERIES), atol=1e-6)


@pytest.mark.parametrize(
    ("model_fn", "sentence"),
    [
        (lambda: nn.LazyLinear(3), "lazy"),
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.SyncBatchNorm(3)), "SyncBatchNorm"),
        (lambda: nn.ReLU(), "parameters"),
        (lambda: 3, "Module"),
    ],
)
def test_models_that_cannot_be_stacked(model_fn, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        ensemble(model_fn)


def test_architectures_must_agree():
    widths = iter(range(3, 99))
    with pytest.raises(InvalidArgumentError, match="same architecture"):
        ensemble(lambda: nn.Linear(6, next(widths)))


def alone(member, model_fn, optimizer, steps=3):
    """Train one member the plain way, on the batches of its part."""
    model = model_fn()
    model.load_state_dict(
        {n: v[member] for n, v in ensemble(model_fn).members.state_dict().items()}
    )
    optimizer = optimizer(model.parameters())
    for x, y in data(steps_per_epoch=steps).train_dataloader():
        optimizer.zero_grad()
        functional.cross_entropy(model(x.view(4, 4, 6)[member]), y.view(4, 4)[member]).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("model_fn", [linear, deep, group_norm, batch_norm, Recurrent])
@pytest.mark.parametrize("backend", ["auto", "loop"])
def test_a_member_is_what_training_it_alone_gives(model_fn, backend):
    found = fitted(model_fn, backend=backend)
    assert found.backend_used == (
        "loop" if model_fn is Recurrent else {"auto": "vmap"}.get(backend, "loop")
    )
    expected = alone(2, model_fn, ADAM).state_dict()
    own = {name: value[2] for name, value in found.members.state_dict().items()}
    assert close(own, expected)


@pytest.mark.parametrize("model_fn", [deep, batch_norm])
@pytest.mark.parametrize("backend", ["vmap", "loop"])
def test_chunks_change_nothing(model_fn, backend):
    whole = fitted(model_fn, backend=backend)
    cut = fitted(model_fn, backend=backend, chunk_size=3)
    assert close(state(whole), state(cut))
    assert torch.allclose(whole.member_outputs(QUERIES), cut.member_outputs(QUERIES), atol=1e-5)


class Counting(nn.Module):
    """A buffer that is assigned, not changed in place."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + x.mean().detach()
        return self.head(x)


def test_buffers_that_are_assigned_are_kept():
    by_vmap, by_loop = (fitted(Counting, backend=b).members.seen for b in ("vmap", "loop"))
    assert by_vmap.shape == (4,)
    assert (by_vmap != 0).all()
    assert torch.allclose(by_vmap, by_loop)


def test_dropout_is_seeded_per_step_and_differs_between_members():
    one, two = fitted(dropping), fitted(dropping)
    assert same(state(one), state(two))
    looped = [fitted(dropping, backend="loop") for _ in range(2)]
    assert same(state(looped[0]), state(looped[1]))
    assert not same(state(one), state(fitted(dropping, seed=1)))


def test_auto_says_why_it_takes_the_loop(caplog):
    with caplog.at_level(logging.INFO, logger="torch_holdout"):
        fitted(Recurrent)
    assert "one by one, because vmap cannot" in caplog.text
    assert "lstm" in caplog.text


def test_auto_takes_the_loop_for_large_convolutions_on_the_host(caplog):
    wide = TensorDataset(torch.zeros(60, 1, 8, 600), torch.zeros(60, dtype=torch.int64))

    def model_fn():
        return nn.Sequential(nn.Conv2d(1, 2, 3, stride=4), nn.Flatten(), nn.LazyLinear(3))

    def whole():
        model = model_fn()
        model(torch.zeros(1, 1, 8, 600))
        return model

    with caplog.at_level(logging.INFO, logger="torch_holdout"):
        found = fitted(whole, datamodule=data(wide))
    assert found.backend_used == "loop"
    assert "faster" in caplog.text


def test_clip_norm_clips_each_member_by_its_own():
    found = []

    class Watch(PartitionedEnsemble):
        def configure_gradient_clipping(self, *args, **kwargs):
            super().configure_gradient_clipping(*args, **kwargs)
            found.append([p.grad.flatten(1).norm(dim=1) for p in self.members.parameters()])

    trainer().fit(ensemble(kind=Watch, clip_norm=0.01), datamodule=data())
    norms = torch.stack(found[0]).norm(dim=0)
    assert torch.allclose(norms, torch.full((4,), 0.01), rtol=1e-3)
    fitted(options={"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"})


@pytest.mark.parametrize(
    "options",
    [{"precision": "bf16-mixed"}, {"accumulate_grad_batches": 3}, {"enable_progress_bar": True}],
)
def test_ordinary_trainer_options_work(options):
    found = fitted(options=options)
    assert all(value.isfinite().all() for value in state(found).values())


def test_fused_is_used_unless_the_user_decides():
    built = ensemble().configure_optimizers()
    assert built.defaults["fused"]
    chosen = ensemble(optimizer=partial(torch.optim.Adam, foreach=True)).configure_optimizers()
    assert not chosen.defaults["fused"]
    by_function = ensemble(optimizer=lambda p: torch.optim.SGD(p, lr=0.1)).configure_optimizers()
    assert isinstance(by_function, torch.optim.SGD)


def test_both_packages_have_the_same_ensemble():
    from torch_holdout.prediction import pytorch_lightning as bound

    found = ensemble(kind=bound.PartitionedEnsemble)
    trainer(pytorch_lightning.Trainer).fit(found, datamodule=data(kind=bound.PartitionedDataModule))
    assert same(state(found), state(fitted()))
