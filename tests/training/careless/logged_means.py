"""Careless code around a module that logs its means and is guarded by ``LoggedMean``.

``REFUSED`` would let something out; ``SILENT`` looks everywhere and finds nothing raw.
"""

import functools

from torchmetrics import MeanMetric

from training.careless.patterns import folder, register, small

REFUSED, SILENT = [], []
refused = register(REFUSED, net="logged")
silent = register(SILENT, net="logged")


def logging(pl):
    """A module that logs its batches' mean, and may do more with it."""

    class Logging(small(pl)):
        def validation_step(self, batch, batch_idx):
            loss = self.loss(batch).mean()
            self.log("val_loss", loss, on_step=True, on_epoch=True, prog_bar=True, logger=True)
            self.careless(batch, loss)
            return loss

    return Logging


@refused("'mean'", "validation_step")
def another_key_too(pl):
    class Net(logging(pl)):
        def careless(self, batch, loss):
            self.log("mean", loss)

    return Net()


@refused("'mean'", "validation_step")
def another_key_of_super(pl):
    class Net(logging(pl)):
        def careless(self, batch, loss):
            super().log("mean", loss, on_step=True)

    return Net()


@refused("twice", raises="InvalidArgumentError", leaks=False)
def the_same_key_twice(pl):
    class Net(logging(pl)):
        def careless(self, batch, loss):
            super().log("val_loss", loss)

    return Net()


@refused("losses")
def a_list_beside_the_log(pl):
    class Net(logging(pl)):
        def careless(self, batch, loss):
            self.losses.append(loss)

        def later(self):
            return sum(self.losses) / len(self.losses)

    return Net(losses=[])


@refused("item()")
def a_read_beside_the_log(pl):
    class Net(logging(pl)):
        def careless(self, batch, loss):
            self.latest = loss.item()  # <-

        def later(self):
            return self.latest

    return Net()


@refused("'val_loss'", "on_validation_batch_end")
def a_callback_logs_the_name(pl):
    class Logs(pl.Callback):
        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
            pl_module.log("val_loss", batch[1].mean())

    return logging(pl)(), [Logs()]


@refused("'val_loss'", "on_validation_batch_start")
def a_hook_logs_the_name_before_the_step(pl):
    class Net(logging(pl)):
        def on_validation_batch_start(self, batch, batch_idx):
            self.log("val_loss", batch[1].mean())

    return Net()


@refused("Net.spare")
def a_metric_that_is_not_logged(pl):
    class Net(logging(pl)):
        def careless(self, batch, loss):
            self.spare.update(loss)

        def later(self):
            return self.spare.compute()

    return Net(spare=MeanMetric())


@refused("latest")
def a_metrics_batch_value_that_is_kept(pl):
    class Net(small(pl)):
        def validation_step(self, batch, batch_idx):
            self.latest = self.mean(self.loss(batch).mean())  # <-
            self.log("val_loss", self.mean)

        def later(self):
            return self.latest

    return Net(mean=MeanMetric())


@refused("'val_loss'", "max", raises="InvalidArgumentError")
def another_reduction(pl):
    class Net(small(pl)):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.loss(batch).mean(), reduce_fx="max")

    return Net()


# ---- what finds nothing


@silent("logged")
def every_option(pl):
    return logging(pl)()


@silent("super")
def log_of_super(pl):
    class Net(small(pl)):
        def validation_step(self, batch, batch_idx):
            super().log("val_loss", self.loss(batch).mean(), on_step=True, prog_bar=True)

    return Net()


@silent("partial")
def partial_log(pl):
    class Net(small(pl)):
        def __init__(self):
            super().__init__()
            self.write = functools.partial(self.log, on_step=True, on_epoch=True)

        def validation_step(self, batch, batch_idx):
            self.write("val_loss", self.loss(batch).mean())

    return Net()


@silent("dictionary")
def log_dict(pl):
    class Net(small(pl)):
        def validation_step(self, batch, batch_idx):
            self.log_dict({"val_loss": self.loss(batch).mean()}, on_step=True, prog_bar=True)

    return Net()


@silent("metric")
def a_metric_that_is_computed_when_the_epoch_ends(pl):
    class Net(small(pl)):
        def validation_step(self, batch, batch_idx):
            self.mean.update(self.loss(batch).mean())
            self.log("val_loss", self.mean, on_step=True, on_epoch=True)

        def on_validation_epoch_end(self):
            self.seen = float(self.mean.compute())
            (folder(self) / "seen.txt").write_text(str(self.seen))

        def later(self):
            return self.seen

    return Net(mean=MeanMetric())


@silent("callback_metrics")
def a_hook_that_reads_the_published_value(pl):
    class Net(logging(pl)):
        def on_validation_epoch_end(self):
            metrics = {**self.trainer.callback_metrics, **self.trainer.logged_metrics}
            self.seen = {key: float(value) for key, value in metrics.items()}

        def later(self):
            return self.seen.get("val_loss", 0.0)

    return Net()


@silent("hooks")
def hooks_that_look_everywhere(pl):
    class Looks(pl.Callback):
        def __init__(self):
            self.seen = []

        def on_validation_batch_end(self, trainer, pl_module, outputs, *_):
            found = {**trainer.callback_metrics, **trainer.progress_bar_metrics}
            self.seen.append([outputs, {key: float(value) for key, value in found.items()}])
            self.seen.append([str(each.value) for each in trainer._results.values()])

        def on_train_epoch_end(self, trainer, pl_module):
            for logger in trainer.loggers:
                logger.log_hyperparams({"seen": str(self.seen)})

    return logging(pl)(), [Looks()]
