"""Before the first training step the code of a pass runs on one batch, and nothing of it stays."""

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError, UnguardedLogError
from torch_holdout.transformers import HoldoutTrainer, guard
from transformers import BertForSequenceClassification, TrainerCallback

from support.builders.hugging_face import Rows, live, model_for, sealed, trainer_for

LOSS = {"loss": th.BoundedMean(0.0, 5.0)}


class Keeps(HoldoutTrainer):
    def prediction_step(self, *args, **kwargs):
        result = super().prediction_step(*args, **kwargs)
        self.kept = [result[0]]
        return result


class Targets(Rows):
    """Numbers to be predicted, not classes."""

    def __getitem__(self, index):
        return {**super().__getitem__(index), "labels": self.ids[index, 0] / 50}


def number_model():
    config = model_for("classes").config
    config.num_labels = 1
    return BertForSequenceClassification(config)


def classes_only(logits, labels):
    return logits.argmax(-1)


def by_token(p):
    return {"loss": p.predictions.sum(1).repeat(2)}


EARLY = {
    "kept": (UnguardedLogError, "kept", {"kind": Keeps}),
    "numbers": (
        InvalidArgumentError, r"p.predictions.squeeze\(-1\) - p.label_ids",
        {"model": number_model, "train_dataset": Targets("classes", 60, 1),
         "eval_dataset": Targets("classes", 45, 2)},
    ),
    "no logits": (
        InvalidArgumentError, "preprocess_logits_for_metrics",
        {"preprocess_logits_for_metrics": classes_only},
    ),
    "two values": (th.PartialPassError, "2 values for each example", {"values": by_token}),
    "a typo": (KeyError, "labels_ids", {"values": lambda p: {"loss": p.inputs["labels_ids"]}}),
    "accelerate's options": (
        th.PartialPassError, "drop_last", {"args": {"dataloader_drop_last": True}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "way"), [("kept", sealed), *((case, live) for case in EARLY)])
def test_what_the_first_evaluation_would_refuse_is_refused_before_training(case, way, tmp_path):
    error, words, options = EARLY[case]
    holdout = way(statistics=LOSS)
    model = options.get("model", lambda: model_for("classes"))()
    trainer = trainer_for("classes", tmp_path, holdout, **{**options, "model": model})
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(error, match=words):
        trainer.train()
    assert trainer.state.global_step == 0
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert holdout.status().budget_left == holdout.budget
    assert holdout.status().queries == 0


class Counts(TrainerCallback):
    """Counts batches, as a progress bar does."""

    batches = 0

    def on_prediction_step(self, args, state, control, **kwargs):
        self.batches += 1


class Mine(HoldoutTrainer):
    """Draws random numbers and counts in its step, and logs what is public."""

    calls = 0

    def prediction_step(self, *args, **kwargs):
        self.calls += 1
        self.log({"batches": 1.0})
        torch.rand(1)
        return super().prediction_step(*args, **kwargs)


def trained(folder):
    model = model_for("classes")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    counts = Counts()
    trainer = trainer_for(
        "classes", folder, live(statistics=LOSS, seed=1), kind=Mine, model=model,
        public=("batches",), callbacks=[counts],
        args={"num_train_epochs": 2, "gradient_accumulation_steps": 2},
    )  # fmt: skip
    trainer.train()
    timed = ("runtime", "per_second")
    history = [
        {key: value for key, value in row.items() if not any(word in key for word in timed)}
        for row in trainer.state.log_history
    ]
    return model.state_dict(), history, counts.batches, trainer.calls


def test_training_goes_on_as_if_there_had_been_no_look(tmp_path, monkeypatch):
    with_look = trained(tmp_path / "with")
    monkeypatch.setattr(guard, "look_ahead", lambda _: None)
    weights, *others = trained(tmp_path / "without")
    assert list(with_look[1:]) == others
    assert all(torch.equal(value, weights[name]) for name, value in with_look[0].items())


def test_code_that_misbehaves_later_is_still_refused(tmp_path):
    class Later(Keeps):
        def prediction_step(self, *args, **kwargs):
            if self.state.global_step:
                return super().prediction_step(*args, **kwargs)
            return HoldoutTrainer.prediction_step(self, *args, **kwargs)

    holdout = live(statistics=LOSS)
    trainer = trainer_for("classes", tmp_path, holdout, kind=Later)
    with pytest.raises(UnguardedLogError, match="kept"):
        trainer.train()
    assert trainer.state.global_step
    assert holdout.status().queries == 0


@pytest.mark.parametrize("later", [False, True])
def test_a_key_is_called_public_only_where_its_value_is_seen_not_to_be(later, tmp_path):
    """After the first batch nobody can tell: a loss looks like a learning rate."""

    class Logs(Keeps):
        def prediction_step(self, *args, **kwargs):
            self.seen = getattr(self, "seen", 0) + 1
            result = HoldoutTrainer.prediction_step(self, *args, **kwargs)
            if self.seen == 4 or not later:
                self.log({"mine": result[0] if later else 0.01})
            return result

    trainer = trainer_for("classes", tmp_path, live(statistics=LOSS), kind=Logs)
    with pytest.raises(UnguardedLogError, match="'mine'") as caught:
        trainer.evaluate()
    assert ("public=('mine',)" in str(caught.value)) is not later
