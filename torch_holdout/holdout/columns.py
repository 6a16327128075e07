"""Rows that a statistic needs together, of all ranks and in the dataset's order. Raw."""

import pickle
from collections.abc import Iterable
from itertools import chain, zip_longest
from typing import Any

import torch
from torch import Tensor

from torch_holdout._fingerprints.hashing import digest
from torch_holdout._shared.distributed import gathered_objects, gathered_rows, same_rows
from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import HoldoutError, InvalidArgumentError, PartialPassError
from torch_holdout.statistics import SealedSums
from torch_holdout.statistics.rows import device_of, mapped

Columns = tuple[Tensor | list[Any], ...]
_PADDING = object()


def require_sendable(sums: Iterable[object], world: int) -> None:
    """Raise if rows in lists cannot be sent to other ranks.

    Before the ranks exchange anything: one that failed between two exchanges would leave the others
    waiting.
    """

    def refusal(failure: str) -> HoldoutError:
        return InvalidArgumentError(
            f"Expected rows that can be sent between ranks (tensors, arrays, numbers, text, and "
            f"lists and dictionaries of these), but pickling them raised {failure}. Nothing was "
            f"charged."
        )

    if world == 1:
        return
    lists = [rows for own in sums for rows in _columns(own) if isinstance(rows, list)]
    errors_by_type(lambda: pickle.dumps(mapped(lists, _on_host)), refusal)


def holdout_columns(sums: SealedSums, copied: bool) -> Columns:
    """Return all rows of the holdout in the dataset's order, from shares or equal copies."""
    columns = _columns(sums)
    if not copied:
        return _gathered(tuple(column[: sums._kept] for column in columns), sums.world)
    if not _same(columns, sums.world):
        raise PartialPassError(
            "Expected the same rows in the same order on every rank that has all of them, but they "
            "differ. Use a DistributedSampler. Nothing was released or charged."
        )
    return columns


def guess_columns(sums: object, world: int) -> Columns:
    """Return all ranks' rows of a guess."""
    return _gathered(_columns(sums), world)


def _columns(sums: object) -> Columns:
    batches = sums._rows if isinstance(sums, SealedSums) else []
    return tuple(
        list(chain.from_iterable(parts))
        if isinstance(parts[0], list)
        else parts[0]
        if len(parts) == 1  # the whole pass, as it was written: no second copy
        else torch.cat(parts)
        for parts in zip(*batches, strict=True)
    )


def _gathered(columns: Columns, world: int) -> Columns:
    """Return every rank's rows in the order of the dataset: rank r has rows r, r + world, ...

    A rank without rows takes part with none.
    """
    if world == 1:
        return columns
    kinds = gathered_objects([isinstance(column, list) for column in columns], world)
    pattern: list[bool] = next((known for known in kinds if known), [])
    if any(known not in ([], pattern) for known in kinds):  # the same on every rank: none is left
        raise HoldoutError(
            "Expected rows of the same kinds on every rank, but they differ; nothing was released "
            "or charged."
        )
    own = tuple(column for column in columns if isinstance(column, Tensor))
    tensors = iter(gathered_rows(own, world))
    device = device_of(columns) or torch.device("cpu")
    return tuple(
        _gathered_list(columns[place] if columns else [], world, device)
        if is_list
        else next(tensors)
        for place, is_list in enumerate(pattern)
    )


def _gathered_list(rows: Any, world: int, device: torch.device) -> list[Any]:
    parts = gathered_objects(mapped(rows, _on_host), world)
    mixed = chain.from_iterable(zip_longest(*parts, fillvalue=_PADDING))
    real = [row for row in mixed if row is not _PADDING]
    return [mapped(row, lambda p: p.to(device) if isinstance(p, Tensor) else p) for row in real]


def _same(columns: Columns, world: int) -> bool:
    """Whether every rank has the same rows; all ranks get the same answer."""
    tensors = tuple(column for column in columns if isinstance(column, Tensor))
    lists = [digest(column, lenient=True) for column in columns if isinstance(column, list)]
    same = same_rows(tensors, world)
    return same and len({tuple(each) for each in gathered_objects(lists, world)}) == 1


def _on_host(part: Any) -> Any:
    return part.cpu() if isinstance(part, Tensor) else part
