"""Training with early stopping on guarded values, for each kind of model."""

import math

import pytest
import torch
import torch_holdout as th
from torch.nn.functional import cross_entropy
from torch.utils.data import default_collate
from torch_holdout.errors import BudgetExhaustedError
from torch_holdout.transformers import HoldoutTrainer
from transformers import (
    BertForQuestionAnswering,
    EarlyStoppingCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from support.builders.hugging_face import (
    SIZE,
    TASKS,
    Rows,
    arguments,
    live,
    model_for,
    raw_values,
    sealed,
    trainer_for,
)

BEST = {"load_best_model_at_end": True, "metric_for_best_model": "loss"}


def exact(**changes):
    """An account whose answers are the clipped means on a fine grid."""
    return live(mechanism=th.Ladder(step=1e-6), grid=2**20, **changes)


@pytest.mark.parametrize("task", TASKS)
def test_training_stops_early_on_guarded_values_and_loads_the_best_weights(task, tmp_path):
    trainer = trainer_for(
        task, tmp_path, live(), args={**BEST, "num_train_epochs": 5, "learning_rate": 0.0},
        callbacks=[EarlyStoppingCallback(2)],
    )  # fmt: skip
    trainer.train()
    published = [row for row in trainer.state.log_history if "eval_loss" in row]
    assert len(published) == 3  # the first, and two that were not better
    assert trainer.state.best_metric == published[0]["eval_loss"]
    assert published[0]["eval_holdout/budget_left"] <= 39
    assert {"eval_accuracy", "eval_holdout/loss/is_release", "eval_runtime"} <= set(published[0])
    assert trainer.state.best_model_checkpoint is not None


@pytest.mark.parametrize("task", TASKS)
def test_values_are_the_means_over_sequences(task, tmp_path):
    trainer = trainer_for(task, tmp_path, exact())
    raw = raw_values(trainer.model, trainer.eval_dataset, task)
    metrics = trainer.evaluate()
    for name in ("loss", "accuracy"):
        assert metrics[f"eval_{name}"] == pytest.approx(raw[name], abs=1e-4)


@pytest.mark.parametrize("task", TASKS)
def test_sealed_training_stops_by_patience_and_puts_the_best_weights_back(task, tmp_path):
    holdout = sealed(statistics={"loss": th.BoundedMean(0.0, 50.0)})  # nothing is clipped
    trainer = trainer_for(
        task, tmp_path, holdout, stop=th.Patience("loss", patience=2),
        args={"num_train_epochs": 20, "learning_rate": 0.5, "lr_scheduler_type": "constant"},
    )  # fmt: skip
    trainer.train()
    assert trainer.outcome.reason == "patience"
    rows = [row for row in trainer.state.log_history if "eval_holdout/passes" in row]
    assert [row["eval_holdout/passes"] for row in rows] == list(range(1, len(rows) + 1))
    assert not any(key.endswith(("loss", "accuracy")) and "eval" in key for r in rows for key in r)
    best = torch.load(trainer.best_model_path, weights_only=False)
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(best[name], value)
    assert not any("loss" in key for key in trainer.evaluate())  # known weights: nothing is said
    raw = raw_values(trainer.model, trainer.eval_dataset, task)
    best = holdout.close().best_of("loss")
    assert best.evaluation == trainer.outcome.best_evaluation
    assert best.value == pytest.approx(raw["loss"], abs=50 / 2**16)  # one level


def test_weights_that_were_asked_before_are_free(tmp_path):
    trainer = trainer_for("classes", tmp_path, live())
    first = trainer.evaluate()
    again = trainer.evaluate()
    assert first["eval_loss"] == again["eval_loss"]
    assert first["eval_holdout/budget_left"] == again["eval_holdout/budget_left"]


def test_other_sets_are_evaluated_as_ever(tmp_path):
    display = Rows("classes", 20, 3)
    trainer = trainer_for(
        "classes", tmp_path, live(),
        eval_dataset={"held": Rows("classes", SIZE, 2), "display": display},
        public_eval=("display",),
        compute_metrics=lambda p: {"right": (p.predictions.argmax(-1) == p.label_ids).mean()},
        args={"metric_for_best_model": "eval_display_loss", "load_best_model_at_end": True,
              "num_train_epochs": 1, "greater_is_better": False},
    )  # fmt: skip
    trainer.train()
    metrics = trainer.evaluate()
    raw = raw_values(trainer.model, display, "classes")
    assert metrics["eval_display_loss"] == pytest.approx(raw["loss"], rel=1e-5)
    assert metrics["eval_display_right"] == pytest.approx(raw["accuracy"])
    assert "eval_held_loss" in metrics
    assert "eval_held_right" not in metrics
    other = trainer.evaluate(Rows("classes", 12, 9), metric_key_prefix="other")
    assert "other_loss" in other
    assert trainer.predict(Rows("classes", 12, 9)).predictions.shape == (12, 2)


def test_a_function_gives_the_values_and_tuples_are_arguments(tmp_path):
    seen = set()

    def values(p):
        seen.add(type(p.inputs).__name__)
        return {"top": (p.predictions, p.label_ids), "short": p.inputs["input_ids"][:, 0] < 20}

    holdout = exact(statistics={"top": th.ZeroOne(), "short": th.ZeroOne()})
    trainer = trainer_for("classes", tmp_path, holdout, values=values)
    metrics = trainer.evaluate()
    raw = raw_values(trainer.model, trainer.eval_dataset, "classes")
    assert metrics["eval_top"] == pytest.approx(raw["accuracy"], abs=1e-5)
    short = (trainer.eval_dataset.ids[:, 0] < 20).double().mean()
    assert metrics["eval_short"] == pytest.approx(float(short), abs=1e-5)


class Spans(Rows):
    """Where an answer begins and ends: two labels of other names."""

    def __getitem__(self, index):
        ids = self.ids[index]
        first, last = (ids[:2] % len(ids)).sort().values
        return {"input_ids": ids, "start_positions": first, "end_positions": last}


def test_labels_of_other_names_come_as_a_tuple(tmp_path):
    def values(p):
        both = zip(p.predictions, p.label_ids, strict=True)
        losses = [cross_entropy(logits, place, reduction="none") for logits, place in both]
        return {"loss": sum(losses) / 2}

    rows, model = Spans("classes", SIZE, 2), BertForQuestionAnswering(model_for("classes").config)
    trainer = trainer_for(
        "classes", tmp_path, exact(statistics={"loss": th.BoundedMean(0.0, 5.0)}), values=values,
        args={"label_names": ["start_positions", "end_positions"]}, model=model,
        train_dataset=Spans("classes", 20, 1), eval_dataset=rows,
    )  # fmt: skip
    with torch.no_grad():
        raw = model.eval()(**default_collate([rows[index] for index in range(SIZE)])).loss
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(raw), abs=1e-4)


