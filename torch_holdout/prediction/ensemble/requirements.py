"""Checks of a fit: no record may reach every member, and no error may tell of a record."""

import warnings
from collections.abc import Iterator
from typing import Any

from torch import nn

from torch_holdout.errors import HoldoutWarning, InvalidArgumentError
from torch_holdout.prediction.ensemble.data import PartitionedDataHooks, ShardsMembers
from torch_holdout.prediction.ensemble.members import Loss
from torch_holdout.prediction.ensemble.places import Places
from torch_holdout.prediction.ensemble.probing import IGNORED
from torch_holdout.prediction.partition import Partition

_DECIDES_ON_THE_LOSS = ("EarlyStopping", "LearningRateFinder", "BatchSizeFinder")


def require_separate_members(trainer: Any) -> None:
    """Raise if a Trainer couples members, or tells of private values."""
    for problem in (*_couplings(trainer), *_deciding_callbacks(trainer.callbacks)):
        raise InvalidArgumentError(problem)


def require_scheduler(scheduler: Any) -> Any:
    """Return a scheduler as it is; raise if its learning rate follows a monitored value."""
    inner = scheduler.get("scheduler") if isinstance(scheduler, dict) else scheduler
    monitored = isinstance(scheduler, dict) and scheduler.get("monitor") is not None
    if monitored or _is_named(inner, ("ReduceLROnPlateau",)):
        raise InvalidArgumentError(
            "Expected a learning rate that only the step decides, but got one that follows a "
            "monitored value (ReduceLROnPlateau): a record would reach every member through it. "
            "Use e.g. CosineAnnealingLR or OneCycleLR."
        )
    return scheduler


