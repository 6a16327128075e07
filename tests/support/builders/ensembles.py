"""Small ensembles and the Trainer they are fitted with."""

from functools import partial

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import TensorDataset
from torch_holdout.prediction import Partition
from torch_holdout.prediction.lightning import PartitionedDataModule, PartitionedEnsemble

PARTS = Partition(num_parts=4, key="index", seed=7)


def records(size=60, features=6, classes=3):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, features, generator=generator)
    return TensorDataset(x, (x[:, :classes]).argmax(dim=1))


def linear():
    return nn.Linear(6, 3)


def deep():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def dropping():
    return nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 3))


def image():
    return nn.Unflatten(1, (1, 2, 3))


def group_norm():
    head = nn.Linear(4 * 6, 3)
    return nn.Sequential(
        image(), nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), head
    )


def batch_norm():
    head = nn.Linear(4 * 6, 3)
    return nn.Sequential(
        image(),
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        head,
    )


class Recurrent(nn.Module):
    """vmap has no rule for it."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.lstm(x.unflatten(1, (2, 3)))[0][:, -1])


ADAM = partial(torch.optim.Adam, lr=0.01)
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


def ensemble(model_fn=deep, parts=PARTS, kind=PartitionedEnsemble, **changes):
    arguments = {"loss": nn.functional.cross_entropy, "optimizer": ADAM}
    return kind(model_fn, parts, **{**arguments, **changes})


def data(train_set=None, parts=PARTS, kind=PartitionedDataModule, **changes):
    arguments = {"batch_size": 4, "steps_per_epoch": 3}
    return kind(records() if train_set is None else train_set, parts, **{**arguments, **changes})


def trainer(kind=pl.Trainer, **changes):
    arguments = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return kind(**{**arguments, **changes})


def fitted(model_fn=deep, datamodule=None, options=None, **changes):
    found = ensemble(model_fn, **changes)
    trainer(**(options or {})).fit(found, datamodule=datamodule or data())
    return found


def state(found):
    return {name: value.clone() for name, value in found.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one) and one.keys() == other.keys()


QUERIES = torch.randn(9, 6, generator=torch.Generator().manual_seed(1))


def close(one, other):
    """Whether two state dictionaries agree but for rounding."""
    return all(torch.allclose(one[k].double(), other[k].double(), atol=1e-5) for k in one)
