"""Trials on a sealed holdout whose study reads a display, and what the raw values were."""

import warnings

import optuna
import torch
import torch_holdout as th
from torch_holdout.tuning.optuna import sharing

from support.builders.guarded import (
    data,
    guard_class,
    holdout,
    loader,
    network,
    package,
    per_example,
    trainer,
    value_on,
)

NAMESPACE = "lightning.pytorch"


def sweep_account(url="memory://", trials=8, **changes):
    """A sealed holdout for ``network``: its loss and its accuracy, one run for each trial."""
    return holdout(url, **{"mechanism": th.Sealed(evaluations=5), "budget": trials, **changes})


def quiet(sampler=None, storage=None, **options):
    """A study that says nothing, of a loss unless ``directions`` are given."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    arguments = {"study_name": "s", "load_if_exists": True, "storage": storage, **options}
    sampler = sampler or optuna.samplers.TPESampler(seed=0, n_startup_trials=3)
    return optuna.create_study(sampler=sampler, **arguments)


def display_net(rate, namespace=NAMESPACE, log=("display_loss",)):
    """A network that returns values for the holdout, loader 0, and logs those of the display."""

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        values = per_example(self, batch)
        if dataloader_idx == 0:
            return values
        for name in log:
            own = values[name.replace("display", "val")].double().mean()
            self.log(name, own, add_dataloader_idx=False)
        return None

    return network(
        namespace,
        configure_optimizers=lambda self: torch.optim.SGD(self.parameters(), lr=rate),
        validation_step=validation_step,
    )


def recorder(namespace, found, number):
    """A callback that writes down what the holdout's values are: the test's own, by hand."""

    class Recorder(package(namespace).Callback):
        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                found.setdefault(number, []).append(value_on(pl_module, data()))

    return Recorder()


def fit_with_display(run, net, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run.fit(net, loader(drop_last=True), [loader(), loader(data(60, seed=5))], **options)


def display_objective(account, folder, raw, *, epochs=3, namespace=NAMESPACE, **options):
    """An objective: a fit whose display is read by the study. ``callbacks(guard)`` adds others."""
    more = options.pop("callbacks", lambda guard: [])
    arguments = options.pop("guard", {})
    log = options.pop("log", ("display_loss",))
    shows = options.pop("display", log if len(log) > 1 else log[0])

    def objective(trial):
        with sharing(trial, account, "val_acc", display=shows) as shared:
            rate = trial.suggest_float("lr", 1e-3, 1.0, log=True)
            torch.manual_seed(trial.number)
            own = guard_class(namespace)(
                account, prog_bar=False, public_dataloaders=(1,), **arguments
            )
            callbacks = [
                own, shared.pruning(own), recorder(namespace, raw, trial.number), *more(own)
            ]  # fmt: skip
            run = trainer(
                callbacks, namespace, max_epochs=epochs, default_root_dir=folder, **options
            )
            fit_with_display(run, display_net(rate, namespace, log))
            return shared.values if len(log) > 1 else shared.value

    return objective


def best_of(raw, name="val_acc"):
    """The best raw value of each trial, by hand."""
    better = max if name == "val_acc" else min
    return {str(number): better(each[name] for each in curve) for number, curve in raw.items()}


def counted_sums(account, count, name="val_acc"):
    """Sealed sums of an accuracy: so many are right."""
    sums = account.accumulator(name)
    sums.update((torch.arange(account.size) < count).double())
    return {name: sums}


def plain_objective(account, *, steps=2, display="display_loss", values=None, reaches=None):
    """A plain loop: trial n has ``values(n, step)`` examples right."""
    values = values or (lambda number, step: (17 * number + 5 * step) % account.size)

    def objective(trial):
        with sharing(trial, account, "val_acc", display=display) as shared:
            x = trial.suggest_float("x", 0.0, 1.0)
            for step in range(steps):
                sums = counted_sums(account, values(trial.number, step))
                shared.evaluate(sums, query=f"{trial.number} {step}", step=step)
                if reaches is not None:
                    reaches(trial, step)
                if display is not None:
                    shared.report((x - 0.3) ** 2 + 0.1 / (step + 1), step)
            return shared.value

    return objective
