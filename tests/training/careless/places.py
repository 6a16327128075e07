"""Values kept elsewhere than in the module's own attributes."""

import contextvars
import copy
import functools
import queue
import threading
from types import SimpleNamespace

import torch
from torch import nn

from training.careless.patterns import register, small, train_loader, val_loader

PATTERNS = []
careless = register(PATTERNS, net="two")
HISTORY = []
STORE = {}
CURRENT = contextvars.ContextVar("current loss", default=None)


@careless("HISTORY")
def global_list(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            HISTORY.append(loss.mean())  # <-

        def later(self):
            return HISTORY[-1]

    HISTORY.clear()
    return Net()


@careless("LATEST")
def global_name(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            global LATEST
            LATEST = loss.mean()  # <-

        def later(self):
            return LATEST

    return Net()


@careless("STORE")
def global_dictionary(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            STORE["val", self.current_epoch] = loss.mean()  # <-

        def later(self):
            return STORE["val", self.current_epoch]

    STORE.clear()
    return Net()


@careless("history")
def class_attribute(pl):
    class Net(small(pl)):
        history = []  # noqa: RUF012

        def careless(self, batch, loss):
            self.history.append(loss.mean())  # <-

        def later(self):
            return self.history[-1]

    return Net()


@careless("latest")
def attribute_of_the_class(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            type(self).latest = loss.mean()  # <-

        def later(self):
            return self.latest

    return Net()


@careless("remembered")
def closure_list(pl):
    remembered = []

    class Net(small(pl)):
        def careless(self, batch, loss):
            remembered.append(loss.mean())  # <-

        def later(self):
            return remembered[-1]

    return Net()


@careless("remembered")
def closure_name(pl):
    remembered = None

    class Net(small(pl)):
        def careless(self, batch, loss):
            nonlocal remembered
            remembered = loss.mean()  # <-

        def later(self):
            return remembered

    return Net()


@careless("careless")
def default_argument(pl):
    class Net(small(pl)):
        def careless(self, batch, loss, seen=[]):  # noqa: B006
            seen.append(loss.mean())  # <-
            self.count = len(seen)

        def later(self):
            return self.careless.__func__.__defaults__[0][-1]

    return Net()


@careless("calls")
def function_attribute(pl):
    def remember(value):
        remember.calls = value

    class Net(small(pl)):
        def careless(self, batch, loss):
            remember(loss.mean())  # <-

        def later(self):
            return remember.calls

    return Net()


@careless("tracker")
def helper_object(pl):
    class Tracker:
        def __init__(self):
            self.total, self.count = 0.0, 0

        def add(self, value):
            self.total, self.count = self.total + value, self.count + 1

    class Net(small(pl)):
        def on_validation_epoch_start(self):
            self.tracker = Tracker()

        def careless(self, batch, loss):
            self.tracker.add(loss.mean())

        def later(self):
            return self.tracker.total / self.tracker.count

    return Net()


@careless("value")
def helper_with_slots(pl):
    class Slot:
        __slots__ = ("value",)

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.slot.value = loss.mean()  # <-

        def later(self):
            return self.slot.value

    return Net(slot=Slot())


@careless("state")
def three_levels_deep(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.state.meters["val"].history.append({"loss": loss.mean()})  # <-

        def later(self):
            return self.state.meters["val"].history[-1]["loss"]

    return Net(state=SimpleNamespace(meters={"val": SimpleNamespace(history=[])}))


@careless("loss_of_last_call")
def submodule(pl):
    class Loss(nn.Module):
        def forward(self, value):
            self.loss_of_last_call = value.mean()  # <-
            return value

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.criterion(loss)

        def later(self):
            return self.criterion.loss_of_last_call

    return Net(criterion=Loss())


@careless("activation")
def submodule_keeping_activations(pl):
    class Block(nn.Linear):
        def forward(self, x):
            if not self.training:
                self.activation = x.mean()  # <-
            return super().forward(x)

    class Net(small(pl)):
        def later(self):
            return self.layer.activation

    net = Net()
    net.layer = Block(4, 1)
    return net


@careless("activations")
def forward_hook(pl):
    class Net(small(pl)):
        def __init__(self):
            super().__init__(activations=[])
            self.layer.register_forward_hook(self.keep)

        def keep(self, module, inputs, output):
            if not self.training:
                self.activations.append(inputs[0].mean())  # <-

        def later(self):
            return self.activations[-1]

    return Net()


@careless("captured")
def forward_hook_with_a_closure(pl):
    net = small(pl)()
    captured = {}

    def capture(module, inputs, output):
        if not module.training:
            captured["layer"] = inputs[0].mean()  # <-

    net.layer.register_forward_hook(capture)
    net.later = lambda: captured["layer"]
    return net


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


@careless("problem")
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


@careless("delayed")
def partial_for_later(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.delayed = functools.partial(torch.mul, loss.mean())  # <-

        def later(self):
            return self.delayed(1.0)

    return Net()
