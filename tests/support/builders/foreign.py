"""Modules as others have written them, which log means and are not edited; in both namespaces."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from support.builders.guarded import data, package

SIZE, BATCH = 110, 20


def loaders(seed=0):
    train, val = data(100, seed=seed + 1), data(SIZE, seed=seed)
    return DataLoader(train, batch_size=25), DataLoader(val, batch_size=BATCH)


def base(namespace):
    class Base(package(namespace).LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

        def training_step(self, batch, batch_idx):
            return functional.cross_entropy(self.layers(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Base


def collection(namespace, *, updates=False):
    """A MetricCollection with ``log_dict``: its batch values, or itself after ``update``."""

    class Collection(base(namespace)):
        def __init__(self):
            super().__init__()
            self.metrics = MetricCollection(
                {"acc": MulticlassAccuracy(3, average="micro")}, prefix="val_"
            )

        def validation_step(self, batch, batch_idx):
            logits = self.layers(batch[0])
            loss = functional.cross_entropy(logits, batch[1])
            self.log("val_loss", loss, prog_bar=True, on_step=True, on_epoch=True)
            if updates:
                self.metrics.update(logits, batch[1])
                self.log_dict(self.metrics)
            else:
                self.log_dict(self.metrics(logits, batch[1]), prog_bar=True)
            return loss

    return Collection()


def template(namespace):
    """Metric objects for everything, as a well-known template has them."""

    class Template(base(namespace)):
        def __init__(self):
            super().__init__()
            self.val_loss = MeanMetric()
            self.val_acc = MulticlassAccuracy(3, average="micro")

        def validation_step(self, batch, batch_idx):
            logits = self.layers(batch[0])
            self.val_loss(functional.cross_entropy(logits, batch[1]))
            self.val_acc(logits, batch[1])
            self.log("val_loss", self.val_loss, on_step=False, on_epoch=True, prog_bar=True)
            self.log("val_acc", self.val_acc, on_step=False, on_epoch=True, prog_bar=True)

    return Template()


def collector(namespace):
    """Collects the outputs of its steps and computes when the epoch ends."""

    class Collector(base(namespace)):
        def __init__(self):
            super().__init__()
            self.outputs = []
            self.f1 = MulticlassF1Score(3)

        def validation_step(self, batch, batch_idx):
            output = (self.layers(batch[0]), batch[1])
            self.outputs.append(output)
            return {"pair": output}

        def on_validation_batch_end(self, outputs, batch, batch_idx, dataloader_idx=0):
            self.f1.update(*outputs["pair"])

        def on_validation_epoch_end(self):
            logits, target = (torch.cat(part) for part in zip(*self.outputs, strict=True))
            self.log("val_loss", functional.cross_entropy(logits, target))
            self.log("val_f1", self.f1.compute())
            self.outputs.clear()

    return Collector()


class Forecaster:
    """A library that owns its module and its Trainer: a user gives data and callbacks."""

    def __init__(self, namespace, seed=0):
        self._namespace = namespace
        torch.manual_seed(seed)
        self._module = collection(namespace)

    def fit(self, train, val, *, callbacks=(), epochs=2):
        """Fit as the library does; return what it shows of the last epoch."""
        trainer = package(self._namespace).Trainer(
            max_epochs=epochs,
            callbacks=list(callbacks),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accelerator="cpu",
            devices=1,
        )
        trainer.fit(self._module, train, val)
        return {name: float(value) for name, value in trainer.callback_metrics.items()}


def per_example(module, batch, batch_idx):
    """A step for the guard: values of the examples, from the module's own layers."""
    logits = module.layers(batch[0])
    loss = functional.cross_entropy(logits, batch[1], reduction="none")
    return {"val_loss": loss, "val_acc": logits.argmax(1) == batch[1]}
