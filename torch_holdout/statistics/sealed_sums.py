"""Sealed sums: raw results of a pass over examples, which only the door opens."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn, final

import torch
from torch import Tensor

from torch_holdout._shared.tensors import is_plain
from torch_holdout.errors import InvalidArgumentError, SealedValueError
from torch_holdout.statistics.arrays import as_tensor, is_number
from torch_holdout.statistics.layouts import require_own_values
from torch_holdout.statistics.rows import Column, Listed, copied, listed_layout

_LARGEST_SQUARES = 2**62  # as for sums: one more batch cannot overflow 64 bits
_TOGETHER = 2**14  # examples of small batches that wait for each other


class SealedSums(ABC):
    """A raw sum on the device; it can only be added to and handed to the door.

    Under data-parallel evaluation with the usual padded sampler, example j of rank r is real if
    ``j * world + r < size``: each rank keeps its first ``ceil((size - r) / world)`` examples. What
    comes after them is kept apart: it is padding, or every rank has all rows. How many came may
    depend on their values (a step that filters), so that is sealed too.
    ``Statistic.accumulator`` makes one and describes its arguments.

    Example:
        >>> import torch, torch_holdout as th
        >>> sums = th.BoundedMean(0.0, 1.0).accumulator(resolution=65536)
        >>> sums.update(torch.tensor([0.25, 0.75]))
        >>> isinstance(sums, SealedSums), sums
        (True, <sealed sum>)
    """

    __slots__ = (
        "_beyond", "_kept", "_rows", "_sealed", "_seen", "_squares", "_squares_beyond", "identity",
        "limit", "owner", "resolution", "size", "world",
    )  # fmt: skip

    def __init__(self, identity: dict[str, Any], resolution: int) -> None:
        self.identity = identity
        self.resolution = resolution
        self.owner: tuple[str, ...] = ()
        self.world = 1
        self.size: int | None = None  # examples of the whole pass, registered
        self._seen = 0
        self._kept = 0
        self.limit: int | None = None
        self._sealed: Tensor | None = None
        self._beyond: Tensor | None = None  # of the examples after the limit
        self._squares: Tensor | None = None
        self._squares_beyond: Tensor | None = None
        self._rows: list[tuple[Tensor | list[Any], ...]] = []

    @property
    def keeps_squares(self) -> bool:
        """Whether the sum of squared levels is kept too."""
        return False

    @property
    def goes_by_place(self) -> bool:
        """Whether rows that have come were told apart by their places in the dataset alone."""
        return False

    @abstractmethod
    def update(self, *arguments: Any, **named: Any) -> None:
        """Add one batch. Works on any device and reads nothing back."""

    def update_counted(self, values: Tensor, counts: Tensor, examples: int) -> None:
        """Add ``counts[i]`` examples of value ``values[i]`` at once, ``examples`` in all."""
        raise InvalidArgumentError("Expected rows, not counts, for a statistic by blocks.")

    def _keep(self, batch: int) -> int:
        """Count a batch; return how many of its examples are real and not padding."""
        self._seen += batch
        if self.limit is not None:
            batch = min(batch, max(0, self.limit - self._kept))
        self._kept += batch
        return batch

    def __repr__(self) -> str:
        return "<sealed sum>"

    def _refuse(self, *_: object) -> NoReturn:
        raise SealedValueError(
            "Expected a sealed holdout sum to go to `ReusableHoldout.release`; it has no value, "
            "no copy and no pickle of its own. Ask the holdout for an answer instead."
        )

    __float__ = __int__ = __index__ = __complex__ = __array__ = _refuse
    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse


class SummedLevels(SealedSums):
    """Sums of integer levels, one level per example, and of their squares.

    Levels in several columns have a sum for each. The squares are kept if the registered size
    bounds their sum below 2^62.
    """

    __slots__ = ("_levels",)

    def __init__(
        self,
        identity: dict[str, Any],
        resolution: int,
        levels: Callable[[tuple[Any, ...], dict[str, Any], int], Tensor],
    ) -> None:
        super().__init__(identity, resolution)
        self._levels = levels

    @property
    def keeps_squares(self) -> bool:
        """Whether the sum of squared levels is kept too: it must fit into 64 bits."""
        return self.size is not None and self.size * self.resolution**2 < _LARGEST_SQUARES

    def update(self, *arguments: Any, **named: Any) -> None:
        """Add one batch. Works on any device and reads nothing back."""
        self._add(self._levels(arguments, named, self.resolution))

    def _add(self, levels: Tensor) -> None:
        levels = levels.clamp(0, self.resolution)
        kept = self._keep(len(levels))
        if kept < len(levels):
            rest = levels.narrow(0, kept, len(levels) - kept)
            levels = levels.narrow(0, 0, kept)
            self._beyond = _added(self._beyond, rest.sum(0))
            if self.keeps_squares:
                self._squares_beyond = _added(self._squares_beyond, (rest * rest).sum(0))
        self._sealed = _added(self._sealed, levels.sum(0))
        if self.keeps_squares:
            self._squares = _added(self._squares, (levels * levels).sum(0))

    def update_counted(self, values: Tensor, counts: Tensor, examples: int) -> None:
        """Add ``counts[i]`` examples of value ``values[i]`` at once, ``examples`` in all.

        The same integers as adding them one by one, for a histogram over a finite universe.
        """
        levels = self._levels((values,), {}, self.resolution).clamp(0, self.resolution)
        self._seen += examples
        self._kept += examples
        self._sealed = _added(self._sealed, (levels * counts).sum())
        if self.keeps_squares:
            self._squares = _added(self._squares, (levels * levels * counts).sum())


def _after_settling(name: str) -> Any:
    """Return an attribute of ``JoinedLevels`` before which what waits is added."""
    slot: Any = vars(SealedSums)[name]

    def read(sums: "JoinedLevels") -> Any:
        sums._settle()
        return slot.__get__(sums)

    return property(read, slot.__set__)


@final
class JoinedLevels(SummedLevels):
    """The same sums, of small batches together: values wait until there are enough, or a reader.

    Levels are made of each value by itself, so the integers are the same, with a fifth of the
    operations. A batch is checked and copied when it comes: its owner may reuse the memory.

    Args:
        identity: The statistic's.
        resolution: How many levels there are above 0.
        levels: As for ``SummedLevels``.
        values: Makes a batch's values, one per example, in memory of their own.
        quantise: Makes the levels of values.
    """

    __slots__ = ("_held", "_quantise", "_values", "_waiting")
    _sealed = _after_settling("_sealed")
    _beyond = _after_settling("_beyond")
    _kept = _after_settling("_kept")
    _squares = _after_settling("_squares")
    _squares_beyond = _after_settling("_squares_beyond")

    def __init__(
        self,
        identity: dict[str, Any],
        resolution: int,
        levels: Callable[[tuple[Any, ...], dict[str, Any], int], Tensor],
        *,
        values: Callable[[tuple[Any, ...], dict[str, Any]], Tensor],
        quantise: Callable[[Tensor, int], Tensor],
    ) -> None:
        self._waiting: list[Tensor] = []
        self._held = 0  # examples that wait
        self._values = values
        self._quantise = quantise
        super().__init__(identity, resolution, levels)

    def update(self, *arguments: Any, **named: Any) -> None:
        """Add one batch. Works on any device and reads nothing back."""
        values = self._values(arguments, named)
        if self._waiting and values.device != self._waiting[0].device:
            self._settle()
        self._waiting.append(values)
        self._held += len(values)
        self._seen += len(values)
        if self._held >= _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            values = waiting[0] if len(waiting) == 1 else torch.cat(waiting)
            self._seen -= self._held  # they are counted where padding is told apart
            self._held = 0
            self._add(self._quantise(values, self.resolution))


@final
class WeightedLevels(SealedSums):
    """The sum of batches' levels, each times its batch's size.

    ``finer`` is how many levels a batch has for each one of the resolution.
    """

    __slots__ = ("_weighted", "finer")

    def __init__(
        self,
        identity: dict[str, Any],
        resolution: int,
        weighted: Callable[[tuple[Any, ...], dict[str, Any], "WeightedLevels"], tuple[Tensor, int]],
    ) -> None:
        super().__init__(identity, resolution)
        self._weighted = weighted
        self.finer = 1

    def update(self, *arguments: Any, **named: Any) -> None:
        """Add one batch. Works on any device and reads nothing back."""
        levels, examples = self._weighted(arguments, named, self)
        level = levels.clamp(0, self.finer * self.resolution).sum()
        kept = self._keep(examples)
        if kept < examples:
            self._beyond = _added(self._beyond, level * (examples - kept))
        self._sealed = _added(self._sealed, level * kept)


@final
class BufferedRows(SealedSums):
    """Rows kept on the device until the pass is over, for a statistic that needs them together.

    ``try_out`` is told the layout of the first rows, and how many examples the holdout has.
    """

    __slots__ = ("_room", "_try_out")

    def __init__(
        self,
        identity: dict[str, Any],
        resolution: int,
        try_out: Callable[[tuple[Column | Listed, ...], int | None], None],
    ) -> None:
        super().__init__(identity, resolution)
        self._try_out = try_out
        self._room: tuple[Tensor, ...] = ()  # memory for the whole pass

    def update(self, *arguments: Any, **named: Any) -> None:
        """Keep one batch. Works on any device and reads nothing back."""
        rows = checked_rows(arguments, named)
        layout = _layout(rows)
        if not self._rows:
            # Of lists the first row: what others hold is compared with nothing, it is data.
            first = zip(layout, rows, strict=True)
            self._try_out(
                tuple(listed_layout(list(rows)) if c is None else c for c, rows in first), self.size
            )
        elif layout != _layout(self._rows[0]):
            raise InvalidArgumentError(
                "Expected every batch to have the same number of tensors, shapes beyond the batch "
                "and types as the first, but this one differs. Nothing was released or charged."
            )
        self._keep(len(rows[0]))
        if not self._rows and self.world == 1 and self.size is not None:
            self._room = self._empty_columns(rows, self.size)
        if not self._wrote(rows):
            # Copies: a caller that reuses its buffers would put one example into many blocks.
            kept = tuple(
                column.clone() if isinstance(column, Tensor) else [copied(row) for row in column]
                for column in rows
            )
            self._rows.append(kept)

    def _empty_columns(self, rows: tuple[Any, ...], size: int) -> tuple[Tensor, ...]:
        """Return memory for all rows of the pass, so that they are never joined by another copy."""
        if not all(isinstance(column, Tensor) for column in rows) or len(rows[0]) > size:
            return ()
        with torch.inference_mode(False):  # or it could not be written to outside of it
            return tuple(column.new_empty((size, *column.shape[1:])) for column in rows)

    def _wrote(self, rows: tuple[Any, ...]) -> bool:
        """Write rows into that memory, behind those before; return False if they do not fit."""
        start = len(self._rows[0][0]) if self._rows else 0
        stop = start + len(rows[0])
        if not self._room or len(self._rows) > 1 or stop > len(self._room[0]):
            return False
        with torch.inference_mode(False), torch.no_grad():
            for column, batch in zip(self._room, rows, strict=True):
                column[start:stop].copy_(batch)
            self._rows = [tuple(column[:stop] for column in self._room)]
        return True


def _added(total: Tensor | None, batch: Tensor) -> Tensor:
    # Not in place: a tensor made under inference_mode could not be changed outside it.
    return batch if total is None else total.to(batch.device) + batch


def checked_rows(
    arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Tensor | list[Any], ...]:
    """Return the columns of one batch; raise unless all have the same number of rows."""
    arguments = tuple(a if _holds_rows(a) else as_tensor(a) for a in arguments)
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    lists = [a for a in arguments if isinstance(a, list | tuple)]
    dense = all(is_plain(a) and a.ndim for a in tensors)
    whole = bool(arguments) and not named and len(tensors) + len(lists) == len(arguments)
    together = dense and len({len(a) for a in arguments}) == 1 if whole else False
    if not together or len({a.device for a in tensors}) > 1:
        raise InvalidArgumentError(
            f"Expected `update(preds, target, ...)` with dense tensors on one device that have the "
            f"batch first, or lists with one entry for each row, all equally long, but got "
            f"{len(arguments)} arguments that are not."
        )
    for column in tensors:
        require_own_values(column)
    return tuple(a.detach() if isinstance(a, Tensor) else list(a) for a in arguments)


def _holds_rows(argument: object) -> bool:
    """Whether it is a list of rows of any kind, and not of numbers; the first one tells."""
    return isinstance(argument, list | tuple) and bool(argument) and not is_number(argument[0])


def _layout(rows: tuple[Tensor | list[Any], ...]) -> tuple[Column | None, ...]:
    """Return the layout of each tensor; None for a list."""
    return tuple(
        Column(column.dtype, column.device, tuple(column.shape[1:]))
        if isinstance(column, Tensor)
        else None
        for column in rows
    )
