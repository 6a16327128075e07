"""Exchange between the ranks of a process group."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from torch_holdout.errors import HoldoutError

_Result = TypeVar("_Result")


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and how many there are; 0 and 1 without a process group.

    Example:
        >>> rank_and_world()
        (0, 1)
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def share_of(size: int, rank: int, world: int) -> int:
    """Return how many of ``size`` examples a rank has: those numbered rank, rank + world, ...

    Example:
        >>> [share_of(10, rank, world=4) for rank in range(4)]
        [3, 3, 2, 2]
    """
    return len(range(rank, size, world))


def gathered(packed: Tensor, world: int) -> list[list[int]]:
    """Return the integers of every rank, in one host read."""
    if world == 1:
        return [packed.tolist()]
    packed = packed.to(_exchange_device(packed.device))
    rows = [torch.empty_like(packed) for _ in range(world)]
    dist.all_gather(rows, packed)
    return list(torch.stack(rows).tolist())


def gathered_objects(own: Any, world: int) -> list[Any]:
    """Return every rank's object, by rank; torch pickles them.

    Example:
        >>> gathered_objects("mine", world=1)
        ['mine']
    """
    if world == 1:
        return [own]
    objects: list[Any] = [None] * world
    dist.all_gather_object(objects, own)
    return objects


def summed(totals: Tensor, world: int) -> Tensor:
    """Return the sum of all ranks' tensors, on every rank.

    Example:
        >>> summed(torch.arange(3), world=1)
        tensor([0, 1, 2])
    """
    if world == 1:
        return totals
    whole = totals.to(_exchange_device(totals.device), copy=True)
    dist.all_reduce(whole)
    return whole


def gathered_rows(columns: tuple[Tensor, ...], world: int) -> tuple[Tensor, ...]:
    """Return every rank's rows in the order of the dataset: rank r has rows r, r + world, ...

    A rank without rows takes part with none.

    Example:
        >>> gathered_rows((torch.arange(3),), world=1)
        (tensor([0, 1, 2]),)
    """
    if world == 1:
        return columns
    facts = gathered_objects([(c.dtype, tuple(c.shape)) for c in columns], world)
    pattern: list[Any] = next((known for known in facts if known), [])
    layouts = [[(dtype, shape[1:]) for dtype, shape in known] for known in facts if known]
    if any(layout != layouts[0] for layout in layouts):  # the same on every rank: none is left
        raise HoldoutError(
            "Expected rows of the same shapes and types on every rank, but they differ; nothing "
            "was released or charged."
        )
    counts = [known[0][1][0] if known else 0 for known in facts]
    device = _exchange_device(columns[0].device if columns else torch.device("cpu"))
    whole_columns = []
    for position, (dtype, shape) in enumerate(pattern):
        whole = torch.zeros((max(counts), *shape[1:]), dtype=dtype, device=device)
        if columns:
            whole[: len(columns[position])] = columns[position].to(device)
        parts = [torch.empty_like(whole) for _ in range(world)]
        dist.all_gather(parts, whole)
        mixed = torch.stack(parts, dim=1).flatten(0, 1)  # row j of rank r at j * world + r
        real = [j < counts[r] for j in range(max(counts)) for r in range(world)]
        whole_columns.append(mixed[torch.tensor(real, device=device)])
    return tuple(whole_columns)


def same_rows(columns: tuple[Tensor, ...], world: int) -> bool:
    """Whether every rank has the same rows, bit for bit; all ranks get the same answer.

    Example:
        >>> same_rows((torch.arange(3),), world=1)
        True
    """
    if world == 1:
        return True
    facts = gathered_objects([(c.dtype, tuple(c.shape)) for c in columns], world)
    if any(known != facts[0] for known in facts):
        return False
    same = True
    for column in columns:
        device = _exchange_device(column.device)
        content = column.contiguous().view(torch.uint8).to(device)
        first = content.clone()
        dist.broadcast(first, src=0)
        same = same and torch.equal(first, content)
    return all(gathered_objects(same, world))


def on_any_rank(flag: bool) -> bool:
    """Whether a flag is set on any rank; every rank must ask.

    Example:
        >>> on_any_rank(False)
        False
    """
    _, world = rank_and_world()
    return any(gathered_objects(flag, world))


def _exchange_device(device: torch.device) -> torch.device:
    nccl = dist.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if nccl else device


def on_first_rank(world: int, action: Callable[[], _Result]) -> _Result:
    """Run on rank 0; return its result, or raise its error, on every rank, so that none waits."""
    if world == 1:
        return action()
    box: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            box[0] = action()
        except Exception as error:
            ours = isinstance(error, HoldoutError)
            box[0] = error if ours else HoldoutError(f"Rank 0 failed with {type(error).__name__}.")
    dist.broadcast_object_list(box, src=0)
    if isinstance(box[0], Exception):
        raise box[0]
    result: _Result = box[0]
    return result
