"""All that a run writes or hands out is searched for raw values: none; unguarded there are."""

import io
import logging
from contextlib import redirect_stderr, redirect_stdout

import pytest
import torch
import torch_holdout as th
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback
from transformers.utils import logging as transformers_logging

from support.builders.hugging_face import (
    TASKS,
    arguments,
    live,
    raw_values,
    sealed,
    trainer_for,
)
from support.oracles.leaks import files_below, raw_hits

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(tensorboard|google).*"),
]
WAYS = ("live", "sealed", "unguarded")
WEIGHTS = ("model.safetensors", "optimizer.pt", ".pth", "holdout_runs")  # learnt from training data


class Spy(TrainerCallback):
    """Copies all that callbacks are handed, and notes the raw values of the weights evaluated."""

    def __init__(self, task):
        self.task, self.seen, self.raw, self.trainer = task, [], [], None

    def note(self, args, state, control, **kwargs):
        given = {k: v for k, v in kwargs.items() if k in ("logs", "metrics")}
        self.seen.append({"given": given, "state": str(vars(state)), "control": str(control)})

    on_log = on_step_end = on_epoch_end = on_train_end = on_prediction_step = on_save = note

    def on_evaluate(self, args, state, control, **kwargs):
        self.note(args, state, control, **kwargs)
        rows = self.trainer.eval_dataset
        values = raw_values(self.trainer.model, rows, self.task)
        with torch.random.fork_rng(), redirect_stdout(io.StringIO()):
            plain = Trainer(self.trainer.model, arguments(args.output_dir), eval_dataset=rows)
            values["an unguarded Trainer's"] = plain.evaluate()["eval_loss"]
        self.raw.append(values)


class Counts(TrainerCallback):
    """Notes each pass."""

    def __init__(self, passes):
        self.passes = passes

    def on_evaluate(self, args, state, control, **kwargs):
        self.passes.append(1)


def run(task, way, folder):
    """Train, evaluate and write a card; return all that left, by place, and the raw values."""
    spy, written = Spy(task), io.StringIO()
    args = {"report_to": "tensorboard", "num_train_epochs": 3}
    options = {"callbacks": [spy]}
    if way == "sealed":
        holdout, options["stop"] = sealed(), th.Patience("loss", patience=2)
    else:
        holdout = live() if way == "live" else None
        args |= {"load_best_model_at_end": True, "metric_for_best_model": "loss"}
        options["callbacks"] += [EarlyStoppingCallback(2)]
    kind = {} if holdout is not None else {"kind": Trainer}
    with redirect_stdout(written), redirect_stderr(written):
        trainer = trainer_for(task, folder, holdout, args=args, **options, **kind)
        spy.trainer = trainer
        trainer.train()
        returned = trainer.evaluate()
        trainer.create_model_card()
        trainer.save_model(str(folder / "final"))
        trainer.save_state()
        trainer.save_metrics("eval", returned)
        trainer.log_metrics("eval", returned)
    files = {k: v for k, v in files_below(folder).items() if not any(w in k for w in WEIGHTS)}
    for row in trainer.state.log_history:  # a card rounds training losses to four digits
        public = f"{row.get('loss', 0):.4f}".encode()
        files["README.md"] = files["README.md"].replace(public, b"trained")
    state = [{k: v for k, v in row.items() if k != "loss"} for row in trainer.state.log_history]
    left = {
        "files": {name: content for name, content in files.items() if content},
        "printed": written.getvalue(),
        "returned": returned,
        "history": state,
        "callbacks": spy.seen,
        "attributes": {k: str(v) for k, v in vars(trainer).items() if not k.startswith("_eval")},
    }
    numbers = [value for values in spy.raw for value in values.values()]
    # Accuracies are quotients of small numbers, and stand in other places by chance.
    right = {v for values in spy.raw for name, v in values.items() if name.endswith("accuracy")}
    return left, [number for number in numbers if number not in right], len(spy.raw)


