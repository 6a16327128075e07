"""Sealed sums of each group of rows; the door divides them at the end of a pass."""

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor

from torch_holdout.errors import InvalidArgumentError
from torch_holdout.statistics.grouping import Grouping
from torch_holdout.statistics.sealed_sums import SealedSums

_LARGEST_SUM = 2**60  # of one group: what is added to round it stays below 2^62
_FINEST = 2**50  # parts of the range that a row is rounded to: as fine as float64 is near 1


@final
class GroupSums(SealedSums):
    """The sum and the number of rows of each group, on the device.

    Rows go to their group by their place in the dataset, or by ids that come with them. Ranks may
    have shares of the rows, or all of them: which of the two is known at the end of the pass, and
    places differ, so both sums are kept.
    """

    __slots__ = ("_by", "_group_sums", "_group_sums_of_all", "_grouping", "_read", "rank")

    def __init__(
        self,
        identity: dict[str, Any],
        resolution: int,
        grouping: Grouping,
        read: Callable[[tuple[Any, ...], dict[str, Any], int], tuple[Tensor, Any]],
    ) -> None:
        super().__init__(identity, resolution)
        self._grouping = grouping
        self._read = read
        self._by: str | None = None  # "places" or "ids", from the first batch on
        self._group_sums: Tensor | None = None  # sums and counts of this rank's share
        self._group_sums_of_all: Tensor | None = None  # the same of all rows that it has seen
        self.rank = 0

    @property
    def goes_by_place(self) -> bool:
        """Whether rows came without ids, so that the dataset's order matters."""
        return self._by == "places"

    @property
    def grouping(self) -> Grouping:
        """Which rows belong together."""
        return self._grouping

    @property
    def fineness(self) -> int:
        """Integer levels of one row; a power of two times ``resolution``."""
        limit = min(_FINEST, _LARGEST_SUM // self._grouping.largest)
        times: int = max(1, limit // self.resolution)
        return self.resolution << (times.bit_length() - 1)

    def update(self, *arguments: Any, **named: Any) -> None:
        """Add one batch. Works on any device and reads nothing back."""
        levels, ids = self._read(arguments, named, self.fineness)
        levels = levels.clamp(0, self.fineness)
        by = "places" if ids is None else "ids"
        if self._by not in (None, by):
            raise InvalidArgumentError(
                "Expected all batches of a pass with the ids of their rows, or none, but this one "
                "differs from the first. Return (values, ids) in every step. Nothing was charged."
            )
        groups = None if ids is None else self._grouping.of(ids, levels.device)
        if groups is not None and len(groups) != len(levels):
            raise InvalidArgumentError(
                "Expected as many ids as values, one of each for every row, but got another "
                "number. Nothing was charged."
            )
        self._by = by
        places = torch.arange(self._seen, self._seen + len(levels), device=levels.device)
        kept = self._keep(len(levels))
        own = self._grouping.at(places * self.world + self.rank) if groups is None else groups
        self._group_sums = self._added(self._group_sums, own[:kept], levels[:kept])
        if self.world > 1:
            own = self._grouping.at(places) if groups is None else groups
            self._group_sums_of_all = self._added(self._group_sums_of_all, own, levels)

    def update_counted(self, values: Tensor, counts: Tensor, examples: int) -> None:
        """Raise always: counts of values do not tell which group they belong to."""
        raise InvalidArgumentError("Expected rows, not counts, for a mean over groups.")

    def _added(self, totals: Tensor | None, groups: Tensor, levels: Tensor) -> Tensor:
        """Add levels to those of their groups; rows of no group come last."""
        if totals is None:
            with torch.inference_mode(False):  # or it could not be changed outside of it
                totals = levels.new_zeros((2, self._grouping.count + 1))
        totals = totals.to(levels.device)
        totals[0].index_add_(0, groups, levels)
        totals[1].index_add_(0, groups, torch.ones_like(levels))
        return totals
