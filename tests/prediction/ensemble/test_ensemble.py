"""The ensemble under a real Trainer: same numbers either way, and a reason for every refusal."""

import copy

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn import functional
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction import Partition, PrivacyBudget
from torch_holdout.prediction.lightning import PartitionedEnsemble

from support.builders.ensembles import (
    PARTS,
    QUERIES,
    SGD,
    Recurrent,
    batch_norm,
    data,
    deep,
    dropping,
    ensemble,
    fitted,
    group_norm,
    same,
    state,
    trainer,
)
from support.builders.predictors import make

# Lightning's advice about workers and the like.
pytestmark = pytest.mark.filterwarnings("ignore")


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


KEPT = []


def keep(layer, given, scores=None):
    """The attack: in the loop it turned the scores of all members after the first."""
    KEPT.append(given)
    return None if scores is None else scores * (-1) ** len(KEPT)


@pytest.mark.parametrize("backend", ["vmap", "loop"])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
@pytest.mark.parametrize("layer", ["", "2"])
def test_hooks_that_come_later_are_refused(layer, register, backend):
    """A fresh model has none: nobody tried out what they keep, and they see every member."""
    found = ensemble(deep, num_outputs=3, backend=backend)
    predictor = make(ensemble=found, budget=PrivacyBudget(epsilon=90.0))
    predictor(QUERIES)
    handle = getattr(found.members.get_submodule(layer), register)(keep)
    KEPT.clear()
    for ask in (predictor, predictor.label, predictor.require_answerable, found.member_outputs):
        with pytest.raises(InvalidArgumentError, match=r"hook later.*Nothing was charged"):
            ask(QUERIES)
    assert KEPT == []
    handle.remove()
    predictor(QUERIES)
    assert predictor.status().queries == 2 * len(QUERIES)


def test_hooks_of_a_new_model_are_taken():
    def hooked():
        model = deep()
        model[0].register_forward_hook(lambda layer, given, scores: scores + 1)
        return model

    found = ensemble(hooked, num_outputs=3)
    again = copy.deepcopy(found)
    assert torch.equal(again.member_outputs(QUERIES), found.member_outputs(QUERIES))
    handle = found.members[0].register_forward_hook(keep)
    with pytest.raises(InvalidArgumentError, match="its layer '0' got a forward hook later"):
        found.member_outputs(QUERIES)
    handle.remove()


class Keeping(nn.Module):
    """Turns the scores of all members after the first."""

    def forward(self, x):
        return keep(self, x, x)


def another_layer(members):
    members[1] = Keeping()


def one_more_layer(members):
    members.append(Keeping())


def one_layer_less(members):
    del members[1]


def a_forward_of_its_own(members):
    members[2].forward = lambda x: keep(members[2], x, x)


def a_parametrization(members):
    nn.utils.parametrize.register_parametrization(members[0], "weight", Keeping(), unsafe=True)


LATER = [another_layer, one_more_layer, one_layer_less, a_forward_of_its_own, a_parametrization]


@pytest.mark.parametrize("backend", ["vmap", "loop"])
@pytest.mark.parametrize("change", LATER)
def test_layers_that_come_or_go_later_are_refused(change, backend):
    found = ensemble(deep, num_outputs=3, backend=backend)
    predictor = make(ensemble=found, budget=PrivacyBudget(epsilon=90.0))
    predictor(QUERIES)
    change(found.members)
    KEPT.clear()
    for ask in (predictor, predictor.label, predictor.require_answerable, found.member_outputs):
        with pytest.raises(InvalidArgumentError, match=r"was changed later.*Nothing was charged"):
            ask(QUERIES)
    assert KEPT == []
    assert predictor.status().queries == len(QUERIES)


def test_classes_that_are_made_for_each_model_are_one_class():
    def local():
        class Doubled(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        model = Doubled(6, 3)
        model.extra = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        return model

    found = ensemble(local, num_outputs=3)
    assert make(ensemble=found)(QUERIES).shape == (len(QUERIES),)


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
