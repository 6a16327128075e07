"""A training that is resumed goes on with its account: answers again for free, or the same run."""

import json
from dataclasses import replace

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import BudgetExhaustedError, HoldoutError
from transformers import TrainerCallback

from support.builders.hugging_face import live, sealed, trainer_for


class Breaks(TrainerCallback):
    """Fails in the middle of an epoch."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyError("broken off")


def url(folder):
    return f"sqlite:///{folder}/holdout.db"


def curve(trainer):
    return [
        (row["step"], row["eval_loss"]) for row in trainer.state.log_history if "eval_loss" in row
    ]


def test_answers_of_a_resumed_training_are_those_of_a_whole_one(tmp_path):
    options = {"args": {"num_train_epochs": 4}}
    whole = trainer_for("classes", tmp_path / "whole", live(seed=7), **options)
    whole.train()
    account = live(url(tmp_path), seed=7)
    broken = trainer_for("classes", tmp_path / "run", account, callbacks=[Breaks(8)], **options)
    with pytest.raises(KeyError):
        broken.train()
    spent = account.status().queries
    again = trainer_for("classes", tmp_path / "run", live(url(tmp_path), seed=7), **options)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))  # epoch 2 again
    assert curve(again) == curve(whole)
    assert spent == 4  # two statistics, two epochs
    assert again.holdout.status().queries == whole.holdout.status().queries == 8


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("restores", [False, True])
def test_a_sealed_run_is_resumed_from_its_checkpoint(tmp_path, keep, restores):
    options = {
        "stop": th.Patience("loss", patience=5),
        "keep": tmp_path / "kept" if keep else None,
        "args": {"num_train_epochs": 4, "restore_callback_states_from_checkpoint": restores},
    }
    whole = trainer_for("classes", tmp_path / "whole", sealed(), **options)
    whole.train()
    account = sealed(url(tmp_path))
    broken = trainer_for("classes", tmp_path / "run", account, callbacks=[Breaks(8)], **options)
    with pytest.raises(KeyError):
        broken.train()
    state = json.loads((tmp_path / "run/checkpoint-6/trainer_state.json").read_text())
    kept = state["stateful_callbacks"]["HoldoutState"]["attributes"]["holdout"]
    assert set(kept) == {"last", "run"}
    assert broken.outcome is None
    again = trainer_for("classes", tmp_path / "run", sealed(url(tmp_path)), **options)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    assert replace(again.outcome, run=whole.outcome.run) == whole.outcome
    assert again.holdout.budget_left == 2
    if keep or whole.outcome.best_evaluation > 1:
        for name, value in whole.model.state_dict().items():
            assert torch.equal(again.model.state_dict()[name], value)


def test_an_ended_run_is_not_resumed(tmp_path):
    options = {"stop": th.Patience("loss", patience=5), "args": {"num_train_epochs": 2}}
    account = sealed()
    trainer_for("classes", tmp_path, account, **options).train()
    again = trainer_for("classes", tmp_path, account, **options)
    with pytest.raises(HoldoutError, match=r"trainer.train\(\) without resume_from_checkpoint"):
        again.train(resume_from_checkpoint=True)


def test_runs_beyond_the_budget_are_refused_before_training(tmp_path):
    options = {"stop": th.Patience("loss", patience=5), "args": {"num_train_epochs": 1}}
    account = sealed(budget=1)
    trainer_for("classes", tmp_path, account, **options).train()
    with pytest.raises(BudgetExhaustedError, match=r"train\(resume_from_checkpoint=...\) goes on"):
        trainer_for("classes", tmp_path, account, **options).train()


def test_a_silent_run_keeps_its_best_weights_for_closing(tmp_path):
    account = sealed()
    trainer = trainer_for("classes", tmp_path, account, args={"num_train_epochs": 3})
    trainer.train()
    assert trainer.outcome.best_evaluation is None
    assert trainer.best_model_path is None
    best = account.close().load_best(trainer.model)
    assert best.statistic == "loss"
