"""Ordinary code that reads lengths, masks and labels of the batch, to know what to compute.

These do not depend on the model. The same reads of predictions and losses are careless.
"""

import torch
from torch.nn import functional

from training.careless.cases import Case, loaders, plain, register, sequences

CASES = []
ordinary = register(CASES)


def of_lengths(module):
    """A case with sequences and their lengths."""
    train, val = loaders(sequences, lambda seed: torch.arange(16) % 3 + 4)
    return Case(module=module, train=train, val=val)


@ordinary
def mask_any(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x, y = batch
            mask = y == 2
            losses = functional.cross_entropy(self(x), y, reduction="none")
            if mask.any():
                losses = losses + mask.float()
            return losses

    return Net()


@ordinary
def longest_length(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x, lengths, y = batch
            return super().losses((x[:, : lengths.max().item()].mean(1), y))

    return of_lengths(Net())


@ordinary
def longest_length_as_a_slice(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x, lengths, y = batch
            return super().losses((x[:, : lengths.max()].mean(1), y))

    return of_lengths(Net())


@ordinary
def lengths_as_a_list(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x, lengths, y = batch
            parts = [row[:length].mean(0) for row, length in zip(x, lengths.tolist(), strict=True)]
            return super().losses((torch.stack(parts), y))

    return of_lengths(Net())


@ordinary
def mask_from_lengths(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x, lengths, y = batch
            mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
            return super().losses(((x[:, : mask.shape[1]] * mask[..., None]).sum(1), y))

    return of_lengths(Net())


@ordinary
def labels_in_range(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            assert batch[1].min() >= 0
            assert int(batch[1].max()) < 3
            return super().losses(batch)

    return Net()


@ordinary
def loop_over_classes(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            x, y = batch
            losses = torch.zeros(len(x))
            for label in torch.unique(y).tolist():
                chosen = y == label
                losses[chosen] = super().losses((x[chosen], y[chosen]))
            return losses

    return Net()


@ordinary
def inputs_are_finite(pl):
    class Net(plain(pl)):
        def losses(self, batch):
            if not torch.isfinite(batch[0]).all():
                raise ValueError("Expected finite inputs.")
            return super().losses(batch)

    return Net()
