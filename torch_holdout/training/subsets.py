"""A fixed part of a dataset, the same in every epoch, run and process."""

from typing import Any

from torch.utils.data import Dataset, Subset

from torch_holdout._noise.fixed import fixed_permutation
from torch_holdout._shared.checks import require_whole


def fixed_subset(dataset: Dataset[Any], size: int, seed: int) -> Subset[Any]:
    """Return ``size`` examples chosen once by ``seed``, e.g. of the training set, as a guess.

    Train-time augmentation must be off in ``dataset``: the guess is to be the training value under
    the same conditions as the holdout's.

    Example:
        >>> fixed_subset(list(range(100)), 5, seed=0).indices == fixed_subset(
        ...     list(range(100)), 5, seed=0).indices
        True
    """
    total = len(dataset)  # type: ignore[arg-type]
    require_whole("size", size, 1, total)
    return Subset(dataset, fixed_permutation(total, seed)[:size].tolist())
