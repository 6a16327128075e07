"""EarlyStopping on guarded values: advice before a fit, and the reason after it."""

import logging
from types import SimpleNamespace

import pytest
import torch_holdout as th
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch_holdout.training.stopping_advice import say_why_stopped, stopping_advice

import pytorch_lightning as pl
from support.builders.holdouts import ask, make_holdout

NAMESPACES = [EarlyStopping, pl.callbacks.EarlyStopping]


def loss_holdout(**changes):
    settings = {"mechanism": th.Ladder(step=0.01), "budget": 20}
    return make_holdout(statistics={"val_loss": th.BoundedMean(0.0, 5.0)}, **settings | changes)


def trainer_with(*callbacks, epochs=200, every=1, rank=0):
    return SimpleNamespace(
        callbacks=list(callbacks),
        max_epochs=epochs,
        check_val_every_n_epoch=every,
        is_global_zero=rank == 0,
    )


@pytest.mark.parametrize("stopping", NAMESPACES)
@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_works_together_needs_no_advice(stopping, mode):
    callback = stopping("val_loss", min_delta=0.025, patience=10, mode=mode)
    assert stopping_advice(trainer_with(callback), loss_holdout()) == []


@pytest.mark.parametrize("stopping", NAMESPACES)
@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_min_delta_that_ignores_releases(stopping, mode):
    callback = stopping("val_loss", min_delta=0.05, patience=10, mode=mode)
    (said,) = stopping_advice(trainer_with(callback), loss_holdout())
    assert "min_delta=0.05 ignores improvements of 'val_loss'" in said
    assert "above 0.05 (0.01 times the range). Use less, e.g. min_delta=0.025" in said


def test_a_patience_that_ends_between_releases():
    callback = EarlyStopping("val_loss")  # patience 3
    (said,) = stopping_advice(trainer_with(callback), loss_holdout())
    assert "patience=3 may stop too early" in said
    assert "20 releases in 200 validations are one in 10. Use patience=10 or more" in said
    # Fewer validations, or more releases, are enough for it.
    assert stopping_advice(trainer_with(callback, every=4), loss_holdout()) == []
    assert stopping_advice(trainer_with(callback, epochs=-1), loss_holdout()) == []
    assert stopping_advice(trainer_with(callback), loss_holdout(budget=67)) == []


def test_a_plan_and_its_own_numbers_need_no_advice():
    for size in (200, 2000, 20_000):
        plan = th.plan(size=size, queries=200, budget=20)
        holdout = make_holdout(plan=plan)
        callback = EarlyStopping(
            "val_acc", min_delta=plan.min_delta, patience=plan.patience, mode="max"
        )
        assert stopping_advice(trainer_with(callback), holdout) == []


@pytest.mark.parametrize(
    "mechanism", [th.Sealed(evaluations=200), th.LaplaceMechanism(epsilon=0.5)], ids=str
)
def test_no_advice_where_no_guess_is_returned(mechanism):
    callback = EarlyStopping("val_loss", min_delta=9.0)
    assert stopping_advice(trainer_with(callback), loss_holdout(mechanism=mechanism)) == []


def test_other_callbacks_and_other_names_are_left_alone():
    own = EarlyStopping("train_loss", min_delta=9.0)
    kept = ModelCheckpoint(monitor="val_loss")
    assert stopping_advice(trainer_with(own, kept), loss_holdout()) == []


def test_a_stop_is_explained_once_and_on_the_first_rank(caplog):
    holdout = make_holdout(mechanism=th.Ladder(step=0.02))
    ask(holdout, 20, "a")
    callback = EarlyStopping("val_acc", patience=4, min_delta=0.01, mode="max")
    with caplog.at_level(logging.WARNING, "torch_holdout"):
        say_why_stopped(trainer_with(callback), holdout)
        assert caplog.messages == []  # it did not stop
        callback.stopped_epoch, callback.wait_count = 17, 4
        say_why_stopped(trainer_with(callback, rank=1), holdout)
        assert caplog.messages == []
        say_why_stopped(trainer_with(callback), holdout)
    (said,) = caplog.messages
    assert "EarlyStopping ended the fit in epoch 17: 'val_acc' was not better" in said
    assert "min_delta=0.01 in 4 validations" in said
    assert "once that is above 0.02; 4 releases left" in said
