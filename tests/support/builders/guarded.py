"""Lightning modules and Trainers for the guard's tests, in either namespace."""

import importlib
import warnings

import pytest
import torch
import torch_holdout as th
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from support.builders.holdouts import make_holdout

SIZE = 97
NAMESPACES = ["lightning.pytorch", "pytorch_lightning"]
EXACT = th.Thresholdout(threshold=0.02, sigma=0.0, guess="last")
TRAIN = th.Thresholdout(threshold=0.02, sigma=0.0, guess="train")
LOSS = {"val_loss": th.BoundedMean(0.0, 5.0)}
IN_A_TRAINER = [
    pytest.mark.integration,
    pytest.mark.usefixtures("quiet_lightning"),
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice about workers and the like
    pytest.mark.filterwarnings("error::torch_holdout.errors.HoldoutWarning"),
]


def package(namespace):
    return importlib.import_module(namespace)


def guard_class(namespace):
    return importlib.import_module(f"torch_holdout.{namespace.split('.')[0]}").HoldoutGuard


def data(size=SIZE, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 4, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def loader(dataset=None, batch_size=20, **options):
    return DataLoader(dataset or data(), batch_size=batch_size, **options)


def holdout(url="memory://", **changes):
    """A holdout for ``network``: its loss and its accuracy."""
    arguments = {
        "size": SIZE,
        "statistics": {**LOSS, "val_acc": th.BoundedMean(0.0, 1.0, mode="max")},
        "mechanism": th.Thresholdout(threshold=0.02, sigma=0.002, guess="last"),
        "budget": 50,
    }
    return make_holdout(url, **{**arguments, **changes})


def network(namespace="lightning.pytorch", **overrides):
    """A small classifier; ``overrides`` replace its methods."""

    class Net(package(namespace).LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)
            )

        def forward(self, x):
            return self.layers(x)

        def training_step(self, batch, batch_idx):
            return functional.cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch, batch_idx):
            return per_example(self, batch)

        def test_step(self, batch, batch_idx):
            return {f"test_{k[4:]}": v for k, v in per_example(self, batch).items()}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    for name, method in overrides.items():
        setattr(Net, name, method)
    return Net()


def per_example(module, batch):
    logits = module(batch[0])
    loss = functional.cross_entropy(logits, batch[1], reduction="none")
    return {"val_loss": loss, "val_acc": logits.argmax(1) == batch[1]}


def only_loss(module, batch, batch_idx):
    """A validation step without the accuracy."""
    return {"val_loss": per_example(module, batch)["val_loss"]}


def value_on(module, dataset):
    """The mean by hand, in eval mode."""
    module.eval()
    with torch.no_grad():
        values = per_example(module, dataset.tensors)
    return {name: float(each.double().mean()) for name, each in values.items()}


def trainer(callbacks, namespace="lightning.pytorch", **options):
    defaults = {
        "max_epochs": 3,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "devices": 1,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return package(namespace).Trainer(callbacks=callbacks, **{**defaults, **options})


def fit(run, module, train=None, val=None, **options):
    """Fit, with Lightning's advice about workers and the like left out; ours stays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=th.HoldoutWarning)
        train = loader(drop_last=True) if train is None else train
        run.fit(module, train, loader() if val is None else val, **options)
    return run


def quietly(action, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=th.HoldoutWarning)
        return action(*arguments, **options)
