"""Checks of the holdout's loader: each example once, none left out, one value for each."""

import copy
from collections.abc import Hashable, Iterable, Mapping
from itertools import chain, islice
from typing import Any, final

import numpy as np
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
)

from torch_holdout._noise.generators import lent_generators
from torch_holdout._shared.distributed import rank_and_world, share_of
from torch_holdout._shared.text import counted
from torch_holdout.errors import InvalidArgumentError, PartialPassError
from torch_holdout.holdout.protocol import Door
from torch_holdout.statistics import LoggedMean, Statistic
from torch_holdout.statistics.logged_mean import other_batches
from torch_holdout.training.data_reading import origins
from torch_holdout.training.requirements import require_in_order, shuffles

_CHARGED = "Nothing was released or charged."


@final
class HoldoutLoader:
    """The loader of a holdout, checked when it is made, before anything is read from it.

    What a loader does not tell (a custom loader, a dataset without a length, an own collation that
    makes several examples of one item) is left to the count at the end of the pass.

    Args:
        loader: As the Trainer iterates it.
        holdout: The account.
        statistics: Those that are asked for; None for all of the holdout.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=50, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=1)
        >>> HoldoutLoader(DataLoader(range(50), batch_size=20), holdout).rows(batch=2)
        range(10, 11)
        >>> HoldoutLoader(DataLoader(range(50), batch_size=20, drop_last=True), holdout)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.PartialPassError: Expected a pass over all 50 examples of holdout
        'val', each once, but its loader has drop_last=True and leaves out the last 10. ...
    """

    def __init__(
        self, loader: Any, holdout: Door, statistics: Mapping[str, Statistic] | None = None
    ) -> None:
        statistics = holdout.statistics if statistics is None else statistics
        self.loader = loader
        self._holdout = holdout
        self._examples: int | None = None  # that this process reads, if the loader tells
        self._doubt: tuple[int, str] | None = None  # items of the first batch, and what is wrong
        self._ordered: bool | None = None  # whether it keeps the dataset's order, once that matters
        require_in_order(loader, statistics)
        ordered = [name for name, each in statistics.items() if each.needs_order]
        if ordered and not _keeps_order(loader, holdout.size):
            raise InvalidArgumentError(
                f"Expected a loader that keeps the dataset's order, because {ordered} need it: "
                f"where a sampler sorts, one other example moves many. Use DataLoader(dataset, "
                f"batch_size=...) with shuffle=False and no sampler of its own. {_CHARGED}"
            )
        for name, statistic in statistics.items():
            if isinstance(statistic, LoggedMean):
                _require_registered_batches(loader, name, statistic, holdout.size)
        if not isinstance(loader, DataLoader):
            if _length(loader) == 0:
                raise PartialPassError(f"{self._whole()} its loader is empty. {_CHARGED}")
            return
        self._require_each_once(loader)
        self._require_all(loader)

    def rows(self, batch: int) -> range | None:
        """Return how many examples a batch may have; None if the loader does not tell."""
        if not isinstance(self.loader, DataLoader) or (batches := _batches(self.loader)) is None:
            return None
        size = batches.batch_size
        if self._examples is not None:
            expected = max(0, min(size, self._examples - batch * size))
            return range(expected, expected + 1)
        iterates = isinstance(self.loader.dataset, IterableDataset)
        return range(size + 1) if iterates and not _collates(self.loader) else None

    def require_values(self, name: str, values: int, batch: int) -> None:
        """Raise unless a step returned one value for each example of a batch."""
        if self._doubt is not None and batch == 0 and values == self._doubt[0]:
            raise PartialPassError(self._doubt[1])
        rows = self.rows(batch)
        if rows is None or values in rows:
            return
        examples = rows[-1]
        # A count that is no multiple may be a value: how many examples passed a filter.
        times, rest = divmod(values, examples) if examples else (0, 1)
        number = f"{times} values for each example" if times > 1 and not rest else "another number"
        raise PartialPassError(
            f"Expected one value of {name!r} for each of the {counted(examples, 'example')} of a "
            f"batch, but the step returned {number}. Return one per example: the mean over its "
            f"tokens or pixels (e.g. values.view(batch_size, -1).mean(1)), and 0 instead of "
            f"leaving an example out. {_CHARGED}"
        )

    def require_places(self, name: str) -> None:
        """Raise if the rows' places in the dataset are not known, which tell their groups."""
        if self._ordered is None:
            self._ordered = not shuffles(self.loader) and _keeps_order(
                self.loader, self._holdout.size
            )
        if not self._ordered:
            raise InvalidArgumentError(
                f"Expected the ids of the rows with the values of {name!r}, because the loader "
                f"shuffles or sorts, and their places do not tell their groups. Return (values, "
                f"ids), the ids as `groups` was given, or use shuffle=False and no sampler of its "
                f"own. {_CHARGED}"
            )

    def _whole(self) -> str:
        size, name = self._holdout.size, self._holdout.name
        return f"Expected a pass over all {size} examples of holdout {name!r}, each once, but"

    def _require_each_once(self, loader: DataLoader[Any]) -> None:
        if (place := _repeating(loader, self._holdout.size)) is not None:
            raise PartialPassError(
                f"{self._whole()} {place} repeats examples: one that is drawn twice counts twice. "
                f"Use DataLoader(dataset, batch_size=...) over the holdout's own examples. "
                f"{_CHARGED}"
            )

    def _require_all(self, loader: DataLoader[Any]) -> None:
        """Compare the number of examples with the holdout's size."""
        size, whole = self._holdout.size, f"{self._whole()} its loader has"
        if (total := _total(loader, size)) is None:
            return
        sampler, batches = _sampler(loader), _batches(loader)
        rank, world = rank_and_world()
        divided = isinstance(sampler, DistributedSampler)
        shares = set() if divided else {share_of(size, each, world) for each in (0, rank)}
        if total not in {size, *shares}:
            problem = (
                f"{whole} {counted(total, 'example')}{_times(size, total)}. Validate on the "
                f"holdout's own data, or create the holdout with size=len(dataset). {_CHARGED}"
            )
            if total > size or not _collates(loader):
                raise PartialPassError(problem)
            if batches is not None:  # an item may become several examples: the first batch tells
                self._doubt = min(batches.batch_size, total), problem
            return
        own = len(sampler) if divided else total
        dropped = total % sampler.num_replicas if divided and sampler.drop_last else 0
        if batches is not None and batches.drop_last and not dropped:
            dropped = own % batches.batch_size
        if dropped:
            raise PartialPassError(
                f"{whole} drop_last=True and leaves out the last {dropped}. Use "
                f"drop_last=False. {_CHARGED}"
            )
        if batches is not None and not isinstance(loader.dataset, IterableDataset):
            self._examples = own


