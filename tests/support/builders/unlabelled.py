"""Modules, data and Trainers whose validation set has inputs only: a board has the labels."""

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from support.builders.guarded import network

SIZE, CLASSES = 97, 3


def inputs(size=SIZE, seed=0):
    """The rows of a board, as every team has them."""
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))


def labels(x):
    """What the host knows of them."""
    return (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def unlabelled(batch_size=20, size=SIZE, **options):
    return DataLoader(TensorDataset(inputs(size)), batch_size=batch_size, **options)


def labelled(size=200, batch_size=20):
    x = inputs(size, seed=1)
    return DataLoader(TensorDataset(x, labels(x)), batch_size=batch_size)


def predicting(namespace="lightning.pytorch", name="accuracy", **overrides):
    """A classifier whose validation step returns its scores."""

    def validation_step(self, batch, batch_idx):
        return {name: self(batch[0])}

    def training_step(self, batch, batch_idx):
        return functional.cross_entropy(self(batch[0]), batch[1])

    steps = {"validation_step": validation_step, "training_step": training_step}
    return network(namespace, **{**steps, **overrides})
