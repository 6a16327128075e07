"""Trials for the sweeps' tests, in this process or in workers."""

import warnings

import optuna
import torch
import torch_holdout as th
from torch_holdout.tuning.optuna import sharing

from support.builders.guarded import guard_class, holdout, loader, network, per_example, trainer
from support.builders.holdouts import correct, sums_of

EVERYTHING = th.LaplaceMechanism(epsilon=20.0)  # releases every query
ACCURACY = {"val_acc": th.BoundedMean(0.0, 1.0, mode="max")}


def quiet_study(storage=None, direction="maximize", **options):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(
        storage=storage, direction=direction, study_name="s", load_if_exists=True, **options
    )


def lightning_objective(account, namespace="lightning.pytorch", epochs=3, guard=None, **options):
    """Train a small network with a guard and the pruning callback."""

    def objective(trial):
        with sharing(trial, account, "val_acc", every=True) as shared:
            rate = trial.suggest_float("lr", 1e-3, 1.0, log=True)
            torch.manual_seed(trial.number)
            net = network(
                namespace,
                configure_optimizers=lambda self: torch.optim.SGD(self.parameters(), lr=rate),
                validation_step=lambda self, batch, _: asked_of(account, per_example(self, batch)),
            )
            own = guard_class(namespace)(account, prog_bar=False, **(guard or {}))
            callbacks = [own, shared.pruning(own)]
            fit_loosely(trainer(callbacks, namespace, max_epochs=epochs, **options), net)
            return shared.value

    return objective


def fit_loosely(run, net):
    """Fit; the warning that values are stale, which a sweep meets by right, is no error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run.fit(net, loader(drop_last=True), loader())


def asked_of(account, values):
    return {name: values[name] for name in account.statistics}


def counted_objective(account, *, steps=3):
    """A plain loop that answers for made-up predictions: a different count at every step."""

    def objective(trial):
        with sharing(trial, account, "val_acc", every=True) as shared:
            trial.suggest_float("x", 0.0, 1.0)
            for step in range(steps):
                count = (7 * trial.number + 11 * step) % account.size
                sums = sums_of(account, correct(count, account.size))
                answer = account.release("val_acc", sums, query=f"{trial.number}-{step}")
                shared.report(answer, step)
            return shared.value

    return objective


def optuna_worker(storage, url, trials, ready, results):
    """One worker process of a study; says how its loop ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        account = shared_account(url)
        study = quiet_study(storage)
        ready.wait(timeout=200)
        try:
            study.optimize(lightning_objective(account, epochs=2), n_trials=trials)
        except Exception as error:  # the test must hear of it
            results.put(repr(error))
        else:
            results.put("ended")


def shared_account(url, budget=5, mechanism=EVERYTHING):
    return holdout(url, budget=budget, mechanism=mechanism, statistics=ACCURACY)
