"""The hooks of ``MemberParallelStrategy``: processes share members, never gradients."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from torch_holdout._shared.distributed import rank_and_world
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.ensemble.ensemble import PartitionedEnsembleHooks
from torch_holdout.prediction.ensemble.sharding import (
    ShardsMembers,
    gathered_members,
    keep_members,
    owned_members,
    tensors_of,
)


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

    # ---- what Lightning calls

    def setup(self, trainer: Any) -> None:
        """Drop the other processes' members before anything goes to the device."""
        trainer._accelerator_connector.use_distributed_sampler = False
        if str(trainer.state.fn.value) == "fit":
            ensemble = self._ensemble()
            self._own = self.members(ensemble.num_parts)
            keep_members(ensemble.members, self._own)
            self._tell(whole=False)
        super().setup(trainer)  # type: ignore[misc]

    def configure_ddp(self) -> None:
        """Leave the module unwrapped: there is no gradient to exchange."""

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
        ensemble = self._ensemble()
        return {
            name: gathered_members(value, ensemble.num_parts)
            if name.startswith("members.")
            else value
            for name, value in state.items()
        }

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
            raise InvalidArgumentError("Expected a fit, but there is none to resume.")
        states = checkpoint["optimizer_states"]
        for optimizer, state in zip(self.optimizers, states, strict=True):
            cut = _mapped(state, optimizer, num_parts, lambda t: t[own.start : own.stop].clone())
            optimizer.load_state_dict(cut)

    # ---- inside

    def _ensemble(self) -> Any:
        if not isinstance(self.lightning_module, PartitionedEnsembleHooks):
            raise InvalidArgumentError(
                f"Expected MemberParallelStrategy to train a PartitionedEnsemble, but got "
                f"{type(self.lightning_module).__name__}. Use another strategy."
            )
        return self.lightning_module

    def _join(self) -> None:
        ensemble = self._ensemble()
        for tensor in tensors_of(ensemble.members):
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
    """Change every tensor of an optimizer's state that has a row for each member."""
    dimensions = [p.ndim for group in optimizer.param_groups for p in group["params"]]

    def one(place: int, value: Any) -> Any:
        stacked = isinstance(value, Tensor) and value.ndim == dimensions[place]
        return change(value) if stacked and value.shape[:1] == (rows,) else value

    changed = {
        place: {name: one(place, value) for name, value in own.items()}
        for place, own in state["state"].items()
    }
    return {**state, "state": changed}
