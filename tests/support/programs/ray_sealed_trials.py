"""Trials on a sealed account that Ray's workers run in the tests; importable there by name."""

import json
import os
import signal
import tempfile
import time
from pathlib import Path

import torch
import torch_holdout as th
from ray import tune
from torch_holdout.tuning.ray import report, sharing

SIZE = 120
EPOCHS = 3


def sealed_sweep_account(url, budget, **changes):
    arguments = {
        "name": "val",
        "size": SIZE,
        "statistics": {
            "val_acc": th.ZeroOne(),
            "val_loss": th.BoundedMean(0.0, 5.0),
        },
        "mechanism": th.Sealed(evaluations=EPOCHS),
        "budget": budget,
    }
    return th.ReusableHoldout(url, **{**arguments, **changes})


def correct_of(x, epoch):
    """How many examples a trial's model has right: another number for each trial and epoch."""
    return 40 + 11 * x - 4 * (epoch - 1) ** 2


def display_of(x, epoch):
    return 10.0 * x + epoch


def loss_of(x, epoch):
    """A loss whose digits are nowhere else: whatever has them is a leak."""
    return 4.1372951 - 0.3712937 * x + 0.0513713 * epoch


def sums_of_trial(holdout, x, epoch):
    sums = {name: holdout.accumulator(name) for name in ("val_acc", "val_loss")}
    sums["val_acc"].update(torch.arange(holdout.size) < correct_of(x, epoch))
    sums["val_loss"].update(torch.full((holdout.size,), loss_of(x, epoch), dtype=torch.float64))
    return sums


def plain_trial(config, holdout):
    """Evaluate scripted models, report a display, and go on from a checkpoint.

    ``kill`` has the epochs at which the process is killed once, after the evaluation and before the
    report; ``EPOCHS``: after the run has ended. ``quiet``: nothing is displayed. ``bare``: no
    checkpoint is reported.
    """
    x, start = config["x"], 0
    before = tune.get_checkpoint()
    if before is not None:
        with before.as_directory() as folder:
            start = json.loads((Path(folder) / "model.json").read_text())["epoch"] + 1
    with holdout.run() as run:
        for epoch in range(start, config.get("epochs", EPOCHS)):
            sums = sums_of_trial(holdout, x, epoch)
            run.evaluate(sums, query=f"{x} {epoch}", step=f"epoch {epoch}")
            if "pace" in config:
                wait_for(config["pace"], epoch)
            die_at(config, epoch)
            shown = {} if config.get("quiet") else {"display_acc": display_of(x, epoch)}
            if config.get("bare"):
                report(shown)
                continue
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "model.json").write_text(json.dumps({"x": x, "epoch": epoch}))
                report(shown, tune.Checkpoint.from_directory(folder))
    die_at(config, EPOCHS)


def die_at(config, epoch):
    """Kill the process, the first time that this trial is there."""
    place = f"{config['x']} {epoch}"
    if epoch in config.get("kill", ()) and first_time(config["marks"], place):
        os.kill(os.getpid(), signal.SIGKILL)


def first_time(folder, name):
    """Whether nobody has been here with this name; remembered in a file."""
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def wait_for(folder, epoch):
    """Say that an epoch was evaluated; wait at the last one until the driver was killed."""
    (Path(folder) / f"{os.getpid()} {epoch}").touch()
    while epoch == EPOCHS - 1 and not (Path(folder) / "go").exists():
        time.sleep(0.05)


def drive(url, folder, marks):
    """Run a sweep of two trials that show nothing, as the driver that is going to be killed."""
    trainable = sharing(plain_trial, sealed_sweep_account(url, budget=2))
    space = {"x": tune.grid_search([1, 2]), "quiet": True, "pace": marks}
    run = tune.RunConfig(storage_path=folder, name="sweep", verbose=0)
    tune.Tuner(trainable, param_space=space, run_config=run).fit()
