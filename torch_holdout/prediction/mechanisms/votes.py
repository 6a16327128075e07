"""Votes counted from members' outputs: one for each member and query."""

import torch
from torch import Tensor

from torch_holdout._shared.checks import require_instance
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.mechanisms.host_votes import count_bytes, first_largest, on_host


def vote_table(outputs: Tensor) -> Tensor:
    """Count the classes that members prefer.

    Each member gives each query exactly one vote: the first of its largest scores. A score that is
    not a number makes it a vote for class 0, silently, because a message would be an answer, too.

    Scores [members, queries, classes] of at least two classes become int64 [queries, classes].

    Example:
        >>> scores = torch.tensor([[[0.1, 0.9]], [[0.2, 0.2]], [[float("nan"), 1.0]]])
        >>> vote_table(scores)
        tensor([[2, 1]])
    """
    return count_votes(preferred_classes(outputs), outputs.shape[-1])


def preferred_classes(outputs: Tensor) -> Tensor:
    """Return the class [members, queries] that each member prefers, uint8 or int64.

    Example:
        >>> preferred_classes(torch.tensor([[[0.0, 2.0, 2.0]]]))
        tensor([[1]])
    """
    require_scores(outputs)
    if on_host(outputs, outputs.shape[0] * outputs.shape[1], outputs.shape[2]):
        return first_largest(outputs)
    # `max` is the fastest exact reduction on a CPU, and passes on what is not a number.
    best, label = outputs.detach().max(dim=-1)
    return label.masked_fill(best.isnan(), 0)


def count_votes(labels: Tensor, num_classes: int) -> Tensor:
    """Count the labels [members, queries] of each query.

    Example:
        >>> count_votes(torch.tensor([[0, 1], [0, 2]]), num_classes=3)
        tensor([[2, 0, 0],
                [0, 1, 1]])
    """
    if labels.dtype == torch.uint8:
        return count_bytes(labels, num_classes)
    # 32 bits hold any number of members, and take half of the memory.
    counts = torch.zeros((labels.shape[1], num_classes), dtype=torch.int32, device=labels.device)
    ones = torch.ones((), dtype=torch.int32, device=labels.device).expand(labels.T.shape)
    return counts.scatter_add_(1, labels.T, ones).to(torch.int64)


def require_scores(outputs: Tensor) -> None:
    """Raise unless outputs have the shape and type of scores; no value is looked at."""
    require_instance("outputs", outputs, Tensor)
    shape = tuple(outputs.shape)
    if len(shape) != 3 or shape[2] < 2:
        raise InvalidArgumentError(
            "Expected the members' outputs to have the shape [members, queries, classes] with at "
            f"least 2 classes, but got {list(shape)}. Stack one score for each class."
        )
    if outputs.dtype.is_complex or outputs.dtype == torch.bool:
        raise InvalidArgumentError(
            f"Expected the members' outputs to be real numbers, but got {outputs.dtype}. Convert "
            "them to floating point."
        )


def require_table(table: Tensor, width: int) -> None:
    """Raise unless a table has one row of ``width`` whole numbers for each query."""
    if table.dim() != 2 or table.shape[1] != width or table.dtype != torch.int64:
        raise InvalidArgumentError(
            f"Expected a table [queries, {width}] of whole numbers (int64), but got "
            f"{list(table.shape)} of {table.dtype}. Pass what `table` returned."
        )


def is_like(outputs: object, pattern: Tensor) -> bool:
    """Whether outputs [members, ...] have the twin's shape, type and device; no value is read.

    Example:
        >>> is_like(torch.zeros(5, 2, 3), torch.zeros(2, 3)), is_like(torch.zeros(5, 1, 3), "no")
        (True, False)
    """
    return (
        isinstance(outputs, Tensor)
        and type(outputs) is type(pattern)
        and outputs.shape[1:] == pattern.shape
        and (outputs.dtype, outputs.layout) == (pattern.dtype, pattern.layout)
        and outputs.device == pattern.device
    )


def without_numbers(pattern: Tensor) -> Tensor:
    """Return what counts for a member that fails: NaN; for whole numbers, which have none, 0.

    Example:
        >>> without_numbers(torch.ones(2)), without_numbers(torch.ones(2, dtype=torch.int64))
        (tensor([nan, nan]), tensor([0, 0]))
    """
    return torch.full_like(pattern, torch.nan if pattern.is_floating_point() else 0)


def in_double(table: Tensor) -> Tensor:
    """Return a table in double precision, on the host where the device has none.

    Example:
        >>> in_double(torch.tensor([[1, 2]])).dtype
        torch.float64
    """
    return (table.to("cpu") if table.device.type == "mps" else table).to(torch.float64)