def _require_registered_batches(loader: Any, name: str, statistic: LoggedMean, size: int) -> None:
    """Raise unless a loader cuts the holdout into the batches that a ``LoggedMean`` registers."""
    if not isinstance(loader, DataLoader):
        if statistic.kind == "mean":
            raise _other_order(name, statistic, type(loader).__name__)
        return
    sampler = _sampler(loader)
    divided = isinstance(sampler, DistributedSampler)
    if divided and size % sampler.num_replicas:
        raise PartialPassError(
            f"Expected a holdout that {sampler.num_replicas} ranks can divide, because the sampler "
            f"pads and the mean of a batch of {name!r} would count an example twice, but it has "
            f"{size} examples. Use {size - size % sampler.num_replicas} of them, or one rank. "
            f"{_CHARGED}"
        )
    if statistic.kind == "mean":
        _require_same_cut(loader, name, statistic)


def _require_same_cut(loader: DataLoader[Any], name: str, statistic: LoggedMean) -> None:
    sampler, batches = _sampler(loader), _batches(loader)
    divided = isinstance(sampler, DistributedSampler)
    first = _undivided(sampler)
    known = type(first) is SequentialSampler or (divided and isinstance(first, Dataset))
    if batches is None or isinstance(loader.dataset, IterableDataset) or not known:
        raise _other_order(name, statistic, type(loader.batch_sampler if known else first).__name__)
    if divided and sampler.shuffle:
        raise _other_order(name, statistic, "a sampler that shuffles")
    if batches.batch_size != statistic.batch_size:
        raise other_batches(statistic)
    ranks = sampler.num_replicas if divided else 1
    if statistic.ranks != ranks and not (statistic.ranks > 1 and not divided):
        raise PartialPassError(
            f"Expected the batches of {counted(statistic.ranks, 'rank')} that {name!r} registers "
            f"as its units, but this loader is divided among {ranks}. Make the holdout with "
            f"th.LoggedMean(..., ranks={ranks}), or use as many ranks as it was made with. "
            f"{_CHARGED}"
        )


def _other_order(name: str, statistic: LoggedMean, found: str) -> PartialPassError:
    return PartialPassError(
        f"Expected a loader that keeps the dataset's order, because the batches of {name!r} are "
        f"registered as its units, but it has {found}. Use DataLoader(dataset, batch_size="
        f"{statistic.batch_size}) with shuffle=False and no sampler of its own. {_CHARGED}"
    )


