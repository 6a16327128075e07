"""What people watch while training: bars on a real terminal, and every logger, read back."""

import importlib
import math
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch_holdout as th

from support.builders import guarded
from support.machines.loggers import logging_to, written_by
from support.machines.terminal import drawn, screens

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parent.parent.parent
EPOCHS, BATCHES = 5, 4
KINDS = ["csv", "tensorboard", "wandb", "mlflow"]


def recorder(namespace, guard, seen):
    """A callback that writes down each evaluation's answers."""

    class Recorder(guarded.package(namespace).Callback):
        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                seen.append(dict(guard.answers))

    return Recorder()


def expected(answers, budget):
    """What belongs to an evaluation, by key."""
    left = min(answer.budget_left for answer in answers.values())
    row = {"holdout/budget_left": left, "holdout/releases": budget - left}
    row["holdout/exhausted"] = int(left == 0)
    for name, answer in answers.items():
        row[f"holdout/{name}/is_release"] = int(answer.kind == "release")
        row[f"holdout/{name}/is_stale"] = int(answer.kind == "exhausted")
        if answer.kind != "exhausted":
            row[name] = answer.value
    return row


@pytest.mark.parametrize("namespace", guarded.NAMESPACES)
def test_every_logger_has_every_value_at_its_step(namespace, tmp_path):
    """Five releases for two statistics: then both are stale, and say so, at the right steps."""
    budget, seen = 5, []
    mechanism = th.LaplaceMechanism(epsilon=2.0)  # releases until nothing is left
    holdout = guarded.holdout(budget=budget, mechanism=mechanism)
    guard = guarded.guard_class(namespace)(holdout, on_exhausted="freeze")
    with logging_to(namespace, tmp_path, KINDS) as loggers:
        run = guarded.trainer(
            [guard, recorder(namespace, guard, seen)],
            namespace,
            logger=loggers,
            max_epochs=EPOCHS,
            log_every_n_steps=1,
        )
        run.fit(guarded.network(namespace), guarded.loader(drop_last=True), guarded.loader())
    assert [a["val_acc"].kind for a in seen] == ["release"] * 2 + ["exhausted"] * 3
    steps = [BATCHES * (epoch + 1) - 1 for epoch in range(EPOCHS)]
    for kind in KINDS:
        rows = written_by(kind, tmp_path)
        assert list(rows) == steps, kind
        last = {}
        for epoch, (step, answers) in enumerate(zip(steps, seen, strict=True)):
            last |= expected(answers, budget)  # stale statistics keep the value before
            assert rows[step] == pytest.approx({**last, "epoch": epoch}, rel=1e-6), (kind, step)
            assert not any(math.isnan(value) for value in rows[step].values())


def counting(namespace, calls):
    logger = importlib.import_module(f"{namespace}.loggers.logger")

    class Counting(logger.DummyLogger):
        def log_metrics(self, metrics, step=None):
            calls.append((step, sorted(metrics)))

    return Counting()


@pytest.mark.parametrize("namespace", guarded.NAMESPACES)
def test_loggers_are_called_as_often_as_for_a_run_without_a_guard(namespace):
    """Everything goes through ``log``: Lightning calls each logger, once an evaluation."""

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", guarded.per_example(self, batch)["val_loss"].mean())

    counted = []
    for callbacks, module in (
        ([guarded.guard_class(namespace)(guarded.holdout())], guarded.network(namespace)),
        ([], guarded.network(namespace, validation_step=validation_step)),
    ):
        calls = []
        run = guarded.trainer(callbacks, namespace, logger=counting(namespace, calls))
        guarded.fit(run, module)
        counted.append([step for step, _ in calls])
        assert all("left" not in keys for _, keys in calls)  # that is for the bar alone
    assert counted[0] == counted[1] == [3, 7, 11]


def test_no_warning_is_about_what_the_guard_logs():
    """Neither that there is no logger, nor what to do about ranks (see the DDP example's test)."""
    run = guarded.trainer([guarded.guard_class("lightning.pytorch")(guarded.holdout())])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.fit(guarded.network(), guarded.loader(drop_last=True), guarded.loader())
    assert [str(w.message) for w in caught if "self.log" in str(w.message)] == []


@pytest.mark.parametrize("prog_bar", [True, False])
def test_whole_numbers_stay_whole(prog_bar):
    guard = guarded.guard_class("lightning.pytorch")(guarded.holdout(), prog_bar=prog_bar)
    run = guarded.fit(guarded.trainer([guard]), guarded.network())
    left = guard.holdout.status().budget_left
    shown = {"left": left, "val_loss": guard.answers["val_loss"].value}
    shown["val_acc"] = guard.answers["val_acc"].value
    assert run.progress_bar_metrics == (shown if prog_bar else {})
    if prog_bar:
        assert next(iter(run.progress_bar_metrics)) == "left"
        assert repr(run.progress_bar_metrics["left"]) == str(left)
    assert run.callback_metrics["holdout/budget_left"].item() == left
    for key in ("budget_left", "releases", "exhausted", "val_acc/is_release", "val_acc/is_stale"):
        assert not run.callback_metrics[f"holdout/{key}"].is_floating_point()
    assert "left" not in run.logged_metrics


