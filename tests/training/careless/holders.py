"""Values kept by objects that are not the user's: Trainer, data, queues, caches, frames."""

import contextvars
import copy
import functools
import queue
import threading

import torch

from training.careless.patterns import register, small, train_loader, val_loader

PATTERNS = []
careless = register(PATTERNS, net="two")
CURRENT = contextvars.ContextVar("current loss", default=None)


@careless("last_loss")
def on_the_trainer(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.trainer.last_loss = loss.mean()  # <-

        def later(self):
            return self.trainer.last_loss

    return Net()


@careless("callback_metrics")
def in_callback_metrics(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.trainer.callback_metrics["mean"] = loss.mean()  # <-

    return Net()


@careless("logged_metrics")
def in_logged_metrics(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.trainer.logged_metrics.update(mean=loss.mean())  # <-

    return Net()


@careless("difficult")
def on_the_dataset(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.trainer.train_dataloader.dataset.difficult = loss.mean()  # <-

        def later(self):
            return self.trainer.train_dataloader.dataset.difficult

        def on_fit_start(self):
            self.trainer.fit_loop.setup_data()

    return Net()


@careless("difficult")
def on_the_datamodule(pl):
    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return train_loader()

        def val_dataloader(self):
            return val_loader()

    class Net(small(pl)):
        data_module = Data()

        def careless(self, batch, loss):
            self.trainer.datamodule.difficult = loss.mean()  # <-

        def later(self):
            return self.trainer.datamodule.difficult

    return Net()


@careless("hparams")
def hyperparameters(pl):
    class Net(small(pl)):
        def __init__(self, width=4):
            super().__init__()
            self.save_hyperparameters()

        def careless(self, batch, loss):
            self.hparams["last"] = loss.mean()  # <-

        def later(self):
            return self.hparams["last"]

    return Net()


@careless("hidden")
def instance_dictionary(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.__dict__["hidden"] = loss.mean()  # <-

        def later(self):
            return self.hidden

    return Net()


@careless("features", leaks=False)
def cached_by_lru_cache(pl):
    @functools.lru_cache(maxsize=8)
    def features(y):
        return y.mean()  # <-

    class Net(small(pl)):
        def careless(self, batch, loss):
            features(batch[1])

    return Net()


@careless("queue")
def queue_for_a_thread(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.queue.put(loss.mean())  # <-

        def later(self):
            return self.queue.queue[-1]

    return Net(queue=queue.Queue())


@careless("local")
def thread_local(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.local.mean = loss.mean()  # <-

        def later(self):
            return self.local.mean

    return Net(local=threading.local())


@careless()
def context_variable(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            CURRENT.set(loss.mean())  # <-

        def later(self):
            return CURRENT.get()

    return Net()


@careless()
def generator_that_waits(pl):
    def averager():
        value = None
        while True:
            got = yield value
            value = got.mean()  # <-

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.averager.send(loss)

        def later(self):
            return self.averager.gi_frame.f_locals["value"]

    net = Net(averager=averager())
    next(net.averager)
    return net


@careless("TooLargeError")
def exception_with_a_value(pl):
    class TooLargeError(Exception):
        pass

    class Net(small(pl)):
        def careless(self, batch, loss):
            try:
                raise TooLargeError(loss.mean())  # <-
            except TooLargeError as error:
                self.problem = error

        def later(self):
            return self.problem.args[0]

    return Net()


@careless("copied")
def deep_copy(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.copied = copy.deepcopy(loss)  # <-

        def later(self):
            return self.copied.mean()

    return Net()


@careless("partial")
def partial_for_later(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.delayed = functools.partial(torch.mul, loss.mean())  # <-

        def later(self):
            return self.delayed(1.0)

    return Net()
