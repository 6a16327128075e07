"""Values that stand for a batch instead of an example, found by evaluating half of the batch."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from torch_holdout._shared.distributed import on_any_rank
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.training.first_look.looking import run_aside


def require_unpooled(
    run: Callable[[Any], Any], batch: Any, output: Any, owners: Iterable[Any]
) -> None:
    """Raise if a step gives all examples of a batch one number, and half of them another.

    Such a number is a mean over the batch: each example would count as often as the batch is large,
    whatever its layout (expanded, repeated, multiplied by ones).

    Example:
        >>> import torch
        >>> def step(x):
        ...     return {"val_loss": x.mean().repeat(len(x))}
        >>> batch = torch.arange(4.0)
        >>> require_unpooled(step, batch, step(batch), [])
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected one value for each example...
    """
    pooled = _constant(output)
    if not on_any_rank(bool(pooled)):
        return
    size = max(map(len, _vectors(output).values()), default=0)
    # On every rank, also where values differ: a step may wait for the others.
    others = _constant(run_aside(run, _first_half(batch, size), owners))
    means = [
        name
        for name, values in pooled.items()
        if name in others and len(others[name]) == size // 2 and values[0] != others[name][0]
    ]
    if on_any_rank(bool(means)):
        raise InvalidArgumentError(
            f"Expected one value for each example, but {means or 'values of another rank'} are one "
            f"number for the whole batch, which changes when the batch is cut: an example would "
            f"count as often as its batch is large. Return the values before they are averaged, "
            f'e.g. with reduction="none". Nothing was charged.'
        )


def _vectors(output: Any) -> dict[str, Tensor]:
    if not isinstance(output, Mapping):
        return {}
    firsts = {  # ids or targets come after the values
        name: values[0] if isinstance(values, tuple) and values else values
        for name, values in output.items()
    }
    return {
        name: values
        for name, values in firsts.items()
        if isinstance(values, Tensor) and values.ndim == 1 and len(values) > 1
    }


def _constant(output: Any) -> dict[str, Tensor]:
    """Return those of a step's results that give all examples the same number."""
    return {
        name: values
        for name, values in _vectors(output).items()
        if values.is_floating_point() and bool((values == values[0]).all())
    }


def _first_half(batch: Any, size: int) -> Any:
    if isinstance(batch, Tensor):
        return batch[: size // 2] if batch.ndim and len(batch) == size else batch
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_first_half(part, size) for part in batch))
    if isinstance(batch, list | tuple):
        if len(batch) == size and not any(isinstance(part, Tensor) for part in batch):
            return batch[: size // 2]
        return type(batch)(_first_half(part, size) for part in batch)
    if isinstance(batch, Mapping):
        return {key: _first_half(part, size) for key, part in batch.items()}
    return batch
