"""Ray Tune trials that share one holdout. What Optuna and Ray share is in ``tuning/``.

A sealed sweep: searchers and schedulers read a *display*, a set that may be watched; the holdout is
evaluated beside it and shows nothing until it is closed::

    def train(config, holdout):
        guard = HoldoutGuard(holdout, public_dataloaders=(1,))
        trainer = L.Trainer(callbacks=[guard, reporting(guard)])
        trainer.fit(Net(config["lr"]), train_loader, [sealed_loader, display_loader])

    tuner = tune.Tuner(sharing(train, holdout, display="display_acc"), param_space=...,
        tune_config=tune.TuneConfig(metric="display_acc", mode="max", scheduler=ASHAScheduler()))
    results = tuner.fit()
    holdout.close()
    print(claim(results, holdout, "val_acc"))
    grid = closed_results(results, holdout, "val_acc")  # an ordinary ResultGrid

Each trial is one run of the account, which a trial that is killed, paused, tried again or restored
goes on with; population based training hands over weights, not runs. A trial that a scheduler stops
leaves its run open, which closing counts like any other. Without a display nothing is shown to
Tune, and only what does not react can search: grid and random sampling, without a scheduler.

On a live holdout schedulers and searchers read what it published and nothing else: released values,
guesses that are near the holdout's value, and a Ladder's guess worsened by one step. A stale value
is never reported: when the budget is gone a trial ends, with what it has reported so far, and
trials that come later end before they train.

The holdout goes to the workers as a handle to the same account, whose ledger is addressed by an
absolute path (Ray gives each trial a working directory of its own). Workers on other machines need
a ledger that they reach: SQLite is for one machine.
"""

from torch_holdout.tuning.claims import Claim, reask
from torch_holdout.tuning.sealed_claims import FrontPoint

try:
    from ray import tune as tune
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "torch_holdout.tuning.ray needs Ray Tune: pip install 'torch-holdout[ray]'"
    ) from error

from torch_holdout.tuning.ray.claims import claim, closed_results, front, ranking
from torch_holdout.tuning.ray.sweeps import report, reporting, sharing

__all__ = [
    "Claim",
    "FrontPoint",
    "claim",
    "closed_results",
    "front",
    "ranking",
    "reask",
    "report",
    "reporting",
    "sharing",
]
