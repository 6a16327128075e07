"""The ensemble under a real Trainer: same numbers either way, and a reason for every refusal."""

import logging
import traceback
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction import Partition
from torch_holdout.prediction.ensemble.members import stack_members
from torch_holdout.prediction.lightning import PartitionedEnsemble

import pytorch_lightning
from support.builders.ensembles import (
    ADAM,
    PARTS,
    SGD,
    Recurrent,
    batch_norm,
    data,
    deep,
    dropping,
    ensemble,
    fitted,
    group_norm,
    linear,
    records,
    same,
    state,
    trainer,
)

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")

QUERIES = torch.randn(9, 6, generator=torch.Generator().manual_seed(1))


def close(one, other):
    return all(torch.allclose(one[k].double(), other[k].double(), atol=1e-5) for k in one)


# ---- stacking


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


# ---- numbers


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


# ---- answers


def test_raw_outputs_are_refused_and_the_curator_has_his_own_door():
    found = fitted(dropping)
    for call in (lambda: found(QUERIES), lambda: found.predict_step(QUERIES, 0)):
        with pytest.raises(InvalidArgumentError, match="PrivatePredictor"):
            call()
    outputs = found.member_outputs(QUERIES)
    assert outputs.shape == (4, 9, 3)
    assert torch.equal(outputs, found.member_outputs(QUERIES))  # no dropout
    assert found.members[1].training
    assert not outputs.requires_grad


@pytest.mark.parametrize("model_fn", [deep, group_norm, batch_norm, Recurrent])
def test_outputs_are_the_same_by_either_backend(model_fn):
    found = fitted(model_fn)
    outputs = []
    for backend in ("auto", "loop") if model_fn is Recurrent else ("auto", "loop", "vmap"):
        found.backend = backend
        outputs.append(found.member_outputs(QUERIES))
    assert all(torch.allclose(outputs[0], other, atol=1e-5) for other in outputs)


@pytest.mark.parametrize("model_fn", [deep, batch_norm])
def test_votes_can_be_exported(model_fn):
    found = fitted(model_fn)
    with torch.no_grad():
        found.members.get_parameter("0.weight" if model_fn is deep else "1.weight")[1] = torch.nan
    votes = found.votes_module()
    choices = found.member_outputs(QUERIES).nan_to_num(0.0).argmax(dim=-1)
    assert (choices[1] == 0).all()
    assert torch.equal(votes(QUERIES), functional.one_hot(choices, 3).sum(dim=0))
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(votes, (QUERIES[:4],), dynamic_shapes={"x": {0: batch}})
    for size in (2, 9):
        assert torch.equal(program.module()(QUERIES[:size]), votes(QUERIES[:size]))
    assert found.members.training


def test_models_must_return_tensors_of_the_declared_size():
    with pytest.raises(InvalidArgumentError, match="num_outputs=4"):
        fitted(num_outputs=4)

    class Named(nn.Linear):
        def forward(self, x):
            return {"scores": super().forward(x)}

    def loss(output, target):
        return functional.cross_entropy(output["scores"], target)

    with pytest.raises(InvalidArgumentError, match="return a tensor"):
        fitted(lambda: Named(6, 3), loss=loss)


def test_what_an_ensemble_tells():
    found = ensemble()
    assert (found.num_parts, found.num_outputs, found.neighbours) == (4, None, PARTS.neighbours)
    assert found.identity()["partition"] == PARTS.identity()
    trainer().fit(found, datamodule=data())
    assert found.num_outputs == 3


def test_the_loss_is_logged_on_request_only():
    quiet, loud = trainer(), trainer()
    quiet.fit(ensemble(), datamodule=data())
    loud.fit(ensemble(log_train_loss=True), datamodule=data())
    assert quiet.callback_metrics == {}
    assert list(loud.callback_metrics) == ["train_loss"]


# ---- checkpoints