@pytest.fixture
def loud():
    """The libraries' own logs, as loud as they can be."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    loggers = [logging.getLogger(name) for name in ("transformers", "accelerate", "torch_holdout")]
    before = [(logger, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield stream
    for logger, level in before:
        logger.removeHandler(handler)
        logger.setLevel(level)
    transformers_logging.set_verbosity_error()


@pytest.mark.parametrize("way", ["live", "sealed"])
@pytest.mark.parametrize("task", TASKS)
def test_nothing_raw_is_in_what_a_run_left(task, way, tmp_path, loud):
    left, raw, evaluations = run(task, way, tmp_path)
    assert evaluations >= 3
    assert raw_hits({**left, "logs": loud.getvalue()}, raw) == []
    places = " ".join(left["files"])
    for part in ("trainer_state.json", "README.md", "events.out", "eval_results.json"):
        assert part in places


@pytest.mark.parametrize("task", TASKS)
def test_unguarded_the_raw_values_are_found_everywhere(task, tmp_path):
    left, raw, _ = run(task, "unguarded", tmp_path)
    hits = " ".join(raw_hits(left, raw))
    for place in ("trainer_state.json", "events.out", "eval_results", "returned", "history"):
        assert place in hits
    assert "callbacks" in hits


@pytest.mark.parametrize("way", ["live", "unguarded"])
def test_weights_and_biases_is_told_guarded_values_only(way, tmp_path, monkeypatch):
    """Its own records, offline; a plain Trainer's hold raw values, so the search finds them."""
    wandb = pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "SILENT": "true", "DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    guarded = way == "live"
    spy = Spy("classes")
    trainer = spy.trainer = trainer_for(
        "classes", tmp_path, live() if guarded else None, args={"report_to": "wandb"},
        callbacks=[spy], **({} if guarded else {"kind": Trainer}),
    )  # fmt: skip
    trainer.train()
    wandb.finish()
    wandb.teardown()  # waits for the writer
    (records,) = tmp_path.rglob("*.wandb")
    assert b"eval/loss" in records.read_bytes()
    raw = [value for found in spy.raw for name, value in found.items() if name != "accuracy"]
    assert bool(raw_hits(records.read_bytes(), raw)) is not guarded


@pytest.mark.parametrize("task", TASKS)
def test_a_card_shows_guarded_values_only(task, tmp_path):
    trainer = trainer_for(task, tmp_path, live(), args={"num_train_epochs": 1})
    trainer.train()
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text()
    raw = raw_values(trainer.model, trainer.eval_dataset, task)
    assert f"{trainer.state.log_history[1]['eval_loss']:.4f}".rstrip("0") in card
    assert f"{raw['loss']:.4f}" not in card


def test_sealed_runs_of_mirrored_values_leave_the_same_trace(tmp_path):
    """Values that rise and values that fall: states, logs and files are the same."""
    traces = []
    for name, order in (("up", 1), ("down", -1)):
        passes = []

        def values(p, order=order, passes=passes):
            level = 1.3 + order * 0.1 * len(passes)
            return {"loss": torch.full((len(p.label_ids),), level) + p.label_ids * 1e-3}

        folder = tmp_path / name
        holdout = sealed(statistics={"loss": th.BoundedMean(0.0, 5.0)})
        trainer = trainer_for(
            "classes", folder, holdout, values=values, callbacks=[Counts(passes)],
            stop=th.Patience("loss", patience=4), args={"num_train_epochs": 4},
        )  # fmt: skip
        trainer.train()
        history = [
            {k: v for k, v in row.items() if "per_second" not in k and "runtime" not in k}
            for row in trainer.state.log_history
        ]
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("checkpoint*/*"))
        traces.append((history, files, trainer.outcome.passes))
        assert trainer.outcome.best_evaluation == {"up": 1, "down": 4}[name]
    assert traces[0] == traces[1]
