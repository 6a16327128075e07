"""Which members a process owns, and how the members of all processes come together."""

from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torch_holdout.errors import InvalidArgumentError


class ShardsMembers(ABC):
    """A strategy that gives each process some of the members."""

    @abstractmethod
    def members(self, num_parts: int) -> range:
        """Return the members of this process."""


def owned_members(num_parts: int, rank: int, world: int) -> range:
    """Return the members of one process: consecutive, and as even as can be.

    Example:
        >>> [owned_members(5, rank, 2) for rank in range(2)]
        [range(0, 2), range(2, 5)]
    """
    if world > num_parts:
        raise InvalidArgumentError(
            f"Expected at most one process for each of {num_parts} members, but got {world}. Use "
            f"fewer devices."
        )
    return range(rank * num_parts // world, (rank + 1) * num_parts // world)


def tensors_of(module: nn.Module) -> list[Tensor]:
    """Return every parameter and buffer once."""
    return [*module.parameters(), *module.buffers()]


def keep_members(module: nn.Module, members: range) -> None:
    """Drop all members but some from a stacked module, in place."""
    for tensor in tensors_of(module):
        tensor.data = tensor.data[members.start : members.stop].clone()


def gathered_members(own: Tensor, num_parts: int) -> Tensor:
    """Return the rows of every process, in the order of the members."""
    if not (dist.is_available() and dist.is_initialized()):
        return own
    world = dist.get_world_size()
    own, home = own.detach(), own.device
    if dist.get_backend() == "nccl":
        own = own.to(torch.device("cuda", torch.cuda.current_device()))
    whole = own.new_empty((num_parts, *own.shape[1:]))
    for rank in range(world):
        members = owned_members(num_parts, rank, world)
        rows = whole[members.start : members.stop]
        if rank == dist.get_rank():
            rows.copy_(own)
        dist.broadcast(rows.reshape(-1).view(torch.uint8), src=rank)  # any type can travel
    return whole.to(home)
