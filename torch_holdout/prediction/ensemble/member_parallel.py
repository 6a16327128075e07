"""The hooks of ``MemberParallelStrategy``: processes share members, never gradients."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torch_holdout._shared.distributed import rank_and_world
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.ensemble.data import ShardsMembers
from torch_holdout.prediction.ensemble.ensemble import PartitionedEnsembleHooks


class MemberParallelHooks(ShardsMembers):
    """Train the members of one ensemble on several processes, each its own.

    Process k of w trains members k r/w to (k+1) r/w - 1. Nothing is averaged. Checkpoints hold the
    whole ensemble, so they can be resumed on any number of processes, and after the fit every
    process has all members.

    Give it to the Trainer: ``Trainer(devices=2, strategy=MemberParallelStrategy())``. Its
    arguments are those of Lightning's ``DDPStrategy``.

    Example:
        >>> from torch_holdout.prediction import MemberParallelStrategy
        >>> MemberParallelStrategy().members(num_parts=5)
        range(0, 5)
    """

    lightning_module: Any
    optimizers: Any
    _own: range | None = None
    _whole = True

    def members(self, num_parts: int) -> range:
        """Return the members of this process."""
        return owned_members(num_parts, *rank_and_world())

    # ---- hooks of Lightning

    def setup(self, trainer: Any) -> None:
        """Drop the other processes' members before anything goes to the device."""
        trainer._accelerator_connector.use_distributed_sampler = False
        if str(trainer.state.fn.value) == "fit":
            ensemble = self._ensemble()
            self._own = self.members(ensemble.num_parts)
            for tensor in _tensors_of(ensemble.members):
                tensor.data = tensor.data[self._own.start : self._own.stop].clone()
            self._tell(whole=False)
        super().setup(trainer)  # type: ignore[misc]

    def configure_ddp(self) -> None:
        """Leave the module unwrapped: no gradient is exchanged."""

    def on_train_end(self) -> None:
        """Give every process all members."""
        self._join()
        super().on_train_end()  # type: ignore[misc]

    def teardown(self) -> None:
        """Give every process all members also after a fit that had nothing left to do."""
        if not self._whole and self._ensemble().trainer.state.status.value != "interrupted":
            self._join()
        super().teardown()  # type: ignore[misc]

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the weights of all members; every process takes part."""
        state: dict[str, Any] = super().lightning_module_state_dict()  # type: ignore[misc]
        if self._whole:
            return state
        num_parts = self._ensemble().num_parts
        for name in state:
            if name.startswith("members."):
                state[name] = gathered_members(state[name], num_parts)
        return state

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return the optimizer's state of all members; every process takes part."""
        state: dict[str, Any] = super().optimizer_state(optimizer)  # type: ignore[misc]
        if self._own is None:
            return state
        count, num_parts = len(self._own), self._ensemble().num_parts
        return _mapped(state, optimizer, count, lambda own: gathered_members(own, num_parts))

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Take this process's members out of the whole state."""
        own, num_parts = self._own, self._ensemble().num_parts
        if own is None:
            raise InvalidArgumentError("Expected a fit that can be resumed, but there is none.")
        states = checkpoint["optimizer_states"]
        for optimizer, state in zip(self.optimizers, states, strict=True):
            cut = _mapped(state, optimizer, num_parts, lambda t: t[own.start : own.stop].clone())
            optimizer.load_state_dict(cut)

    def _ensemble(self) -> Any:
        if not isinstance(self.lightning_module, PartitionedEnsembleHooks):
            raise InvalidArgumentError(
                f"Expected MemberParallelStrategy to train a PartitionedEnsemble, but got "
                f"{type(self.lightning_module).__name__}. Use another strategy."
            )
        return self.lightning_module

    def _join(self) -> None:
        ensemble = self._ensemble()
        for tensor in _tensors_of(ensemble.members):
            tensor.data = gathered_members(tensor.data, ensemble.num_parts)
        for parameter in ensemble.members.parameters():
            parameter.grad = None
        self._tell(whole=True)

    def _tell(self, *, whole: bool) -> None:
        ensemble = self._ensemble()
        self._whole = whole
        own = range(ensemble.num_parts) if whole or self._own is None else self._own
        ensemble.own_members(own, whole=whole)


def _mapped(state: dict[str, Any], optimizer: Any, rows: int, change: Any) -> dict[str, Any]:
    """Return an optimizer's state in which tensors with a row for each member are changed."""
    dimensions = [p.ndim for group in optimizer.param_groups for p in group["params"]]

    def one(place: int, value: Any) -> Any:
        stacked = isinstance(value, Tensor) and value.ndim == dimensions[place]
        return change(value) if stacked and value.shape[:1] == (rows,) else value

    changed = {
        place: {name: one(place, value) for name, value in own.items()}
        for place, own in state["state"].items()
    }
    return {**state, "state": changed}


def owned_members(num_parts: int, rank: int, world: int) -> range:
    """Return the members of one process: consecutive, in almost equal numbers.

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


def _tensors_of(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


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
