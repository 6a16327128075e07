"""Callbacks that compute on the holdout's batch, and keep or write what they find."""

import torch

from training.careless.patterns import folder, register, small, train_loader, val_loader

PATTERNS = []
careless = register(PATTERNS, net="two")


@careless("predictions")
def prediction_writer(pl):
    class PredictionWriter(pl.Callback):
        def __init__(self):
            self.predictions = []

        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
            self.predictions.append(pl_module.loss(batch))

        def on_train_epoch_end(self, trainer, pl_module):
            self.log("late", torch.cat(self.predictions[-2:]).mean())

    return small(pl)(), [PredictionWriter()]


@careless("images")
def image_logger(pl):
    class ImageLogger(pl.Callback):
        images = None

        def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, *_):
            if batch_idx == 0:
                self.images = batch[0][:2]  # <-

        def on_train_epoch_end(self, trainer, pl_module):
            self.log("late", self.images[0, 0])

    return small(pl)(), [ImageLogger()]


@careless("matrix", leaks=False)
def confusion_callback(pl):
    class Confusion(pl.Callback):
        def __init__(self):
            self.matrix = torch.zeros(2, 2)

        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
            right = pl_module(batch[0]) > 0
            self.matrix[0, 1] += right.sum()  # <-

    return small(pl)(), [Confusion()]


@careless()
def best_batch_callback(pl):
    class Best(pl.Callback):
        best = 9.0

        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
            loss = pl_module.loss(batch).mean().item()  # <-
            self.best = min(self.best, loss)

        def on_train_epoch_end(self, trainer, pl_module):
            self.log("late", self.best)

    return small(pl)(), [Best()]


@careless()
def logger_in_a_callback(pl):
    class Writes(pl.Callback):
        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
            loss = pl_module.loss(batch)
            trainer.logger.log_metrics({"mean": loss.mean().item()}, trainer.global_step)  # <-

    return small(pl)(), [Writes()]


@careless(leaks=False)
def file_in_a_callback(pl):
    class Writes(pl.Callback):
        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, *_):
            path = folder(pl_module) / f"{batch_idx}.pt"
            torch.save(batch, path)  # <-

    return small(pl)(), [Writes()]


@careless("last_mean")
def attribute_of_the_module(pl):
    class Puts(pl.Callback):
        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
            pl_module.last_mean = pl_module.loss(batch).mean()  # <-

    class Net(small(pl)):
        def later(self):
            return self.last_mean

    return Net(), [Puts()]


@careless("from_callback")
def callback_metrics_of_a_callback(pl):
    class Puts(pl.Callback):
        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
            trainer.callback_metrics["from_callback"] = pl_module.loss(batch).mean()

    return small(pl)(), [Puts()]


@careless("seen")
def hook_of_the_module(pl):
    class Net(small(pl)):
        def on_validation_batch_end(self, outputs, batch, batch_idx, dataloader_idx=0):
            self.seen.append(batch[1].mean())  # <-

        def later(self):
            return self.seen[-1]

    return Net(seen=[])


@careless("first")
def batch_start_hook_of_the_module(pl):
    class Net(small(pl)):
        def on_validation_batch_start(self, batch, batch_idx, dataloader_idx=0):
            self.first = batch[1].sum()  # <-

        def later(self):
            return self.first

    return Net()


@careless("moved")
def transfer_hook(pl):
    class Net(small(pl)):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            if not self.training:
                self.moved = batch[1]
            return batch

        def later(self):
            return self.moved.mean()

    return Net()


@careless("moved")
def transfer_hook_of_the_datamodule(pl):
    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return train_loader()

        def val_dataloader(self):
            return val_loader()

        def on_after_batch_transfer(self, batch, dataloader_idx):
            if not self.trainer.training:
                self.moved = batch[1]
            return batch

    class Net(small(pl)):
        data_module = Data()

        def later(self):
            return self.trainer.datamodule.moved.mean()

    return Net()


@careless("kept", run="test", leaks=False)
def kept_in_a_test(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = loss.mean()  # <-

    return Net()


@careless(run="test", leaks=False)
def read_in_a_test(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            print(loss.mean().item())  # <-

    return Net()


@careless("kept", run="validate", leaks=False)
def kept_in_validate_alone(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = loss.mean()  # <-

    return Net()


@careless("kept", leaks=False)
def kept_in_a_holdout_step(pl):
    class Net(small(pl)):
        def holdout_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.kept = loss.mean()  # <-
            return {"val_loss": loss}

    return Net()


@careless("extra")
def returned_and_kept(pl):
    class Net(small(pl)):
        def validation_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.extra = {"val_loss": loss}
            return self.extra

        def later(self):
            return self.extra["val_loss"].mean()

    return Net()


@careless("kept")
def logged_at_the_start_of_training(pl):
    class Net(small(pl)):
        kept = None

        def careless(self, batch, loss):
            self.kept = loss.mean()  # <-

        def on_train_epoch_start(self):
            if self.kept is not None:
                self.log("late", self.kept)

    return Net()


@careless("kept")
def logged_in_the_training_step(pl):
    class Net(small(pl)):
        kept = None

        def careless(self, batch, loss):
            self.kept = loss.mean()  # <-

        def training_step(self, batch, batch_idx):
            if self.kept is not None:
                self.log("late", self.kept)
            return super().training_step(batch, batch_idx)

    return Net()


@careless("kept")
def saved_in_a_checkpoint(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.kept = loss.mean()  # <-

        def on_save_checkpoint(self, checkpoint):
            checkpoint["kept"] = self.kept

    return Net()
