"""The mean over groups of rows that belong together: patients, users, documents, series."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor

from torch_holdout.statistics.base import Mode
from torch_holdout.statistics.bounded_mean import BoundedMean
from torch_holdout.statistics.group_sums import GroupSums
from torch_holdout.statistics.grouping import Grouping
from torch_holdout.statistics.sealed_sums import SealedSums, SummedLevels


@final
@dataclass(frozen=True, init=False)
class GroupedMean(BoundedMean):
    r"""The mean over groups of the mean of their rows, each row clipped to ``[low, high]``.

    For rows that are not independent of each other: images of one patient, sessions of one user,
    windows of one series. ``size`` of the holdout stays the number of rows; the *groups* are the
    units that sensitivity, noise, cost and certificate count.

    ``update(values)`` goes by the rows' places in the dataset, which must keep its order;
    ``update(values, ids)`` (a step returns ``{"val_loss": (values, ids)}``) goes by ids in any
    order, also of a shuffling loader. With ``per_example`` the ids are named:
    ``update(preds, target, ids=ids)``. A group that has another number of rows than registered,
    or an unknown id, is a ``PartialPassError``, and nothing is charged.

    Rows are summed as integers of at least :math:`2^{20}` parts of the range in each group, across
    batches and ranks, and divided once, at the end of the pass. NaN and infinite values count as
    the worse bound. As a guess, training rows count one by one.

    Guarantee:
        All rows of one group replaced (by as many) move the integer sum by at most ``resolution``,
        and the mean by at most :math:`(\text{high} - \text{low})/G` for G groups. The certificate
        holds if the *groups* are independent; rows of one may depend on each other in any way. It
        is about the mean over groups: each counts once, however many rows it has. With private
        noise, neighbouring holdouts differ in one whole group; with a mean of rows in the same
        account, in one row.

    Args:
        low: Smallest value a row can have; smaller ones are clipped.
        high: Largest value a row can have; larger ones are clipped.
        mode: Whether ``"min"`` or ``"max"`` is better.
        groups: The ids of all rows, in the dataset's order: a tensor, an array or a list of whole
            numbers or text. The ledger keeps how many groups there are, the smallest and largest
            size and a digest of which rows are together; never an id.
        per_example: Optional function that ``update(*args)`` calls to get the values, one per row.

    Example:
        >>> import torch
        >>> loss = GroupedMean(0.0, 5.0, groups=["ann", "bob", "ann", "eve"])
        >>> loss.units(size=4)
        3
        >>> loss.accumulator(resolution=100, size=4).update(
        ...     torch.tensor([1.0, 2.0, 3.0, 4.0]), ["eve", "ann", "bob", "ann"])
    """

    groups: Grouping = field(kw_only=True)

    def __init__(
        self,
        low: float,
        high: float,
        mode: Mode = "min",
        *,
        groups: Any,
        per_example: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__(low, high, mode, per_example)
        grouping = groups if isinstance(groups, Grouping) else Grouping(groups)
        object.__setattr__(self, "groups", grouping)

    def units(self, size: int) -> int:
        """Return the number of groups; raise unless they are of ``size`` rows."""
        self.groups.require_rows(size)
        return self.groups.count

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds, mode and the facts about the groups."""
        return super().identity() | {"kind": "grouped_mean", "groups": self.groups.identity()}

    def accumulator(
        self,
        resolution: int,
        *,
        owner: tuple[str, ...] = (),
        size: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> SealedSums:
        """Return an empty sealed sum, as for every statistic; training rows have no groups."""
        sums = super().accumulator(resolution, owner=owner, size=size, rank=rank, world=world)
        if isinstance(sums, GroupSums):
            sums.rank = rank
        if "guess" not in owner[3:]:
            return sums
        rows = SummedLevels(sums.identity, resolution, lambda *given: self._read(*given)[0])
        rows.owner, rows.world, rows.size, rows.limit = owner, world, size, sums.limit
        return rows

    def _empty(self, resolution: int) -> SealedSums:
        return GroupSums(self.identity(), resolution, self.groups, self._read)

    def _read(
        self, arguments: tuple[Any, ...], named: dict[str, Any], resolution: int
    ) -> tuple[Tensor, Any]:
        """Return the levels of one ``update``, and the ids of its rows, if they came."""
        if self.per_example is None and len(arguments) == 2 and not named:
            values, ids = arguments
            arguments, named = (values,), {"ids": ids}
        others = {name: value for name, value in named.items() if name != "ids"}
        return self.levels(arguments, others, resolution), named.get("ids")
