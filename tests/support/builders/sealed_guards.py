"""Sealed holdouts, modules whose values are scripted, and raw early stopping to compare with."""

import torch
import torch_holdout as th
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from support.builders.guarded import guard_class, holdout, package, trainer

LEVELS = 65536
EXAMPLES = 12


def account(url="memory://", **changes):
    """A sealed holdout for ``network``: its loss and its accuracy, one run."""
    return holdout(url, **{"mechanism": th.Sealed(evaluations=50), "budget": 1, **changes})


def small_account(url="memory://", **changes):
    """A sealed holdout for ``scripted``."""
    return account(
        url, **{"size": EXAMPLES, "statistics": {"val_loss": th.BoundedMean(0.0, 5.0)}, **changes}
    )


def scripted(namespace, values, name="val_loss"):
    """A module whose value in pass i is ``values[i]``, for every example; its weights move on."""

    class Scripted(package(namespace).LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
            self.register_buffer("unsaved", torch.zeros(()), persistent=False)

        def training_step(self, batch, batch_idx):
            self.steps += 1
            self.unsaved.fill_(self.steps * 0.5)
            return (self.weight + 1.0).square().sum() * 0.5

        def validation_step(self, batch, batch_idx):
            number = len(values) if self.trainer.sanity_checking else int(self.steps)
            value = values[min(max(number, 1), len(values)) - 1]
            return {name: batch[0][:, 0] * 0.0 + value}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Scripted()


def examples(count=EXAMPLES):
    return TensorDataset(torch.arange(float(count))[:, None])


def one_batch():
    """A training loader of one batch: a step an epoch."""
    return DataLoader(examples(4), batch_size=4)


def small_loader():
    return DataLoader(examples(), batch_size=5)


def sealed_fit(folder, values, *, namespace="lightning.pytorch", callbacks=(), **options):
    """Fit a scripted module under a guard; returns the guard, the Trainer, the module, the account.

    ``guard`` among the options has arguments of the guard, ``account`` the holdout, ``fit`` those
    of the fit.
    """
    own = options.pop("account", None) or small_account()
    arguments = {"stop": th.Patience("val_loss", patience=2), **options.pop("guard", {})}
    fitting = options.pop("fit", {})
    guard = guard_class(namespace)(own, **arguments)
    run = trainer(
        [guard, *callbacks],
        namespace,
        **{"max_epochs": len(values), "default_root_dir": folder, **options},
    )
    module = scripted(namespace, values, next(iter(own.statistics)))
    run.fit(module, one_batch(), small_loader(), **fitting)
    return guard, run, module, own


def raw_stopping(namespace, statistic, name, folder, *, each_validation=False, **options):
    """Lightning's EarlyStopping and ModelCheckpoint on the clipped, quantised means, unguarded.

    ``each_validation``: Lightning takes val_check_interval=1 for one validation an epoch.
    """
    pl = package(namespace)
    kept, means = [], []
    at_end = False if each_validation else None

    class Means(pl.Callback):
        def on_validation_epoch_start(self, trainer, pl_module):
            kept.clear()

        def on_validation_batch_end(self, trainer, pl_module, outputs, *_):
            kept.append(outputs[name])

        def on_validation_epoch_end(self, trainer, pl_module):
            if trainer.sanity_checking:
                return
            values = torch.cat(kept).double()
            worse = statistic.high if statistic.mode == "min" else statistic.low
            values = values.nan_to_num(nan=worse, posinf=worse, neginf=worse)
            share = (values.clamp(statistic.low, statistic.high) - statistic.low) / (
                statistic.high - statistic.low
            )
            mean = (share * LEVELS).round().sum() / (LEVELS * len(values))
            value = statistic.low + mean * (statistic.high - statistic.low)
            means.append(float(value))
            trainer.callback_metrics[name] = value

    class Stopping(pl.callbacks.EarlyStopping):
        """EarlyStopping, unchanged; keeps the state of its reference."""

        reference = None

        def _run_early_stopping_check(self, trainer):
            before = self.best_score
            super()._run_early_stopping_check(trainer)
            if self.best_score is not before:
                state = trainer.lightning_module.state_dict()
                self.reference = {key: value.clone() for key, value in state.items()}

    stopper = Stopping(name, mode=statistic.mode, check_on_train_epoch_end=at_end, **options)
    saver = pl.callbacks.ModelCheckpoint(
        folder,
        filename="best",
        monitor=name,
        mode=statistic.mode,
        save_on_train_epoch_end=at_end,
    )
    return [Means(), stopper, saver], means


def same_weights(one, other):
    """Whether two states are the same, bit for bit."""
    return set(one) == set(other) and all(torch.equal(one[key], other[key]) for key in one)
