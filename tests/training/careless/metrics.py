"""Metrics of one's own that are updated with the holdout's batch."""

import copy
from collections import defaultdict
from types import SimpleNamespace

import torch
from torch import nn
from torchmetrics import MeanMetric, MetricCollection, MetricTracker, SumMetric
from torchmetrics.aggregation import CatMetric
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC
from torchmetrics.regression import MeanAbsoluteError

from training.careless.patterns import register, small

PATTERNS = []
careless = register(PATTERNS, net="two")
GLOBAL = MeanMetric()


def metric(*names, make, update=None, value=None, **options):
    """Register a pattern: a module that holds ``make()`` as ``mean`` and updates it."""

    def add(name):
        def build(pl):
            class Net(small(pl)):
                def careless(self, batch, loss):
                    (update or default)(self.mean, batch, loss)

                def later(self):
                    return (value or (lambda mean: mean.compute()))(self.mean)

            return Net(mean=make())

        build.__name__ = name
        careless(*names, **options)(build)

    def default(mean, batch, loss):
        mean.update(loss)

    return add


metric("mean", make=MeanMetric)("updated")
metric("mean", make=MeanMetric, update=lambda mean, batch, loss: mean(loss))("called")
metric("mean", make=SumMetric, value=lambda mean: mean.compute() / 2)("summed")
metric("mean", make=CatMetric, value=lambda mean: mean.compute()[-8:].mean())("concatenated")
metric("mean", make=MeanMetric, update=lambda mean, batch, loss: mean.forward(loss.mean()))(
    "forward_of_a_mean"
)
metric(
    "mean",
    make=lambda: {"val": {"loss": [MeanMetric()]}},
    update=lambda mean, batch, loss: mean["val"]["loss"][0].update(loss),
    value=lambda mean: mean["val"]["loss"][0].compute(),
)("three_levels_deep_in_containers")
metric(
    "mean",
    make=lambda: SimpleNamespace(inner=SimpleNamespace(loss=MeanMetric())),
    update=lambda mean, batch, loss: mean.inner.loss.update(loss),
    value=lambda mean: mean.inner.loss.compute(),
)("in_a_helper_object")
metric(
    "mean",
    make=lambda: {MeanMetric()},
    update=lambda mean, batch, loss: [each.update(loss) for each in mean],
    value=lambda mean: next(iter(mean)).compute(),
)("in_a_set")
metric(
    "mean",
    make=lambda: nn.ModuleDict({"val": nn.ModuleList([MeanMetric()])}),
    update=lambda mean, batch, loss: mean["val"][0].update(loss),
    value=lambda mean: mean["val"][0].compute(),
)("in_a_module_dictionary")
metric(
    "mean",
    make=lambda: MetricCollection({"mae": MeanAbsoluteError(), "again": MeanAbsoluteError()}),
    update=lambda mean, batch, loss: mean.update(loss, torch.zeros_like(loss)),
    value=lambda mean: mean.compute()["mae"],
)("collection")
metric(
    "mean",
    make=BinaryAccuracy,
    update=lambda mean, batch, loss: mean.update(loss, (batch[1] > 0.5).int()),
    leaks=False,
)("accuracy")
metric(
    "mean",
    make=BinaryAUROC,
    update=lambda mean, batch, loss: mean.update(loss, (batch[1] > 0.5).int()),
    leaks=False,
)("area_under_the_curve")
metric(
    "mean",
    make=lambda: copy.deepcopy(MeanMetric(nan_strategy="disable")),
)("without_nan_checks")


@careless("mean")
def logged_as_an_object(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.mean.update(loss)
            super().log("mean", self.mean)

    return Net(mean=MeanMetric())


@careless("mean")
def shared_and_reset(pl):
    class Net(small(pl)):
        def training_step(self, batch, batch_idx):
            if self.trainer.current_epoch:
                super().log("late", self.mean.compute())
            for _ in range(5):
                self.mean.update(0.5)
            return super().training_step(batch, batch_idx)

        def on_validation_epoch_start(self):
            self.mean.reset()

        def careless(self, batch, loss):
            self.mean.update(loss)

    return Net(mean=MeanMetric())


@careless("MeanMetric")
def tracker(pl):
    class Net(small(pl)):
        def on_validation_epoch_start(self):
            self.tracker.increment()

        def careless(self, batch, loss):
            self.tracker.update(loss)  # <-

        def later(self):
            return self.tracker.compute()

    return Net(tracker=MetricTracker(MeanMetric(), maximize=False))


@careless("MeanMetric")
def default_dictionary(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.by_loader["val"].update(loss)  # <-

        def later(self):
            return self.by_loader["val"].compute()

    return Net(by_loader=defaultdict(MeanMetric))


@careless("MeanMetric")
def made_for_each_epoch(pl):
    class Net(small(pl)):
        def on_validation_epoch_start(self):
            self.of_this_epoch = MeanMetric()

        def careless(self, batch, loss):
            self.of_this_epoch.update(loss)  # <-

        def later(self):
            return self.of_this_epoch.compute()

    return Net()


@careless("MeanMetric")
def global_metric(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            GLOBAL.update(loss)  # <-

        def later(self):
            return GLOBAL.compute()

    GLOBAL.reset()
    return Net()


@careless("mean")
def class_attribute(pl):
    class Net(small(pl)):
        mean = MeanMetric()

        def careless(self, batch, loss):
            self.mean.update(loss)

        def later(self):
            return self.mean.compute()

    return Net()


@careless("mean")
def closure(pl):
    mean = MeanMetric()

    class Net(small(pl)):
        def careless(self, batch, loss):
            mean.update(loss)

        def later(self):
            return mean.compute()

    return Net()


@careless("Keeps")
def in_a_callback(pl):
    class Keeps(pl.Callback):
        def __init__(self):
            self.state = SimpleNamespace(mean=MeanMetric())

        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
            self.state.mean.update(pl_module.loss(batch))

        def on_train_epoch_end(self, trainer, pl_module):
            self.log("late", self.state.mean.compute())

    return small(pl)(), [Keeps()]


@careless("AverageMeter")
def own_meter(pl):
    class AverageMeter:
        def __init__(self):
            self.sum, self.count = 0, 0

        def update(self, value, n):
            self.sum += value * n
            self.count += n

        @property
        def average(self):
            return self.sum / self.count

    class Net(small(pl)):
        def careless(self, batch, loss):
            self.meter.update(loss.mean(), len(loss))

        def later(self):
            return self.meter.average

    return Net(meter=AverageMeter())


@careless("mean", run="test", leaks=False)
def in_a_test(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            self.mean.update(loss)

    return Net(mean=MeanMetric())
