"""Weights that know their parts: every way of loading them compares the cut they come from."""

import contextlib
import json
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from torch_holdout.errors import HoldoutMismatchError, HoldoutWarning, InvalidArgumentError
from torch_holdout.prediction.ensemble.places import Places
from torch_holdout.prediction.ensemble.requirements import require_places, require_stored_parts
from torch_holdout.prediction.partition import Partition

_CHECKPOINT = "torch_holdout_ensemble"
_LENGTH = 8  # bytes of the length of the identity


class KnowsParts(nn.Module):
    """Keep the partition's identity and the places of records in ``state_dict``, with the weights.

    The mark is a tensor of bytes, so that a state stays a dictionary of tensors. It is private, as
    the weights are.
    """

    trainer: Any
    partition: Partition
    members: nn.Module
    num_outputs: int | None
    _trained_on: dict[str, Any] | None = None  # the identity of the partition of the first fit
    _places: Places = Places()  # where records were in all fits

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "partition" and name in self.__dict__:
            raise InvalidArgumentError(
                "Expected a new PartitionedEnsemble for another partition: the members were made "
                "for the one they have, and answers are charged by it. Nothing was changed."
            )
        super().__setattr__(name, value)

    def get_extra_state(self) -> Tensor:
        """Return the mark: the partition's identity, and where records were."""
        return _mark(self._trained_on or self.partition.identity(), self._places)

    def set_extra_state(self, state: Tensor) -> None:
        """Raise unless a state's weights, which are not loaded yet, are of this partition."""
        identity, places = _read(state)
        require_stored_parts(self.partition, identity)
        self._trained_on, self._places = identity, places

    def on_train_start(self) -> None:
        """Raise if records that the members know would be served to others; know the new ones."""
        data = self.trainer.datamodule
        require_stored_parts(self.partition, self._trained_on or self.partition.identity())
        served = Places.of(data.train_set, data.assignment())
        require_places(self._places, served)
        self._trained_on = self._trained_on or self.partition.identity()
        self._places = self._places.joined(served)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the partition with the weights."""
        checkpoint[_CHECKPOINT] = {
            "partition": self.partition.identity(),
            "num_outputs": self.num_outputs,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raise unless the weights belong to this partition."""
        stored = checkpoint.get(_CHECKPOINT, {})
        require_stored_parts(self.partition, stored.get("partition"))
        self.num_outputs = stored.get("num_outputs") or self.num_outputs
        weights = checkpoint.get("state_dict", {})
        if weights and "_extra_state" not in weights:  # of version 0.1.0, compared just now
            weights["_extra_state"] = _mark(self.partition.identity(), Places())

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        *rest: Any,
    ) -> None:
        own = f"{prefix}members."
        loaded = [name for name in state_dict if name.startswith(own)]
        known = self._places
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, *rest
        )
        if len(loaded) < len(self.members.state_dict(prefix=own)):  # other members stay as they are
            self._places = known.joined(self._places)
        mark = f"{prefix}_extra_state"
        if mark in state_dict:
            return
        if mark in missing_keys:
            missing_keys.remove(mark)
        if loaded:
            warnings.warn(
                f"These weights do not say which parts they were trained on: version 0.1.0 saved "
                f"them, or their `_extra_state` was left out. Make sure that it was this partition "
                f"({self.partition}) of the same records; else a record is in two members, and no "
                f"epsilon holds. A state that is saved now can be compared.",
                HoldoutWarning,
                stacklevel=2,
            )


def require_marked(state: Any, prefix: str, *_: Any) -> None:
    """Raise if members are loaded by themselves: a state of theirs does not say of which parts."""
    if not prefix and state:
        raise InvalidArgumentError(
            "Expected the state of a whole ensemble, which says on which parts its members were "
            "trained, but got one of members alone. Write ensemble.load_state_dict("
            "other.state_dict()). Nothing was loaded."
        )


def _mark(identity: dict[str, Any], places: Places) -> Tensor:
    facts = json.dumps(identity, sort_keys=True).encode()
    content = len(facts).to_bytes(_LENGTH, "little") + facts + places.content()
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _read(mark: Any) -> tuple[dict[str, Any], Places]:
    with contextlib.suppress(Exception):
        # Also if the whole state was cast: bytes are whole in every type of number.
        content = mark.detach().cpu().to(torch.uint8).numpy().tobytes()
        end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
        return dict(json.loads(content[_LENGTH:end])), Places(content[end:])
    raise HoldoutMismatchError(
        "Expected `_extra_state` as `state_dict()` returned it, which says which parts the weights "
        "were trained on, but it cannot be read. Load the state as it was saved."
    )
