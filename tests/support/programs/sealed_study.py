"""A worker of a sealed study that can be killed at any moment: TPE and a pruner read a display."""

import time
import warnings

import optuna
import torch
import torch_holdout as th
from torch_holdout.tuning.optuna import sharing

SIZE, STEPS = 97, 3
GRACE = 6  # seconds after which a trial that does not beat is taken for dead


def account(url, budget):
    return th.ReusableHoldout(
        url, name="val", size=SIZE, statistics={"val_acc": th.ZeroOne()},
        mechanism=th.Sealed(evaluations=STEPS), budget=budget,
    )  # fmt: skip


def study_in(storage):
    """The study in a database, whose trials are tried again when their worker dies."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = optuna.storages.RDBStorage(
            storage,
            heartbeat_interval=1,
            grace_period=GRACE,
            heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
        )
        return optuna.create_study(
            study_name="killed",
            storage=kept,
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(n_startup_trials=4),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
        )


def count(x, step):
    """How many of the holdout's examples a trial has right: not what the display shows."""
    return round(SIZE * (0.4 + 0.5 * abs((7 * x) % 1 - 0.5))) + step


def objective(holdout, shown):
    """Return the objective; it writes a line when a trial is in the middle of a step."""

    def run(trial):
        with sharing(trial, holdout, display="display_loss") as shared:
            x = trial.suggest_float("x", 0.0, 1.0)
            for step in range(STEPS):
                sums = holdout.accumulator("val_acc")
                sums.update(torch.arange(SIZE) < count(x, step))
                print(trial.number, step, file=shown)
                shared.evaluate({"val_acc": sums}, query=f"{x} {step}", step=step)
                time.sleep(0.02)
                shared.report((x - 0.3) ** 2 + 0.1 / (step + 1), step)
            return shared.value

    return run


def work(storage, url, budget, log, trials=1000):
    """Run trials until the study stops."""
    with open(log, "a", buffering=1) as shown, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = study_in(storage)
        study.optimize(objective(account(url, budget), shown), n_trials=trials)


def leave(study):
    """Close the connections of a study."""
    study._storage.remove_session()
    study._storage._backend.engine.dispose()