def _times(size: int, total: int) -> str:
    if total and size % total == 0:
        return f" ({size // total} values for each? An example has one: its mean)"
    return f" ({total // size} times as many)" if total and total % size == 0 else ""


def _collates(loader: DataLoader[Any]) -> bool:
    return loader.collate_fn is not default_collate


def _sampler(loader: DataLoader[Any]) -> Any:
    return getattr(loader.batch_sampler, "sampler", loader.sampler)


def _batches(loader: DataLoader[Any]) -> BatchSampler | None:
    """Return torch's own batch sampler, all of whose batches but the last have one size."""
    batches = loader.batch_sampler
    return batches if type(batches) is BatchSampler else None


def _total(loader: DataLoader[Any], size: int) -> int | None:
    """Return how many examples all ranks' loaders have together, or this one; None if unknown."""
    if loader.batch_sampler is None:
        return None  # the dataset's items may be batches
    if isinstance(loader.dataset, IterableDataset):
        return _length(loader.dataset)
    if _batches(loader) is None:
        drawn = _drawn(loader.batch_sampler, size, batched=True)
        return None if drawn is None else len(drawn)
    return _length(_undivided(_sampler(loader)))


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # whatever a dataset does without a length
        return None


def _undivided(sampler: Any) -> Any:
    """Return what is divided among ranks: a dataset, or the sampler that Lightning wraps."""
    if isinstance(sampler, DistributedSampler):
        return getattr(sampler.dataset, "_sampler", sampler.dataset)
    return sampler


def _repeating(loader: DataLoader[Any], size: int) -> str | None:
    """Return what repeats examples: a sampler's class, or the dataset; None if nothing is known."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    samplers = [_undivided(_sampler(loader))]
    if isinstance(samplers[0], BatchSampler):  # batches of indices for a dataset that takes them
        samplers = [samplers[0].sampler]
    elif loader.batch_sampler is not None and _batches(loader) is None:
        samplers.append(loader.batch_sampler)
    for sampler in samplers:
        if _repeats(sampler, size, batched=sampler is loader.batch_sampler):
            return type(sampler).__name__
    if isinstance(loader.dataset, Subset | ConcatDataset) and _has_copies(loader.dataset):
        return f"its {type(loader.dataset).__name__}"
    return None


def _repeats(sampler: Any, size: int, *, batched: bool) -> bool:
    if getattr(sampler, "replacement", False):
        return True
    if isinstance(sampler, RandomSampler):
        total = _length(sampler.data_source)
        return total is not None and sampler.num_samples > total
    if sampler is None or type(sampler) is SequentialSampler or isinstance(sampler, Dataset):
        return False
    drawn = _drawn(sampler, size, batched=batched)
    return drawn is not None and _twice(drawn)


def _keeps_order(loader: Any, size: int) -> bool:
    """Whether a loader reads the dataset from its first row to its last, as far as is known."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return True
    sampler, batched = _sampler(loader), _batches(loader) is None
    divided, (_, world) = isinstance(sampler, DistributedSampler), rank_and_world()
    if divided:  # of what is divided, the order of all ranks together
        sampler = getattr(sampler.dataset, "_sampler", None)
    if sampler is None or ((batched or not divided) and world > 1):
        return True
    if type(sampler) is SequentialSampler and not batched:
        return True
    batches: Any = loader.batch_sampler
    drawn = _drawn(batches if batched else sampler, size, batched=batched)
    return drawn is None or drawn == list(range(len(drawn)))


def _drawn(sampler: Iterable[Any], size: int, *, batched: bool) -> list[Hashable] | None:
    """Return what a copy of a sampler draws, up to one too many; None if it cannot be copied."""
    try:
        shared = (Dataset, Tensor, nn.Module)
        parts = vars(sampler).values() if hasattr(sampler, "__dict__") else ()
        memo = {id(part): part for part in parts if isinstance(part, shared)}
        with lent_generators("the holdout's sampler"):
            drawn = copy.deepcopy(sampler, memo)
            indices = chain.from_iterable(drawn) if batched else drawn
            return [_index(each) for each in islice(indices, size + 1)]
    except Exception:  # foreign code: what it refuses is not known
        return None


def _index(index: Any) -> Hashable:
    plain: Hashable = index.item() if hasattr(index, "item") else index
    hash(plain)
    return plain


def _twice(drawn: Iterable[Hashable]) -> bool:
    listed = list(drawn)
    return len(set(listed)) < len(listed)


def _has_copies(dataset: Any) -> bool:
    try:
        return any(len(np.unique(numbers)) < len(numbers) for numbers in origins(dataset).values())
    except Exception:  # indices of another kind
        return False
