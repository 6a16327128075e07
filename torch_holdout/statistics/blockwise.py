"""Metrics that are not means of examples, by subsample and aggregate."""

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from torch_holdout._fingerprints.hashing import describe_function, qualified_name
from torch_holdout._noise.fixed import fixed_permutation
from torch_holdout._shared.checks import (
    plain_whole,
    require_between,
    require_instance,
    require_whole,
)
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError
from torch_holdout.statistics.base import Mode, OrderedStatistic
from torch_holdout.statistics.fresh_metrics import FreshMetrics
from torch_holdout.statistics.grouping import Grouping
from torch_holdout.statistics.made_up import (
    Arguments,
    Layout,
    NoSuchEntryError,
    require_one_number,
)
from torch_holdout.statistics.rows import device_of
from torch_holdout.statistics.sealed_sums import BufferedRows, SealedSums
from torch_holdout.statistics.undefined import heard_warnings, says_undefined, still_in_front

_MOST_REPEATS = 3  # of a block whose warnings another thread's filters hid


@final
@dataclass(frozen=True)
class Blockwise(OrderedStatistic):
    r"""The mean of a metric over blocks of the holdout: AUROC, F1, ... behind the same door.

    The rows are kept on the device until the pass is over and cut into ``blocks`` by their number
    in the dataset, through a permutation that only ``seed`` decides. The metric is computed on each
    block, clipped to the bounds and averaged; a block on which it raises, warns that its value is
    undefined, or gives no single finite number counts as ``degenerate``. The divisor is always the
    number of blocks. Warnings count that the metric gives in its own thread and that say so
    (sklearn's ``UndefinedMetricWarning``, torchmetrics' "No positive samples ...", numpy's "invalid
    value ..."); deprecations do not.

    The arguments of ``update`` are tensors, or lists with one entry for each row: text for BLEU and
    ROUGE, dictionaries of tensors for detection. Before the first row is kept, the metric is tried
    on made-up rows of the same layout: one that gives several numbers, takes other arguments or has
    a typo is refused, and nothing is charged. Rows of other types cannot be made up, and that is
    warned of.

    Guarantee:
        One example is in one block, so it changes the mean by at most
        :math:`(\text{high} - \text{low})/k`: a block is a unit, and noise, cost and certificate
        count k units, not n. It certifies the *expected metric on a block of n/k examples*, which
        for metrics like AUROC is a little different from the metric on everything. With 50 blocks
        even the first release is certified to +-0.23 only (+-0.37 after 50 guesses), and to less
        with noise: use as many blocks as the metric tolerates.

    The order of the examples must be the same in every pass and must not depend on their content
    (no shuffling, no sorting by length), and the metric must not draw random numbers. Rows that
    belong together (``groups``, e.g. the documents of one query) go to the same block; then whole
    groups are permuted, and a block has G/k of G groups. A metric of several numbers needs
    ``select``.

    Args:
        metric: A torchmetrics metric, or a function of the same arguments.
        blocks: How many; each has n/k examples, give or take one.
        low: The metric's smallest value.
        high: Its largest value.
        mode: Which direction is better.
        degenerate: What a block without a value counts as; None: the worse bound.
        seed: Decides the permutation (public; kept in the ledger).
        groups: The ids of all rows, in the dataset's order, for rows that stay together.
        select: Which entry of the metric's result counts: a key, a number, or a function of it.

    Example:
        >>> recall = lambda preds, target: (preds[target == 1] > 0.5).float().mean()
        >>> Blockwise(recall, blocks=50, low=0.0, high=1.0).units(size=10_000)
        50
    """

    low: float
    high: float
    mode: Mode
    metric: Any
    blocks: int
    degenerate: float
    seed: int
    groups: Grouping | None = field(default=None, repr=False)
    select: Any = field(default=None, repr=False)

    def __init__(
        self,
        metric: Callable[..., Any],
        blocks: int,
        low: float,
        high: float,
        mode: Mode = "max",
        degenerate: float | None = None,
        seed: int = 0,
        *,
        groups: Any = None,
        select: str | int | Callable[[Any], Any] | None = None,
    ) -> None:
        self._set_bounds(low, high, mode)
        require_whole("blocks", plain_whole(blocks), 2, 10**9)
        require_whole("seed", plain_whole(seed), 0, 2**62)
        if not callable(metric) or isinstance(metric, type):
            given = type(metric).__name__
            if isinstance(metric, type):
                given = f"the class {metric.__name__}; write {metric.__name__}(...)"
            raise InvalidArgumentError(
                f"Expected `metric` to be a torchmetrics metric or a function, but got {given}."
            )
        if degenerate is None:
            degenerate = self.high if self.mode == "min" else self.low
        require_between("degenerate", degenerate, self.low, self.high)
        object.__setattr__(self, "metric", metric)
        object.__setattr__(self, "blocks", int(blocks))
        object.__setattr__(self, "degenerate", float(degenerate))
        object.__setattr__(self, "seed", int(seed))
        if groups is None and _ranks_queries(metric):
            warnings.warn(
                f"Blockwise({type(metric).__name__}): blocks are cut by rows, so the documents of "
                f"one query come into several blocks, and each is ranked without the others. Give "
                f"groups=indexes, the query of every row in the dataset's order.",
                HoldoutWarning,
                stacklevel=2,
            )
        if groups is not None and not isinstance(groups, Grouping):
            groups = Grouping(groups)
        if not (select is None or callable(select)):
            require_instance("select", plain_whole(select), str | int)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "select", select)

    def units(self, size: int) -> int:
        """Return the number of blocks."""
        if self.groups is not None:
            self.groups.require_rows(size)
        parts = size if self.groups is None else self.groups.count
        if parts < self.blocks:
            noun = "example" if self.groups is None else "group"
            raise InvalidArgumentError(
                f"Expected at most {parts} blocks, one {noun} in each, but got {self.blocks}."
            )
        return self.blocks

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds, blocks, the metric's name, the groups and what is selected."""
        name = type(self.metric).__qualname__
        if not _is_metric(self.metric):
            name = getattr(self.metric, "__qualname__", name)
        bounds = {"kind": "blockwise", "low": self.low, "high": self.high, "mode": self.mode}
        cut: dict[str, Any] = {
            "blocks": self.blocks,
            "degenerate": self.degenerate,
            "seed": self.seed,
        }
        if self.groups is not None:
            cut |= {"groups": self.groups.identity()}
        if self.select is not None:
            cut |= {"select": qualified_name(self.select) if callable(self.select) else self.select}
        return bounds | {"metric": name} | cut

    def source(self) -> str:
        """Return the metric's name and its settings, and a selecting function's code."""
        select = f" {describe_function(self.select)}" if callable(self.select) else ""
        if not _is_metric(self.metric):
            return f"Blockwise {describe_function(self.metric)}{select}"
        plain = (int, float, str, bool, type(None))
        settings = {
            name: value
            for name, value in sorted(vars(self.metric).items())
            if not name.startswith("_") and isinstance(value, plain)
        }
        return f"Blockwise {type(self.metric).__qualname__} {settings}{select}"

    def _empty(self, resolution: int) -> SealedSums:
        return BufferedRows(self.identity(), resolution, self._try_out)

    def _try_out(self, columns: Layout, size: int | None) -> None:
        """Try the metric on made-up rows, once for each layout and process."""
        tried: set[object] = self.__dict__.setdefault("_tried", set())
        rows = 8 if size is None else max(1, size // self.blocks)
        if (columns, rows) not in tried:
            name = type(self.metric).__qualname__
            if not _is_metric(self.metric):
                name = qualified_name(self.metric)
            require_one_number(
                lambda *made_up: self._compute(made_up, self._fresh(made_up)), name, columns, rows
            )
            tried.add((columns, rows))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_tried"}

    def total(self, columns: Arguments, resolution: int) -> int:
        """Return the sum of levels over the blocks, from all rows in the dataset's order. Raw."""
        return int(self.levels(columns, resolution).sum())

    def levels(self, columns: Arguments, resolution: int) -> Tensor:
        """Return the level of each block, from all rows in the dataset's order. Raw."""
        fresh = self._fresh(columns)
        values = [
            self._value(tuple(_taken(column, block) for column in columns), fresh)
            for block in self._cut(len(columns[0]))
        ]
        levels = self._quantise(torch.tensor(values, dtype=torch.float64), resolution)
        return levels.clamp(0, resolution)

    def _cut(self, size: int) -> Iterable[Tensor]:
        """Return the rows' numbers, block by block; only the seed and the groups decide them."""
        if self.groups is None or size != self.groups.rows:  # training rows have no groups
            return fixed_permutation(size, self.seed).tensor_split(self.blocks)
        block_of = torch.empty(self.groups.count, dtype=torch.int64)
        for block, groups in enumerate(
            fixed_permutation(self.groups.count, self.seed).tensor_split(self.blocks)
        ):
            block_of[groups] = block
        of_rows = block_of[self.groups.numbers]
        ends = torch.bincount(of_rows, minlength=self.blocks).cumsum(0)[:-1]
        return of_rows.argsort(stable=True).tensor_split(ends.tolist())

    def _value(self, rows: Arguments, fresh: FreshMetrics | None) -> float:
        """Compute one block; the message of a failure, which may quote rows, stays here."""
        for _ in range(_MOST_REPEATS):
            value = math.nan
            with heard_warnings() as heard, torch.no_grad():
                try:
                    value = float(self._compute(rows, fresh))
                except Warning as warning:  # another thread's filter made an error of it
                    heard.append((type(warning), str(warning)))
                    continue
                except Exception:
                    break
                if still_in_front():
                    break
        undefined = any(says_undefined(*warning) for warning in heard)
        return self.degenerate if undefined or not math.isfinite(value) else value

    def _fresh(self, rows: Arguments) -> FreshMetrics | None:
        """Return metrics for the blocks of some rows; None for a function."""
        if not _is_metric(self.metric):
            return None
        return FreshMetrics(self.metric, device_of(rows) or torch.device("cpu"))

    def _compute(self, rows: Arguments, fresh: FreshMetrics | None) -> Any:
        if fresh is None:
            return self._selected(self.metric(*rows))
        metric = fresh.take()
        metric.update(*rows)
        result = metric.compute()
        fresh.put_back(metric)
        return self._selected(result)

    def _selected(self, result: Any) -> Any:
        if self.select is None:
            return result
        try:
            return self.select(result) if callable(self.select) else result[self.select]
        except (KeyError, IndexError, TypeError):
            raise NoSuchEntryError("Expected a result with the selected entry.") from None


def _taken(column: Tensor | list[Any], block: Tensor) -> Tensor | list[Any]:
    if isinstance(column, Tensor):
        return column[block.to(column.device)]
    return [column[row] for row in block.tolist()]


def _is_metric(metric: Any) -> bool:
    return all(callable(getattr(metric, name, None)) for name in ("compute", "update", "clone"))


def _ranks_queries(metric: Any) -> bool:
    """Whether a metric of torchmetrics ranks the documents of queries, which ``indexes`` tells."""
    parts = metric.modules() if _is_metric(metric) and hasattr(metric, "modules") else ()
    return any(base.__name__ == "RetrievalMetric" for part in parts for base in type(part).__mro__)
