"""Ordinary code that reads the holdout's data on the host: refused, because nobody can tell.

A decision on a mask and a decision on a loss are the same read. Where there is a way to write it
that reads nothing, it stands beside it.
"""

import torch
from torch.nn import functional

from training.careless.patterns import register, small

PATTERNS = []
asks = register(PATTERNS, net="two")


@asks(leaks=False)
def mask_any(pl):
    """Instead: ``functional.relu(y - 0.5)`` and ``torch.where`` work on an empty mask too."""

    class Net(small(pl)):
        def careless(self, batch, loss):
            mask = batch[1] > 0.5
            if mask.any():  # <-
                functional.relu(batch[1][mask])

    return Net()


@asks(leaks=False)
def longest_length(pl):
    """Instead: let ``collate_fn`` cut the padding, or put the length in the batch as an int."""

    class Net(small(pl)):
        def careless(self, batch, loss):
            longest = (batch[0] > 0).sum(1).max().item()  # <-
            self(batch[0][:, : longest or 4].new_zeros(1, 4))

    return Net()


@asks(leaks=False)
def lengths_as_a_list(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            for length in (batch[0] > 0).sum(1).tolist():  # <-
                batch[0][0, :length].sum()

    return Net()


@asks(leaks=False)
def labels_in_range(pl):
    """Instead: check the dataset once, before the run."""

    class Net(small(pl)):
        def careless(self, batch, loss):
            assert batch[1].min() >= 0  # <-

    return Net()


@asks(leaks=False)
def slice_by_a_tensor(pl):
    class Net(small(pl)):
        def careless(self, batch, loss):
            count = (batch[1] > 0.5).sum()
            torch.arange(8)[:count]  # <-

    return Net()
