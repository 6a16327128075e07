"""Careless code around a sealed run: what people write to see, or use, what is not shown.

Each is a module, or a module and callbacks, that runs under a guard with ``stop=``.
"""

import copy
import pickle
import tempfile
from pathlib import Path

import torch
import torch_holdout as th

from training.careless.patterns import register, small

REFUSED, SILENT = [], []
refused = register(REFUSED, "sealed")
silent = register(SILENT, "sealed")

_TEMPORARY = tempfile.gettempdir()


@refused("th.Patience", raises="InvalidArgumentError")
def early_stopping(pl):
    return small(pl)(), [pl.callbacks.EarlyStopping("val_loss", patience=3)]


@refused("best_model_path", raises="InvalidArgumentError")
def best_checkpoint(pl):
    return small(pl)(), [pl.callbacks.ModelCheckpoint(monitor="val_loss", dirpath=_TEMPORARY)]


@refused("best_model_path", raises="InvalidArgumentError")
def value_in_a_files_name(pl):
    saver = pl.callbacks.ModelCheckpoint(_TEMPORARY, filename="{val_loss}", every_n_epochs=2)
    return small(pl)(), [saver]


@refused("CosineAnnealingLR", raises="InvalidArgumentError")
def plateau(pl):
    class Plateau(small(pl)):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"},
            }

    return Plateau()


@refused("val_loss", "is sealed")
def logged_in_the_step(pl):
    class Logged(small(pl)):
        def careless(self, batch, loss):
            self.log("val_loss", loss.mean())

    return Logged()


@refused("val_loss", "is sealed")
def logged_at_the_end(pl):
    class Late(small(pl)):
        def on_validation_epoch_end(self):
            self.log("val_loss", 0.5)

    return Late()


@refused("val_loss", "is sealed")
def logged_in_training(pl):
    class Training(small(pl)):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.log("val_loss", loss)
            return loss

    return Training()


@refused("losses")
def collected_outputs(pl):
    class Collected(small(pl)):
        def careless(self, batch, loss):
            self.losses.append(loss.mean())

        def on_validation_epoch_end(self):
            self.log("val_epoch", torch.stack(self.losses).mean())

    return Collected(losses=[])


@refused("careless")
def best_so_far_by_hand(pl):
    class ByHand(small(pl)):
        def careless(self, batch, loss):
            self.best = min(self.best, float(loss.mean()))

    return ByHand(best=9.0)


@refused("best")
def saves_when_it_was_better(pl):
    class Saving(small(pl)):
        def careless(self, batch, loss):
            if loss.mean() < self.best:
                self.best = loss.mean()
                self.trainer.save_checkpoint(Path(_TEMPORARY) / "careless.ckpt")

    return Saving(best=9.0)


def reading(pl, look):
    """A callback that looks at the guard after each pass and logs what it can turn into numbers."""

    class Reading(pl.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            guard = next(c for c in trainer.callbacks if "HoldoutGuard" in type(c).__name__)
            for number, value in enumerate(look(guard)):
                if isinstance(value, int | float):
                    pl_module.log(f"seen{number}", float(value))
                trainer.logger.log_hyperparams({f"shown{number}": repr(value)})

    return small(pl)(), [Reading()]


@silent()
def reads_public_attributes(pl):
    return reading(pl, lambda guard: [getattr(guard, n) for n in dir(guard) if n[0] != "_"])


@silent()
def reads_the_outcome(pl):
    return reading(pl, lambda guard: [guard.outcome, guard.best_model_path, guard.answers])


@silent()
def reads_the_checkpoints_state(pl):
    return reading(pl, lambda guard: list(guard.state_dict().values()))


@silent()
def reads_the_holdout(pl):
    def look(guard):
        holdout = guard.holdout
        return [holdout.status(), str(holdout.status()), holdout, holdout.budget_left]

    return reading(pl, look)


@silent()
def shows_attributes_of_attributes(pl):
    def look(guard):
        parts = [*vars(guard).values(), *vars(guard._course).values()]
        return [repr(part) for part in parts] + [str(vars(guard._course))]

    return reading(pl, look)


@silent()
def copies_the_guard(pl):
    def look(guard):
        copied, sent = copy.deepcopy(guard), pickle.loads(pickle.dumps(guard.holdout))
        return [repr(vars(each)) for each in (copied, copied._course, sent)]

    return reading(pl, look)


@silent()
def reads_prices(pl):
    def look(guard):
        prices = guard.holdout.prices(stop=guard.stop)
        return [prices, str(prices), prices.said, *(vars(each) for each in prices.open_runs)]

    return reading(pl, look)


@silent()
def reads_the_run_by_its_id(pl):
    def look(guard):
        run = guard.holdout.run(resume=guard.state_dict()["run"])
        return [run, run.outcome, repr(vars(run)), guard.holdout.certificate()]

    return reading(pl, look)


@silent()
def asks_for_the_record_and_the_winner(pl):
    def answer(ask):
        try:
            return ask()
        except th.HoldoutError as error:
            return str(error)

    def look(guard):
        return [answer(guard._course._run.record), answer(guard.holdout.winner)]

    return reading(pl, look)


@silent()
def monitors_the_count(pl):
    return small(pl)(), [pl.callbacks.EarlyStopping("holdout/evaluations", mode="max")]
