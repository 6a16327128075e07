"""How many queries a batch or a run asks, by sizes alone."""

from collections.abc import Mapping, Sized
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader


def count_queries(inputs: Any) -> int | None:
    """Return the number of queries of a batch, if its first tensor tells.

    Example:
        >>> import torch
        >>> count_queries({"ids": torch.zeros(3, 8)}), count_queries("text")
        (3, None)
    """
    if isinstance(inputs, Tensor):
        return len(inputs) if inputs.ndim else None
    parts = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    return count_queries(parts[0]) if isinstance(parts, list | tuple) and parts else None


def queries_of_run(trainer: Any) -> int | None:
    """Return the number of queries of a Trainer's prediction run, if its loaders know."""
    loaders = trainer.predict_dataloaders
    loaders = loaders if isinstance(loaders, list | tuple) else [loaders]
    total = 0
    for loader, batches in zip(loaders, trainer.num_predict_batches, strict=True):
        if not isinstance(loader, DataLoader) or not isinstance(loader.dataset, Sized):
            return None
        size = len(loader.dataset)
        if loader.batch_size is not None:
            size = min(size, batches * loader.batch_size * trainer.world_size)
        total += size
    return total
