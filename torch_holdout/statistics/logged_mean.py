"""Means of batches as a training loop logs them, when single examples are out of reach."""

from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor

from torch_holdout._shared.checks import plain_whole, require_choice, require_whole
from torch_holdout._shared.tensors import is_plain
from torch_holdout._shared.text import counted
from torch_holdout.errors import InvalidArgumentError, PartialPassError
from torch_holdout.statistics.base import Mode, Statistic
from torch_holdout.statistics.sealed_sums import SealedSums, SummedLevels, WeightedLevels

Kind = Literal["mean", "zero_one"]
_FINER = 2  # a batch's mean has twice the levels, so that both roundings stay within half a level
_LARGEST_SUM = 2**62
_CHARGED = "Nothing was released or charged."


@final
@dataclass(frozen=True)
class LoggedMean(Statistic):
    r"""The mean of what a module logs for each batch: ``self.log("val_loss", loss)``, unchanged.

    With :class:`~torch_holdout.lightning.HoldoutGuard` the module needs no edit: a registered name
    that its step logs goes to the guard alone, before any logger, progress bar or callback, and the
    guarded answer is logged under that name when the pass is over. In a loop of one's own,
    ``holdout.accumulator(name).update(mean, batch_size)`` takes it.

    Guarantee:
        *Batches are the units*: a batch's mean is clipped to the bounds and weighted by its size
        n_b, and the mean over n examples counts as one over :math:`u = \lfloor n/B \rfloor` units,
        where B is the largest batch. Replacing all examples of one batch moves it by at most
        :math:`(\text{high} - \text{low})/u`, exactly, whatever the module computes: nothing is
        assumed of single examples. It certifies the *expected clipped mean of a batch*, and privacy
        counts per batch. For a weight :math:`a_b = u n_b/n \le 1`,
        :math:`\ln(1 - \mu + \mu e^{\lambda a})` is convex in a and 0 at 0, so the weighted mean
        obeys the binomial bounds of u units (Hoeffding 1963). The order, the batch size and the
        number of ranks must be those of every pass: they are registered, and others are refused.

        With ``kind="zero_one"`` *examples are the units*: the batch's mean times its size is the
        number of right ones, rounded to a whole number, and the account closes with exact
        intervals. That each example counts as 0 or 1 is what you assert.

    NaN and infinite means count as the worse bound.

    Args:
        low: Smallest mean of a batch; smaller ones are clipped.
        high: Largest mean of a batch; larger ones are clipped.
        mode: Whether ``"min"`` or ``"max"`` is better.
        batch_size: Examples of a batch, all but the last; needed for ``kind="mean"``.
        kind: ``"mean"``, or ``"zero_one"`` for accuracy.
        ranks: Processes that divide the examples among them, for ``kind="mean"``.

    Example:
        >>> loss = LoggedMean(0.0, 5.0, batch_size=50)
        >>> loss.units(size=1020), loss.batches(size=1020)
        (20, 21)
        >>> LoggedMean(0.0, 1.0, mode="max", kind="zero_one").units(size=1020)
        1020
    """

    low: float
    high: float
    mode: Mode
    batch_size: int | None
    kind: Kind
    ranks: int

    def __init__(
        self,
        low: float,
        high: float,
        mode: Mode = "min",
        *,
        batch_size: int | None = None,
        kind: Kind = "mean",
        ranks: int = 1,
    ) -> None:
        self._set_bounds(low, high, mode)
        require_choice("kind", kind, ("mean", "zero_one"))
        require_whole("ranks", plain_whole(ranks), 1, 2**20)
        if kind == "zero_one":
            _require_free_batches(self.low, self.high, batch_size, ranks)
        elif batch_size is None:
            raise InvalidArgumentError(
                "Expected `batch_size`, because batches are the units, e.g. LoggedMean(0.0, 5.0, "
                'batch_size=50). For an accuracy write LoggedMean(0.0, 1.0, mode="max", '
                'kind="zero_one"): examples are the units then.'
            )
        else:
            require_whole("batch_size", plain_whole(batch_size), 1, 2**40)
            object.__setattr__(self, "batch_size", int(batch_size))
        if kind == "zero_one":
            object.__setattr__(self, "batch_size", None)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "ranks", int(ranks))

    def units(self, size: int) -> int:
        """Return ``size / largest batch``, rounded down; for ``kind="zero_one"`` the size."""
        if self.batch_size is None:
            return size
        units = size // min(self.batch_size, self._own(size))
        if units < 2:
            raise InvalidArgumentError(
                f"Expected at least two batches, because batches are the units, but {size} "
                f"examples in batches of {self.batch_size} are one. Use a smaller batch_size."
            )
        return units

    def batches(self, size: int) -> int:
        """Return how many batches all ranks have together; of single examples if they count."""
        require_whole("size", size, 1, 2**40)
        if self.batch_size is None:
            return size
        return self.ranks * -(-self._own(size) // self.batch_size)

    def _expected(self, size: int, seen: int) -> int | None:
        """Return how many examples the batch after ``seen`` ones has; None if that is free."""
        if self.batch_size is None:
            return None
        return max(0, min(self.batch_size, self._own(size) - seen))

    def identity(self) -> dict[str, Any]:
        """Return kind, bounds and mode; of batches also their size and the ranks."""
        bounds = {"low": self.low, "high": self.high, "mode": self.mode}
        if self.batch_size is None:
            return {"kind": "zero_one", **bounds, "logged": True}
        cut = {"batch_size": self.batch_size, "ranks": self.ranks}
        return {"kind": "logged_mean", **bounds, **cut}

    def source(self) -> str:
        """Return the statistic's name and kind."""
        return f"logged {self.kind}"

    def accumulator(
        self,
        resolution: int,
        *,
        owner: tuple[str, ...] = (),
        size: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> SealedSums:
        """Return an empty sealed sum for ``update(mean, batch_size)``."""
        guess = owner[3:4] == ("guess",)
        if (size or 0) * resolution * _FINER >= _LARGEST_SUM:
            raise InvalidArgumentError(
                f"Expected sums below 2^62, but {size} examples of {_FINER * resolution} levels "
                f"exceed that. Choose a smaller resolution. {_CHARGED}"
            )
        if self.ranks not in (1, world) and not guess:
            raise InvalidArgumentError(
                f"Expected {self.ranks} ranks, because the batches of all of them are registered "
                f"as the units, but there are {world}. {_CHARGED}"
            )
        sums = super().accumulator(resolution, owner=owner, size=size, rank=rank, world=world)
        if isinstance(sums, WeightedLevels) and not guess:
            sums.finer = _FINER
        # Ranks that have a part each would have other batches than those registered, or repeat an
        # example in a mean. Only equal copies of everything are taken then.
        divided = self.ranks == world if self.batch_size is not None else not (size or 0) % world
        if world > 1 and not guess and not divided:
            sums.limit = 0
        return sums

    def settled(self, total: int, size: int, resolution: int) -> int:
        """Return the sum of levels over the units, rounded once: from the sum over examples. Raw.

        One batch changes ``total`` by at most 2 B L of 2 n L, and a number that moves by at most L
        moves by at most L when it is rounded.
        """
        if self.batch_size is None:
            return total
        whole = _FINER * size
        return (2 * total * self.units(size) + whole) // (2 * whole)

    def _own(self, size: int) -> int:
        if size % self.ranks:
            raise InvalidArgumentError(
                f"Expected a size that {self.ranks} ranks can divide, because a sampler that pads "
                f"would put an example into two batches, but got {size}. Use "
                f"{size - size % self.ranks} examples, or one rank."
            )
        return size // self.ranks

    def _empty(self, resolution: int) -> SealedSums:
        if self.batch_size is None:
            return SummedLevels(self.identity(), resolution, self._counted)
        return WeightedLevels(self.identity(), resolution, self._weighted)

    def _weighted(
        self, arguments: tuple[Any, ...], named: dict[str, Any], sums: WeightedLevels
    ) -> tuple[Tensor, int]:
        """Return the level of a batch and its size; of the holdout's it must be registered."""
        value, examples = batch_of(arguments, named)
        registered = sums.finer == _FINER and sums.size is not None
        if registered and examples != self._expected(sums.size or 0, sums._seen):
            raise other_batches(self)
        return self._quantise(value.reshape(1), sums.finer * sums.resolution), examples

    def _counted(self, arguments: tuple[Any, ...], named: dict[str, Any], resolution: int) -> Any:
        """Return a level for each example of a batch: as many right ones as its mean says."""
        value, examples = batch_of(arguments, named)
        if torch.finfo(value.dtype).eps * examples >= 0.5:  # the type decides, never a value
            raise InvalidArgumentError(
                f"Expected a mean whose type can count {counted(examples, 'example')}, but got "
                f"{value.dtype}. Use smaller batches, or log it as float32. {_CHARGED}"
            )
        right = self._quantise(value.reshape(1), examples)
        return (torch.arange(examples, device=right.device) < right).to(torch.int64) * resolution


def batch_of(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Tensor, int]:
    """Return the mean and the size of a batch that ``update(mean, batch_size)`` was called with."""
    given = dict(zip(("mean", "batch_size"), arguments, strict=False)) | named
    value, examples = given.get("mean"), given.get("batch_size")
    if isinstance(value, int | float):
        value = torch.tensor(float(value), dtype=torch.float64)
    two = len(given) == len(arguments) + len(named) == 2
    if not two or not isinstance(value, Tensor) or not is_one_number(value):
        raise InvalidArgumentError(
            "Expected `update(mean, batch_size)`: one number, the mean of a batch, and how many "
            f"examples it has, but got others. {_CHARGED}"
        )
    require_whole("batch_size", plain_whole(examples), 1, 2**40)
    mean = value if value.is_floating_point() else value.to(torch.float32)
    return mean.detach(), int(examples or 0)


def is_one_number(value: Any) -> bool:
    """Whether a value is a dense tensor of one real number."""
    return (
        isinstance(value, Tensor)
        and is_plain(value)
        and value.numel() == 1
        and not value.is_complex()
    )


def other_batches(statistic: LoggedMean) -> PartialPassError:
    """Return the error for batches that are not those registered."""
    among = f" on each of {statistic.ranks} ranks" if statistic.ranks > 1 else ""
    return PartialPassError(
        f"Expected batches of {statistic.batch_size} examples, all but the last{among}, because "
        f"they are registered as the units, but got others. Use DataLoader(dataset, batch_size="
        f"{statistic.batch_size}) with shuffle=False. {_CHARGED}"
    )


def _require_free_batches(low: float, high: float, batch_size: Any, ranks: int) -> None:
    if (low, high) != (0.0, 1.0):
        raise InvalidArgumentError(
            f"Expected low=0.0 and high=1.0 for kind='zero_one', which counts right examples, but "
            f"got low={low} and high={high}. For a percentage, log the fraction."
        )
    if batch_size is not None or ranks != 1:
        raise InvalidArgumentError(
            "Expected no `batch_size` and no `ranks` for kind='zero_one': examples are the units, "
            "however they are batched. Leave them out."
        )