def test_the_budget_stops_training(tmp_path, caplog):
    trainer = trainer_for("classes", tmp_path, live(budget=2), args={"num_train_epochs": 5})
    trainer.train()
    assert trainer.state.epoch < 5
    assert trainer.holdout.exhausted
    with pytest.raises(BudgetExhaustedError, match="releases left for a new fit"):
        trainer.train()


@pytest.mark.filterwarnings("ignore:HoldoutTrainer. The budget")
def test_a_frozen_budget_repeats_the_last_answer(tmp_path):
    holdout = live(budget=2, mechanism=th.LaplaceMechanism(epsilon=1.0))
    trainer = trainer_for("classes", tmp_path, holdout, on_exhausted="freeze")
    trainer.train()
    rows = [row for row in trainer.state.log_history if "eval_loss" in row]
    assert len(rows) == 3
    assert rows[0]["eval_loss"] == rows[1]["eval_loss"] == rows[2]["eval_loss"]
    assert rows[2]["eval_holdout/loss/is_stale"] == 1
    assert not math.isnan(rows[2]["eval_loss"])


def test_a_spent_budget_raises_if_asked_to(tmp_path):
    holdout = live(budget=2, mechanism=th.LaplaceMechanism(epsilon=1.0))
    trainer = trainer_for("classes", tmp_path, holdout, on_exhausted="raise")
    with pytest.raises(BudgetExhaustedError):
        trainer.train()


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 2},
        {"eval_on_start": True, "eval_accumulation_steps": 1, "batch_eval_metrics": True},
        {"bf16": True, "label_smoothing_factor": 0.1},
        {"bf16_full_eval": True, "torch_empty_cache_steps": 1},
        {"include_for_metrics": ["inputs"], "prediction_loss_only": True},
        {"train_sampling_strategy": "group_by_length", "dataloader_num_workers": 1},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:multiprocessing.popen_fork")
def test_options_of_the_trainer_work(options, tmp_path):
    trainer = trainer_for("tokens", tmp_path, live(), args={**options, "num_train_epochs": 1})
    trainer.train()
    rows = [row for row in trainer.state.log_history if "eval_loss" in row]
    assert rows
    assert all(0 <= row["eval_loss"] <= 5 for row in rows)


