"""Levels of groups of rows, from all ranks' sums at the end of a pass. Raw."""

from typing import NamedTuple, final

import torch
from torch import Tensor

from torch_holdout._shared.distributed import same_rows, summed
from torch_holdout.errors import PartialPassError
from torch_holdout.statistics.group_sums import GroupSums

_LARGEST_SQUARES = 2**62


@final
class GroupLevels(NamedTuple):
    """The level of each group, from 0 to ``resolution``. Raw."""

    levels: Tensor
    resolution: int

    @property
    def total(self) -> int:
        """The sum of the levels."""
        return int(self.levels.sum())

    @property
    def squares(self) -> int | None:
        """The sum of squared levels; None if it may not fit into 64 bits."""
        if len(self.levels) * self.resolution**2 >= _LARGEST_SQUARES:
            return None
        return int((self.levels * self.levels).sum())

    def __repr__(self) -> str:
        return "<sealed levels>"


def group_levels(sums: GroupSums, *, copied: bool) -> GroupLevels:
    """Return the levels of all groups, from all ranks' shares or one of equal copies."""
    sizes = sums.grouping.sizes
    totals = sums._group_sums_of_all if copied else sums._group_sums
    if totals is None:
        totals = torch.zeros((2, len(sizes) + 1), dtype=torch.int64)
    if copied and not same_rows((totals,), sums.world):
        raise PartialPassError(
            "Expected the same values of every group on every rank that has all rows, but they "
            "differ. Use a DistributedSampler. Nothing was released or charged."
        )
    added, counts = (totals if copied else summed(totals, sums.world)).cpu().unbind()
    if not torch.equal(counts[:-1], sizes):
        raise PartialPassError(
            f"Expected a pass in which each of the {len(sizes)} groups has as many rows as were "
            f"registered, but some have another number, or a row has an id that is not registered. "
            f"Go over the whole holdout without drop_last, each row once, and return the ids that "
            f"`groups` was made of. Nothing was released or charged."
        )
    parts = sizes * (sums.fineness // sums.resolution)
    # The mean of a group's rows, to the nearest level.
    return GroupLevels((2 * added[:-1] + parts) // (2 * parts), sums.resolution)
