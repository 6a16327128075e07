"""Several processes, one answer: what the ranks exchange."""

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


def gathered(packed: Tensor, world: int) -> list[list[int]]:
    """Return the integers of every rank, in one host read."""
    if world == 1:
        return [packed.tolist()]
    if dist.get_backend() == "nccl":
        packed = packed.to(torch.device("cuda", torch.cuda.current_device()))
    rows = [torch.empty_like(packed) for _ in range(world)]
    dist.all_gather(rows, packed)
    return list(torch.stack(rows).tolist())


def on_first_rank(world: int, action: Callable[[], _Result]) -> _Result:
    """Run on rank 0 and give every rank its result, or its error, so that none waits forever."""
    if world == 1:
        return action()
    box: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            box[0] = action()
        except HoldoutError as error:
            box[0] = error
        except Exception as error:
            box[0] = HoldoutError(f"Rank 0 failed with {type(error).__name__}.")
    dist.broadcast_object_list(box, src=0)
    if isinstance(box[0], Exception):
        raise box[0]
    result: _Result = box[0]
    return result
