"""A metric's dry run on made-up rows: what can never give a number is refused before a charge.

The rows have the layout of the real ones (types, shapes beyond the batch, device, block size) and
nothing of their values, so whatever the metric does with them may be told.
"""

import math
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_holdout._noise.fixed import normal_numbers
from torch_holdout._noise.generators import lent_generator
from torch_holdout.errors import HoldoutWarning, InvalidArgumentError
from torch_holdout.statistics.rows import Column, Listed, device_of, made_up_rows
from torch_holdout.statistics.undefined import heard_warnings

# Errors of code, not of values. A ValueError may be about the values and is not a reason to refuse.
_NOT_ABOUT_VALUES = (TypeError, AttributeError, NameError, ImportError, NotImplementedError)
_MOST_ROWS = 256
_SEVERAL = "gave several"


class NoSuchEntryError(InvalidArgumentError):
    """Raised where a metric's result has no entry of the name or number that was selected."""


Layout = tuple[Column | Listed, ...]
Arguments = tuple[Tensor | list[Any], ...]


def require_one_number(compute: Callable[..., Any], name: str, columns: Layout, rows: int) -> None:
    """Raise if a metric gives no single number for any made-up rows of this layout.

    One that fails in ways that may be about the values is only warned of; so is one whose rows are
    of a type that cannot be made up, which is not tried.

    Example:
        >>> column = Column(torch.float32, torch.device("cpu"), ())
        >>> require_one_number(lambda preds, target: preds * target, "product", (column,) * 2, 8)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected the metric product to give one number
        for a block of rows, but for made-up rows of the same layout (2 tensors: torch.float32,
        torch.float32) it gave several. ...
    """
    unknown = [str(each) for each in columns if isinstance(each, Listed) and not each.known]
    if unknown:
        warnings.warn(
            f"The metric {name} was not tried on made-up rows, because some of its rows are of "
            f"types that cannot be made up ({', '.join(unknown)}). A block on which it gives no "
            f"number counts as degenerate. Call it on training rows first.",
            HoldoutWarning,
            stacklevel=2,
        )
        return
    try:
        tries = list(_tries(columns, min(rows, _MOST_ROWS)))
    except (RuntimeError, TypeError):  # a type or device that none can be made for
        return
    failures: list[tuple[str, bool]] = []  # what came instead, and whether values cannot help
    for arguments in tries:
        device = device_of(arguments) or torch.device("cpu")
        with heard_warnings(), torch.no_grad(), lent_generator("made-up rows", device=device):
            failure = _failure(compute, arguments)
        if failure is None:
            return
        failures.append(failure)
        if failure[0] == _SEVERAL:
            break
    types = ", ".join(str(c.dtype) if isinstance(c, Column) else f"list of {c}" for c in columns)
    arguments_noun = "tensors" if all(isinstance(c, Column) for c in columns) else "arguments"
    came, _ = failures[0] if failures[-1][0] != _SEVERAL else failures[-1]
    problem = (
        f"Expected the metric {name} to give one number for a block of rows, but for made-up rows "
        f"of the same layout ({len(columns)} {arguments_noun}: {types}) it {came}."
    )
    # Values may be wrong for it in some of the tries: most of them decide.
    if came == _SEVERAL or 2 * sum(hopeless for _, hopeless in failures) > len(failures):
        raise InvalidArgumentError(
            f"{problem} On the holdout every block would count as degenerate. Choose one entry "
            f"(select=...) or an average (average='macro', ...), or call it on training rows to "
            f"see the error. Nothing was charged."
        )
    warnings.warn(
        f"{problem} If it does so on the holdout, the block counts as degenerate. Call it on "
        f"training rows first.",
        HoldoutWarning,
        stacklevel=2,
    )


def _failure(compute: Callable[..., Any], arguments: Arguments) -> tuple[str, bool] | None:
    """Return what came instead of one number; None if one came."""
    try:
        value = compute(*arguments)
        count = math.prod(value.shape) if isinstance(value, Tensor | np.ndarray) else 1
        if count > 1:
            return _SEVERAL, True
        if count == 0:
            return "gave none", False
    except NoSuchEntryError:
        return "gave a result without the entry that `select` names", True
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"raised {type(error).__name__} in {place.name}, line {place.lineno}"
        return where, isinstance(error, _NOT_ABOUT_VALUES)
    if isinstance(value, Mapping):  # of made-up rows: its keys are no secret
        return f"gave dict with the keys {sorted(map(str, value))}", True
    try:
        float(value)
    except Exception:
        return f"gave {type(value).__name__}", True
    return None


def _tries(columns: Layout, rows: int) -> Iterator[Arguments]:
    """Yield plausible arguments: probabilities, logits, 0 and 1, amounts; classes, signs."""
    tensors = [column for column in columns if isinstance(column, Column)]
    scores = [c.shape[0] for c in tensors if c.dtype.is_floating_point and c.shape]
    classes = max(scores[0], 2) if scores else 2
    for floats, labels in (
        (_probabilities, classes),
        (_probabilities, 2),
        (_logits, classes),
        (_logits, 2),
        (_zeros_and_ones, 2),
        (_amounts, classes),
        (_amounts, -1),
    ):
        made = partial(_column, floats=floats, labels=labels)
        yield tuple(
            made(column, (rows, *column.shape), seed)
            if isinstance(column, Column)
            else made_up_rows(column, rows, made)
            for seed, column in enumerate(columns)
        )


def _column(
    column: Column,
    shape: tuple[int, ...],
    seed: int,
    *,
    floats: Callable[[tuple[int, ...], int], Tensor],
    labels: int,
) -> Tensor:
    if column.dtype.is_floating_point or column.dtype.is_complex:
        made = floats(shape, seed)
    elif labels == -1:
        made = 2 * (_counted(shape) % 2) - 1
    else:
        made = _counted(shape) % (2 if column.dtype is torch.bool else labels)
    return made.to(device=column.device, dtype=column.dtype)


def _counted(shape: tuple[int, ...]) -> Tensor:
    return torch.arange(math.prod(shape)).view(shape)


def _logits(shape: tuple[int, ...], seed: int) -> Tensor:
    return 3 * normal_numbers(shape, seed)


def _probabilities(shape: tuple[int, ...], seed: int) -> Tensor:
    logits = _logits(shape, seed)
    return logits.softmax(dim=1) if len(shape) > 1 and shape[1] > 1 else logits.sigmoid()


def _zeros_and_ones(shape: tuple[int, ...], seed: int) -> Tensor:
    return _counted(shape) % 2


def _amounts(shape: tuple[int, ...], seed: int) -> Tensor:
    return 1 + normal_numbers(shape, seed).abs()