def test_a_stopped_fit_resumes_bit_for_bit(tmp_path):
    whole = fitted(batch_norm, options={"max_epochs": 3})
    for step, workers in ((3, 0), (6, 2), (5, 0), (4, 2)):  # two ends of epochs, two middles
        saving = ModelCheckpoint(
            tmp_path / str(step), every_n_train_steps=step, save_top_k=-1, filename="{step}"
        )
        first = trainer(max_epochs=3, callbacks=[saving], enable_checkpointing=True)
        first.fit(ensemble(batch_norm), datamodule=data())
        resumed = ensemble(batch_norm, seed=9)
        second = trainer(max_epochs=3)
        second.fit(
            resumed,
            datamodule=data(num_workers=workers),
            ckpt_path=tmp_path / str(step) / f"step={step}.ckpt",
        )
        assert second.global_step == 9
        assert same(state(whole), state(resumed)), step


def test_a_checkpoint_is_loaded_with_its_partition_only(tmp_path):
    first = trainer()
    found = ensemble()
    first.fit(found, datamodule=data())
    first.save_checkpoint(tmp_path / "own.ckpt")
    arguments = {"model_fn": deep, "loss": functional.cross_entropy, "optimizer": SGD}
    loaded = PartitionedEnsemble.load_from_checkpoint(
        tmp_path / "own.ckpt", parts=PARTS, **arguments
    )
    assert same(state(found), state(loaded))
    assert loaded.num_outputs == 3
    with pytest.raises(InvalidArgumentError, match="in two members"):
        PartitionedEnsemble.load_from_checkpoint(
            tmp_path / "own.ckpt", parts=Partition(num_parts=4, seed=8), **arguments
        )


# ---- refusals


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gradient_clip_val": 1.0}, "clip_norm="),
        ({"gradient_clip_val": 1.0, "gradient_clip_algorithm": "norm"}, "clip_norm="),
        ({"callbacks": [EarlyStopping("train_loss")]}, "EarlyStopping"),
        (
            {"callbacks": [ModelCheckpoint(monitor="train_loss")], "enable_checkpointing": True},
            "Drop `monitor`",
        ),
        ({"overfit_batches": 1}, "limit_train_batches"),
        ({"detect_anomaly": True}, "detect_anomaly"),
    ],
)
def test_what_would_couple_members_is_refused(options, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        fitted(options=options)


def test_a_gradient_scaler_is_refused():
    from torch_holdout.prediction.ensemble.requirements import require_separate_members

    scaled = trainer()
    scaled.precision_plugin.scaler = object()
    with pytest.raises(InvalidArgumentError, match="bf16-mixed"):
        require_separate_members(scaled)


def test_strategies_that_average_are_refused():
    from torch_holdout.prediction.ensemble.requirements import require_separate_members

    class Many:
        def __getattr__(self, name):
            return getattr(self.real, name)

    many = Many()
    many.real = trainer()
    many.world_size = 2
    with pytest.raises(InvalidArgumentError, match="MemberParallelStrategy"):
        require_separate_members(many)
    many.world_size = 1
    many.strategy = SimpleNamespace(_layer_sync=object())
    with pytest.raises(InvalidArgumentError, match="sync_batchnorm"):
        require_separate_members(many)


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


def test_schedulers_that_watch_are_refused_and_others_work():
    cosine = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=3)
    fitted(scheduler=cosine)
    fitted(scheduler=lambda o: {"scheduler": cosine(o), "interval": "step"})
    with pytest.raises(InvalidArgumentError, match="ReduceLROnPlateau"):
        fitted(scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau)


def test_a_loss_that_learns_or_returns_many_numbers_is_refused():
    learning = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(InvalidArgumentError, match="learns"):
        ensemble(loss=learning)
    with pytest.raises(InvalidArgumentError, match="one number"):
        fitted(loss=partial(functional.cross_entropy, reduction="none"))


def test_other_batches_are_refused():
    loader = DataLoader(records(), batch_size=4)
    with pytest.raises(InvalidArgumentError, match="PartitionedDataModule"):
        trainer().fit(ensemble(), loader)
    with pytest.raises(InvalidArgumentError, match="same Partition"):
        trainer().fit(ensemble(), datamodule=data(parts=Partition(num_parts=4, seed=8)))
    with pytest.raises(InvalidArgumentError, match="PartitionedDataModule"):
        ensemble().training_step([torch.zeros(4, 6)], 0)


# ---- errors tell nothing


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