def test_several_guards_have_a_budget_each_in_the_bar():
    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        return {f"loss_{dataloader_idx}": guarded.per_example(self, batch)["val_loss"]}

    guards = []
    for index in (0, 1):
        statistics = {f"loss_{index}": th.BoundedMean(0.0, 5.0)}
        holdout = guarded.holdout(name=f"part {index}", statistics=statistics, budget=9 - index)
        guards.append(guarded.guard_class("lightning.pytorch")(holdout, dataloader_idx=index))
    run = guarded.trainer(guards)
    module = guarded.network(validation_step=validation_step)
    guarded.fit(run, module, val=[guarded.loader(), guarded.loader()])
    for index, guard in enumerate(guards):
        shown = run.progress_bar_metrics[f"left/part {index}"]
        assert shown == guard.holdout.status().budget_left


NAMES = ["step", "epoch", "v_num", "left", "holdout/budget_left", "a/dataloader_idx_0"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_cannot_be_logged_is_refused_before_anything_is_charged(name):
    holdout = guarded.holdout(statistics={name: th.BoundedMean(0.0, 5.0)})
    with pytest.raises(th.InvalidArgumentError, match="free in the logs, but got"):
        guarded.guard_class("lightning.pytorch")(holdout)


def test_a_name_with_other_characters_is_shown_by_every_logger(tmp_path):
    """MLflow drops the characters that it cannot store; Lightning says so."""
    name = "top@5 (%)"
    holdout = guarded.holdout(statistics={name: th.BoundedMean(0.0, 1.0, mode="max")})

    def validation_step(self, batch, batch_idx):
        return {name: guarded.per_example(self, batch)["val_acc"]}

    module = guarded.network(validation_step=validation_step)
    guard = guarded.guard_class("lightning.pytorch")(holdout)
    with logging_to("lightning.pytorch", tmp_path, KINDS) as loggers:
        guarded.fit(guarded.trainer([guard], logger=loggers, max_epochs=1), module)
    for kind in KINDS:
        row = written_by(kind, tmp_path)[BATCHES - 1]
        assert row["top5 " if kind == "mlflow" else name] == pytest.approx(
            guard.answers[name].value, rel=1e-6
        )


# Progress bars


def shows(screen, *pairs):
    """Whether each key is on the screen with its value, whole; Rich may break lines between."""
    words = " ".join(screen.split()) + " "
    forms = ("{}={},", "{}={}]", "{}: {} ")
    return all(any(form.format(*pair) in words for form in forms) for pair in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "namespace"), list(zip([80, 120], guarded.NAMESPACES, strict=True))
)
def test_bars_show_the_budget_and_the_value(columns, namespace, tmp_path):
    """Lightning's own TQDM bar has room for one statistic at 80 columns, for both at 120.

    (Below a hundred batches a second, which is not left to the machine's speed.)
    """
    command = [sys.executable, "-m", "support.programs.bars", namespace, str(tmp_path)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    environment = {**clean, "PYTHONPATH": path, "TERM": "xterm-256color"}
    seen = screens(command, columns=columns, env=environment)
    padded = importlib.import_module(f"{namespace}.callbacks.progress.tqdm_progress").Tqdm
    for bar, written in (
        ("TQDMProgressBar", padded.format_num),
        ("RichProgressBar", "{:.3f}".format),
    ):
        own = [screen.split(f"=== {bar}")[1] for screen in seen if f"=== {bar}" in screen]
        rows = list(written_by("csv", tmp_path / bar).values())
        names = ("val_loss", "val_acc") if "Rich" in bar or columns == 120 else ("val_loss",)
        for row in rows if "TQDM" in bar else rows[-1:]:  # Rich draws ten times a second
            pairs = [("left", written(int(row["holdout/budget_left"])))]
            pairs += [(name, written(row[name])) for name in names]
            assert any(shows(screen, *pairs) for screen in own), (bar, pairs, own[-1])


@pytest.mark.parametrize(
    "cut",
    [
        "Epoch 7:  25%|▎| 1/4 [00:00<00:00,  5.20it/s, val_loss=0.859, val_acc=0.625, ho",
        "... 18.23it/s v_num: 1.000\n  val_loss: 0.781\n  holdout/budget_le…\n  32.000",
        "Epoch 11: 100%|█| 4/4 [00:00<00:00, 13.32it/s, left=29, val_loss=0.8",
    ],
)
def test_a_bar_that_is_cut_is_noticed(cut):
    assert not shows(cut, ("left", "32.000"), ("val_loss", "0.781"))
    assert not shows(cut, ("left", "29"), ("val_loss", "0.859"))


def test_the_terminal_follows_a_bar():
    assert list(drawn("one\rtwo!\nthree\x1b[1A\r\x1b[2Kfour", 4))[-1] == "four\nthre"
    assert "one" in next(drawn("one\rtwo", 9))