def test_it_is_a_mixin_over_any_trainer(tmp_path):
    class Mine(HoldoutTrainer, Seq2SeqTrainer):
        pass

    args = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path), report_to="none", use_cpu=True, disable_tqdm=True,
        dataloader_pin_memory=False, generation_max_length=9, predict_with_generate=False,
    )  # fmt: skip
    trainer = Mine(
        model_for("language"), args, train_dataset=Rows("language", 20, 1),
        eval_dataset=Rows("language", SIZE, 2), holdout=exact(),
    )  # fmt: skip
    raw = raw_values(trainer.model, trainer.eval_dataset, "language")
    assert trainer.evaluate(max_length=9)["eval_loss"] == pytest.approx(raw["loss"], abs=1e-4)
    assert trainer._gen_kwargs["max_length"] == 9


def test_training_values_are_compared_with(tmp_path):
    train = Rows("classes", 60, 1)
    holdout = live(mechanism=th.Thresholdout(threshold=0.5, sigma=1e-3, guess="train"))
    trainer = trainer_for(
        "classes", tmp_path, holdout, train_dataset=train,
        guess_dataset=th.fixed_subset(train, 40, seed=0),
    )  # fmt: skip
    metrics = trainer.evaluate()
    assert metrics["eval_holdout/releases"] == 0  # the training value was near enough
    assert metrics["eval_holdout/loss/is_release"] == 0


@pytest.mark.parametrize("several", [False, True])
def test_a_search_compares_published_values_and_no_counts(several, tmp_path):
    """Between trials the Trainer frees its model; its own objective would add up the counts."""
    pytest.importorskip("optuna")
    holdout = exact() if several else exact(statistics={"loss": th.BoundedMean(0.0, 5.0)})
    trainer = HoldoutTrainer(
        model_init=lambda: model_for("classes"), args=arguments(tmp_path, num_train_epochs=1),
        train_dataset=Rows("classes", 60, 1), eval_dataset=Rows("classes", SIZE, 2),
        holdout=holdout, callbacks=[published := Published()],
    )  # fmt: skip
    best = trainer.hyperparameter_search(
        n_trials=3, backend="optuna", direction="maximize" if several else "minimize",
        hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 0.0, 0.1)},
    )  # fmt: skip
    values = [row["eval_accuracy" if several else "eval_loss"] for row in published.rows]
    assert len(values) == 3
    assert best.objective == (max if several else min)(values)


class Published(TrainerCallback):
    """Notes what each evaluation published."""

    def __init__(self):
        self.rows = []

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        self.rows.append(metrics)


def test_early_stopping_that_cannot_work_is_said(tmp_path):
    trainer = trainer_for(
        "classes", tmp_path, live(mechanism=th.Ladder(step=0.1)), args=BEST,
        callbacks=[EarlyStoppingCallback(5, early_stopping_threshold=2.0)],
    )  # fmt: skip
    with pytest.warns(th.HoldoutWarning, match="ignores improvements of 'loss'"):
        trainer.train()


def test_losses_and_accuracies_of_a_language_model_are_weighted_by_tokens(tmp_path):
    """Published live and at closing: the quotient of both sums over all sequences."""
    tokens = th.BoundedMean(1.0, 8.0)
    statistics = {
        "loss": th.Ratio(th.BoundedMean(0.0, 80.0), tokens, 0.0, 10.0),
        "accuracy": th.Ratio(th.BoundedMean(0.0, 8.0), tokens, 0.0, 1.0, mode="max"),
        "sequence_loss": th.CrossEntropy(10.0, reduce="mean", class_dim=-1),
    }
    trainer = trainer_for("language", tmp_path, exact(statistics=statistics))
    raw = raw_values(trainer.model, trainer.eval_dataset, "language")
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] == pytest.approx(raw["token loss"], abs=3e-4)
    assert metrics["eval_accuracy"] == pytest.approx(raw["token accuracy"], abs=1e-3)
    assert metrics["eval_sequence_loss"] == pytest.approx(raw["loss"], abs=1e-3)
    assert abs(raw["token loss"] - raw["loss"]) > 1e-3  # they are told apart


def test_a_sealed_language_model_stops_by_its_loss_per_token(tmp_path):
    statistics = {"loss": th.Ratio(th.BoundedMean(0.0, 80.0), th.BoundedMean(1.0, 8.0), 0.0, 10.0)}
    holdout = sealed(statistics=statistics)
    trainer = trainer_for(
        "language", tmp_path, holdout, stop=th.Patience("loss", patience=2),
        args={"num_train_epochs": 4},
    )  # fmt: skip
    trainer.train()
    raw = raw_values(trainer.model, trainer.eval_dataset, "language")
    best = holdout.close().best_of("loss")
    assert best.evaluation == trainer.outcome.best_evaluation
    assert best.value == pytest.approx(raw["token loss"], abs=1e-3)
