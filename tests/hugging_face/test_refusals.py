"""What cannot work is refused when the trainer is made, with the line to write instead."""

import subprocess
import sys

import pytest
import torch
import torch_holdout as th
from torch.utils.data import DataLoader, Subset
from torch_holdout.errors import (
    HoldoutError,
    InvalidArgumentError,
    PartialPassError,
    UnguardedLogError,
)
from torch_holdout.transformers import HoldoutTrainer
from transformers import EarlyStoppingCallback, TrainerCallback

from support.builders.hugging_face import SIZE, TRAINED, Rows, live, sealed, trainer_for

PATIENCE = {"stop": th.Patience("loss", patience=2)}


def as_before(p):
    return {"accuracy": 1.0}


class OwnLoop(HoldoutTrainer):
    def evaluation_loop(self, dataloader, *args, **kwargs):
        return super().evaluation_loop(dataloader, *args, **kwargs)


class OwnLoss(HoldoutTrainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        return super().compute_loss(model, inputs, return_outputs, **kwargs)


def other(statistic):
    return live(statistics={"f1": statistic})


REFUSED = {
    "compute_metrics": (live, {"compute_metrics": as_before}, "instead of `compute_metrics`"),
    "loss for metrics": (live, {"args": {"include_for_metrics": ["loss"]}}, "without 'loss'"),
    "unknown statistic": (lambda: other(th.BoundedMean(0, 1)), {}, "nothing is known about how"),
    "another length": (lambda: live(size=44), {}, "Expected the 44 examples"),
    "no dataset": (live, {"eval_dataset": None, "args": {"eval_strategy": "no"}}, "got None"),
    "a loop of its own": (live, {"kind": OwnLoop}, "leave `evaluation_loop` to"),
    "a loss of its own": (live, {"kind": OwnLoss}, "`compute_loss` computes a loss of its own"),
    "a loss function": (live, {"compute_loss_func": as_before}, "`compute_loss_func` computes"),
    "stop while values show": (live, PATIENCE, "Expected stop= for a sealed holdout only"),
    "an unknown best": (
        live, {"args": {"metric_for_best_model": "f1"}}, "metric_for_best_model to name",
    ),
    "the wrong way round": (
        live, {"args": {"metric_for_best_model": "loss", "greater_is_better": True}},
        "greater_is_better=False",
    ),
    "sealed best model": (
        sealed, {"args": {"load_best_model_at_end": True, "metric_for_best_model": "loss"}},
        "load_best_model_at_end and metric_for_best_model would",
    ),
    "sealed early stopping": (
        sealed, {"args": {"metric_for_best_model": "loss"},
                 "callbacks": [EarlyStoppingCallback(7)]},
        r"stop=th.Patience\('loss', patience=7\)",
    ),
    "sealed plateau": (
        sealed, {"args": {"lr_scheduler_type": "reduce_lr_on_plateau"}}, "reduce_lr_on_plateau",
    ),
    "sealed without evaluations": (
        sealed, {**PATIENCE, "args": {"eval_strategy": "no"}}, "eval_strategy is 'no'",
    ),
    "sealed stop by another": (sealed, {"stop": th.Patience("f1", 3)}, "one of the statistics"),
    "sealed freeze": (sealed, {"on_exhausted": "freeze"}, "on_exhausted to be left out"),
    "an unnamed set": (
        live, {"eval_dataset": {"a": Rows("classes", SIZE, 2), "b": Rows("classes", 9, 3)}},
        "to be the holdout and the others",
    ),
    "public of one": (live, {"public_eval": ("display",)}, "with several evaluation sets"),
    "a public statistic": (live, {"public": ("loss",)}, "do not depend on the holdout"),
    "a taken name": (
        lambda: live(statistics={"runtime": th.ZeroOne()}), {}, "free in the logs",
    ),
    "no guess": (
        lambda: live(mechanism=th.Thresholdout(threshold=0.1, sigma=0.01, guess="train")), {},
        "Expected `guess_dataset`",
    ),
    "means of batches": (
        lambda: live(statistics={"loss": th.LoggedMean(0.0, 5.0, batch_size=10)}), {},
        "statistics of single examples, but .'loss'.",
    ),
    "no function": (live, {"values": 3}, "to be a function"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_when_it_is_made(case, tmp_path):
    account, changes, words = REFUSED[case]
    holdout = account()
    with pytest.raises(HoldoutError, match=words):
        trainer_for("classes", tmp_path, holdout, **changes)
    assert holdout.status().queries == 0


def test_callbacks_that_are_added_later_are_refused_before_training(tmp_path):
    trainer = trainer_for(
        "classes", tmp_path, sealed(), **PATIENCE, args={"metric_for_best_model": None}
    )
    trainer.args.metric_for_best_model = "loss"
    trainer.add_callback(EarlyStoppingCallback(3))
    with pytest.raises(InvalidArgumentError, match="EarlyStoppingCallback would"):
        trainer.train()


def test_predictions_on_the_holdout_are_refused_by_object_and_by_records(tmp_path):
    trainer = trainer_for("classes", tmp_path, live())
    rows = trainer.eval_dataset
    same = Rows("classes", SIZE, 2)
    part = Subset(same, range(20))
    for dataset in (rows, same, part, [same[index] for index in range(30)]):
        with pytest.raises(HoldoutError, match=r"predict\(\) on other data than the holdout"):
            trainer.predict(dataset)
    for dataset in (same, part):
        with pytest.raises(HoldoutError, match=r"evaluate\(\) on other data than the holdout"):
            trainer.evaluate(dataset)
    with pytest.raises(HoldoutError, match="other data than the holdout"):
        trainer.evaluation_loop(DataLoader(same, batch_size=5), "Evaluation")
    with pytest.raises(HoldoutError, match="other data than the holdout"):
        trainer.get_test_dataloader(rows)
    assert trainer.holdout.status().queries == 0


def test_the_holdouts_own_object_is_evaluated_through_the_door(tmp_path):
    trainer = trainer_for("classes", tmp_path, live())
    metrics = trainer.evaluate(trainer.eval_dataset)
    assert metrics["eval_holdout/releases"] > 0


def test_data_that_cannot_be_compared_is_refused_unless_declared(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from (Rows("classes", 5, 8)[index] for index in range(5))

    trainer = trainer_for("classes", tmp_path, live())
    with pytest.raises(InvalidArgumentError, match="cannot be compared: its records cannot be"):
        trainer.predict(Stream())
    sure = trainer_for("classes", tmp_path, live(), check_data=False)
    assert len(sure.predict(Stream()).predictions) == 5


def test_training_records_in_the_holdout_are_refused(tmp_path):
    rows = Rows("classes", TRAINED + SIZE, 1)
    train, val = Subset(rows, range(TRAINED)), Subset(rows, range(TRAINED - 10, TRAINED + 35))
    trainer = trainer_for("classes", tmp_path, live(), train_dataset=train, eval_dataset=val)
    with pytest.raises(InvalidArgumentError, match="10 of 60 are the holdout's own"):
        trainer.train()
    for untrained in (trainer.evaluate, lambda: trainer.predict(train)):
        with pytest.raises(InvalidArgumentError, match="10 of 60 are the holdout's own"):
            untrained()


def test_a_training_set_that_came_later_is_compared_too(tmp_path):
    trainer = trainer_for("classes", tmp_path, live(), args={"num_train_epochs": 1})
    trainer.train()
    trainer.train_dataset = trainer.eval_dataset
    with pytest.raises(InvalidArgumentError, match="45 of 45 are the holdout's own"):
        trainer.train()


ASKS = {
    "train": lambda trainer: trainer.train(),
    "evaluate": lambda trainer: trainer.evaluate(),
    "by name": lambda trainer: trainer.evaluate("display"),
    "by object": lambda trainer: trainer.evaluate(trainer.eval_dataset["display"]),
    "predict": lambda trainer: trainer.predict(trainer.eval_dataset["display"]),
    "loader": lambda trainer: trainer.get_test_dataloader(trainer.eval_dataset["display"]),
}


@pytest.mark.parametrize("ask", ASKS)
def test_a_public_set_with_holdout_records_is_refused(ask, tmp_path):
    """Also as the first of the sets, before the holdout's own turn."""
    sets = {"display": Rows("classes", SIZE, 2), "held": Rows("classes", SIZE, 2)}
    trainer = trainer_for("classes", tmp_path, live(), eval_dataset=sets, public_eval=("display",))
    with pytest.raises(InvalidArgumentError, match="sets in `public_eval` with other records"):
        ASKS[ask](trainer)
    assert trainer.state.log_history == []


def test_a_loader_that_ignores_its_argument_does_not_show_the_holdout(tmp_path):
    class Mine(HoldoutTrainer):
        def get_eval_dataloader(self, eval_dataset=None):
            return DataLoader(self.eval_dataset, batch_size=5)

    trainer = trainer_for("classes", tmp_path, live(), kind=Mine)
    with pytest.raises(UnguardedLogError, match="other data than the holdout"):
        trainer.evaluate(Rows("classes", 9, 4))
    assert "eval_loss" in trainer.evaluate()


def renamed(change):
    """The holdout's examples with other fields; all of them have ``input_ids``."""

    class Other(Rows):
        def __getitem__(self, index):
            return change(super().__getitem__(index), index)

    return Other


FIELDS = {
    "no labels": lambda row, index: {"input_ids": row["input_ids"]},
    "a number of its own": lambda row, index: {"idx": index, **row},
    "a mask": lambda row, index: {**row, "attention_mask": torch.ones(8, dtype=torch.long)},
    "another order": lambda row, index: dict(reversed(row.items())),
}


@pytest.mark.parametrize("case", FIELDS)
def test_the_same_examples_with_other_fields_are_the_same(case, tmp_path):
    """As whole records they were others; what the model reads decides its predictions."""
    kind = renamed(FIELDS[case])
    trainer = trainer_for("classes", tmp_path, live())
    before = torch.get_rng_state()
    for asked in (trainer.predict, trainer.evaluate, trainer.get_test_dataloader):
        with pytest.raises(HoldoutError, match="45 of 45 records are the holdout's own"):
            asked(kind("classes", SIZE, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.holdout.status().queries == 0
    trained = trainer_for("classes", tmp_path, live(), train_dataset=kind("classes", SIZE, 2))
    with pytest.raises(InvalidArgumentError, match="45 of 45 are the holdout's own"):
        trained.train()
    trainer.get_test_dataloader(kind("classes", SIZE, 9))
    sure = trainer_for("classes", tmp_path, live(), check_data=False)
    sure.get_test_dataloader(kind("classes", SIZE, 2))


def test_a_loader_that_hides_its_dataset_is_not_evaluated(tmp_path):
    class Batches:
        def __iter__(self):
            return iter(DataLoader(Rows("classes", SIZE, 2), batch_size=5))

        def __len__(self):
            return 9

    trainer = trainer_for("classes", tmp_path, live())
    with pytest.raises(InvalidArgumentError, match="one of the two cannot be compared"):
        trainer.evaluation_loop(Batches(), "Evaluation")
    assert trainer.state.log_history == []
    sure = trainer_for("classes", tmp_path, live(), check_data=False)
    assert "eval_loss" in sure.evaluation_loop(Batches(), "Evaluation").metrics


def test_a_loader_of_a_part_of_the_holdout_is_not_another_sets(tmp_path):
    class Mine(HoldoutTrainer):
        def get_eval_dataloader(self, eval_dataset=None):
            return DataLoader(Subset(self.eval_dataset, range(20)), batch_size=5)

    trainer = trainer_for("classes", tmp_path, live(), kind=Mine)
    with pytest.raises(InvalidArgumentError, match="20 of 20 records are the holdout's own"):
        trainer.evaluate(Rows("classes", 9, 4))


def test_dropping_the_last_batch_is_refused(tmp_path):
    trainer = trainer_for("classes", tmp_path, live(), args={"dataloader_drop_last": True})
    with pytest.raises(PartialPassError, match="drop_last=True and leaves out the last 5"):
        trainer.evaluate()


def test_groups_by_place_are_refused_where_evaluations_are_sorted_by_length(tmp_path):
    groups = [row // 3 for row in range(SIZE)]
    holdout = live(statistics={"loss": th.GroupedMean(0.0, 5.0, groups=groups)})
    trainer = trainer_for(
        "classes", tmp_path, holdout, args={"train_sampling_strategy": "group_by_length"}
    )
    for act in (trainer.train, trainer.evaluate):
        with pytest.raises(InvalidArgumentError, match="shuffles or sorts"):
            act()
    assert trainer.state.global_step == holdout.status().queries == 0


def test_a_sealed_holdout_is_not_evaluated_outside_a_run(tmp_path):
    trainer = trainer_for("classes", tmp_path, sealed(), **PATIENCE)
    with pytest.raises(HoldoutError, match=r"Expected trainer.evaluate\(\) on weights"):
        trainer.evaluate()
    with pytest.raises(InvalidArgumentError, match="is sealed"):
        trainer.hyperparameter_search()


def test_zero_one_of_tokens_is_told_what_to_register(tmp_path):
    holdout = live(statistics={"accuracy": th.ZeroOne()})
    with pytest.raises(InvalidArgumentError, match="the labels are of tokens"):
        trainer_for("tokens", tmp_path, holdout).evaluate()


def test_tokens_of_an_unknown_model_need_a_function(tmp_path):
    class Wrapped(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, input_ids, labels=None):
            return self.inner(input_ids=input_ids, labels=labels)

    from support.builders.hugging_face import model_for

    trainer = trainer_for("tokens", tmp_path, live(), model=Wrapped(model_for("tokens")))
    with pytest.raises(InvalidArgumentError, match="Expected a model of a known kind"):
        trainer.evaluate()


def test_evaluations_inside_a_pass_are_refused(tmp_path):
    class Nested(TrainerCallback):
        def on_prediction_step(self, args, state, control, **kwargs):
            self.trainer.evaluate()

    nested = Nested()
    trainer = trainer_for("classes", tmp_path, live(), callbacks=[nested])
    nested.trainer = trainer
    with pytest.raises(UnguardedLogError, match="while it is evaluated"):
        trainer.evaluate()


@pytest.mark.parametrize("missing", ["transformers", "accelerate"])
def test_a_missing_package_is_named(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "try:\n    import torch_holdout.transformers\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'torch-holdout[transformers]'" in found.stdout
    assert missing in found.stdout