def require_fixed_loss(loss: Loss) -> None:
    """Raise unless a loss is a function without parameters that learn."""
    if isinstance(loss, nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise InvalidArgumentError(
            "Expected a loss without parameters, but got one that learns: all members would share "
            "its parameters. Move them into the model."
        )
    if not callable(loss):
        raise InvalidArgumentError(
            f"Expected `loss` to be a function of output and target, but got {type(loss).__name__}."
        )


def require_outputs(expected: int | None, returned: int | None) -> None:
    """Raise if models return another number of outputs than was declared."""
    if None not in (expected, returned) and expected != returned:
        raise InvalidArgumentError(
            f"Expected models with num_outputs={expected}, but they return {returned}. Drop "
            f"`num_outputs`, or change the model."
        )


def require_labels(target: Any, classes: int, ignores: bool) -> None:
    """Raise unless every label is a class of the model, without telling which one is not."""
    low, high = (int(end) for end in target.aminmax())
    if low < 0 and ignores:
        low = int(target.masked_fill(target == IGNORED, 0).min())
    if low < 0 or high >= classes:
        also = f" or {IGNORED}" if ignores else ""
        raise InvalidArgumentError(
            f"Expected every label to be a whole number from 0 to {classes - 1}{also}, because the "
            f"model has {classes} outputs, but got another. Fix the labels, or give the model more "
            f"outputs. Which record it is, is withheld: records are private."
        )


def require_parts(datamodule: Any, partition: Partition) -> None:
    """Raise unless the data is partitioned as the ensemble is."""
    if not isinstance(datamodule, PartitionedDataHooks):
        raise other_batches()
    parts = datamodule.parts
    if parts != partition and partition.compare(parts.identity()) != "same":
        raise InvalidArgumentError(
            f"Expected the data in the ensemble's parts ({partition}), but the data module's are "
            f"others ({parts}). Pass both the same Partition."
        )


def require_stored_parts(partition: Partition, stored: object) -> None:
    """Raise unless a checkpoint's members were trained on these parts; warn if that is unsure."""
    likeness = partition.compare(stored)
    if likeness == "by name":
        warnings.warn(
            f"The key function of this checkpoint's partition was compared by its name only "
            f"({partition}): the checkpoint is of version 0.1.0 or of another version of Python. "
            f"Make sure that the function is the same; else a record is in two members, and no "
            f"epsilon holds. A checkpoint that is saved now can be compared.",
            HoldoutWarning,
            stacklevel=2,
        )
    elif likeness != "same":
        function = "another key function of that name (code, defaults or closure)"
        what = "another" if likeness == "other" else function
        raise InvalidArgumentError(
            f"Expected a checkpoint of the same partition ({partition}), but it has {what}: "
            f"trained on, a record would be in two members. Pass the Partition it was trained with."
        )


def require_places(known: Places, served: Places) -> None:
    """Raise if a record that members know is served to others now."""
    if known.contradict(served):
        raise InvalidArgumentError(
            "Expected every record in the part it was in before, but one that the members know is "
            "in another now, and would be in two members: the records came in another order, or "
            'one was removed, under key="index", or `keys` are those of other records. Pass the '
            "records and keys as in the first fit (a key that is a record's id lets records come "
            "and go), or train a new ensemble. Which record it is, is withheld: records are "
            "private."
        )


def other_batches() -> InvalidArgumentError:
    """Return the error for batches that hold no parts."""
    return InvalidArgumentError(
        "Expected batches of a PartitionedDataModule, so that every member sees its own part, but "
        "got others. Call trainer.fit(ensemble, datamodule=PartitionedDataModule(...))."
    )


def _couplings(trainer: Any) -> Iterator[str]:
    algorithm = getattr(trainer.gradient_clip_algorithm, "value", trainer.gradient_clip_algorithm)
    if trainer.gradient_clip_val and (algorithm or "norm") == "norm":
        yield (
            "Expected gradients clipped member by member, but `Trainer(gradient_clip_val=...)` "
            "clips by the norm over all members: one record would scale every gradient. Pass "
            "clip_norm= to the ensemble, or gradient_clip_algorithm='value'."
        )
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        yield (
            f"Expected a precision without a gradient scaler, but got {trainer.precision!r}: one "
            f'overflow makes every member skip the step. Use precision="bf16-mixed".'
        )
    if trainer.world_size > 1 and not isinstance(trainer.strategy, ShardsMembers):
        yield (
            f"Expected members to stay apart on {trainer.world_size} processes, but "
            f"{type(trainer.strategy).__name__} averages their gradients or cuts their tensors. "
            f"Pass strategy=MemberParallelStrategy()."
        )
    if getattr(trainer.strategy, "_layer_sync", None) is not None:
        yield (
            "Expected members to normalise over their own batches, but `Trainer(sync_batchnorm="
            "True)` averages over processes. Drop it: each process trains whole members."
        )
    if trainer.overfit_batches > 0:
        yield (
            "Expected the batches of a PartitionedDataModule, but `Trainer(overfit_batches=...)` "
            "replaces its sampler. Use limit_train_batches."
        )
    if trainer._detect_anomaly:
        yield (
            "Expected a fit that never tells of a member's values, but `Trainer(detect_anomaly="
            "True)` raises when one is not finite. Drop it; debug on public records."
        )


def _deciding_callbacks(callbacks: list[Any]) -> Iterator[str]:
    for callback in callbacks:
        name = type(callback).__name__
        if _is_named(callback, _DECIDES_ON_THE_LOSS):
            yield (
                f"Expected a fit whose length and rates are fixed beforehand, but the {name} "
                f"callback decides on values of the training: a record would reach every member "
                f"through it. Set max_epochs or max_steps instead."
            )
        if _is_named(callback, ("ModelCheckpoint",)) and callback.monitor is not None:
            yield (
                f"Expected checkpoints that no value chooses, but got {name}(monitor="
                f"{callback.monitor!r}). Drop `monitor`: the last checkpoint is kept."
            )


def _is_named(value: object, names: tuple[str, ...]) -> bool:
    # By name, because Lightning has each class in two packages.
    return any(kind.__name__ in names for kind in type(value).__mro__)
