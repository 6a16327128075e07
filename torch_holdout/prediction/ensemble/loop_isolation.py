"""A test of the training loop: one record is replaced as it is served, and one member changes."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from torch_holdout._noise.generators import lent_generators
from torch_holdout._shared.checks import require_whole
from torch_holdout.errors import InvalidArgumentError, IsolationError
from torch_holdout.prediction.ensemble.data import PartitionedDataHooks
from torch_holdout.prediction.ensemble.isolation import Isolation
from torch_holdout.prediction.ensemble.rebuilding import (
    MORE_STEPS,
    MOST_EPOCHS,
    TRAINER_OPTIONS,
)


def verified_isolation(
    ensemble: Any,
    datamodule: Any,
    trainer_type: Any,
    trainer_options: dict[str, Any],
    *,
    index: int,
    replacement: Any,
) -> Isolation:
    """Train two copies on neighbouring data and compare them bit for bit."""
    if not isinstance(datamodule, PartitionedDataHooks):
        raise InvalidArgumentError(
            f"Expected a PartitionedDataModule, but got {type(datamodule).__name__}."
        )
    require_whole("index", index, 0, len(datamodule.train_set) - 1)
    owner = next(k for k, part in enumerate(datamodule.assignment()) if bool((part == index).any()))
    steps, record = _last_step(datamodule, index), datamodule.train_set[index]
    options = TRAINER_OPTIONS | {"max_steps": steps} | trainer_options

    def fit(served: Any) -> list[Tensor]:
        return _fit(ensemble, datamodule, trainer_type(**options), index, served)

    plain = fit(record)
    members = _changed_members(plain, fit(_another(record) if replacement is None else replacement))
    if members == [owner]:
        return Isolation(member=owner, steps=steps)
    moving = _changed_members(plain, fit(record))
    if moving:
        raise IsolationError(
            f"Expected the same training twice on the same records, but {len(moving)} of "
            f"{ensemble.num_parts} members differ: something keeps a state of its own, or draws "
            f"from another source of chance. Keep states in the model's buffers, and use "
            f"deterministic algorithms."
        )
    raise IsolationError(_explained(members, owner, ensemble.num_parts))


def _fit(ensemble: Any, datamodule: Any, trainer: Any, index: int, record: Any) -> list[Tensor]:
    """Train copies; return every tensor that training leaves, each with a row for a member."""
    ensemble, datamodule = copy.deepcopy(ensemble), copy.copy(datamodule)
    datamodule.train_set = _Replaced(datamodule.train_set, index, record)
    datamodule.trainer = None
    if datamodule.parts.key == "index":
        datamodule._assignment = None
    with lent_generators("isolation"):
        trainer.fit(ensemble, datamodule=datamodule)
    states = [
        value
        for optimizer in trainer.optimizers
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor) and value.shape[:1] == (ensemble.num_parts,)
    ]
    own = [*ensemble.members.parameters(), *ensemble.members.buffers(), *states]
    return [tensor.detach().cpu().clone() for tensor in own]


class _Replaced:
    """A dataset with one record replaced."""

    def __init__(self, dataset: Any, index: int, record: Any) -> None:
        self._dataset = dataset
        self._index = index
        self._record = record

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        record = self._dataset[index]  # also if it is replaced: reading may draw at random
        return self._record if index == self._index else record


def _last_step(datamodule: Any, index: int) -> int:
    """Return the number of steps after which the record has been seen."""
    data = copy.copy(datamodule)
    data.trainer = None
    order = data.sampler()
    for epoch in range(MOST_EPOCHS):
        order.set_epoch(epoch)
        for step, indices in enumerate(order):
            if bool((indices == index).any()):
                return epoch * len(order) + step + 1 + MORE_STEPS
    raise IsolationError(
        f"Expected every record to be served to its member, but record {index} was not within "
        f"{MOST_EPOCHS} epochs."
    )


def _another(record: Any) -> Any:
    """Return a record with another input, and the same target if it is a pair."""
    if isinstance(record, tuple | list) and len(record) == 2:
        return tree_map(_moved, record[0]), record[1]
    return tree_map(_moved, record)


def _moved(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    if leaf.is_floating_point():
        return 1 - leaf
    return torch.zeros_like(leaf) if bool(leaf.any()) else torch.ones_like(leaf)


def _changed_members(one: list[Tensor], other: list[Tensor]) -> list[int]:
    changed = torch.zeros(len(one[0]), dtype=torch.bool)
    for left, right in zip(one, other, strict=True):
        a, b = (t.contiguous().view(len(t), -1).view(torch.uint8) for t in (left, right))
        changed |= (a != b).any(dim=1)
    return [int(member) for member in changed.nonzero().flatten()]


def _explained(members: list[int], owner: int, num_parts: int) -> str:
    if not members:
        return (
            f"Expected member {owner} to change with its record, but none of {num_parts} did. "
            f"Pass another `index` or `replacement`: this record may teach nothing."
        )
    return (
        f"Expected one record to change its own member only, but {len(members)} of {num_parts} "
        f"members changed. Something is shared: a statistic, a sampler, a normalisation over the "
        f"whole set, a loss with a state. The promised epsilon does not hold for this ensemble."
    )
