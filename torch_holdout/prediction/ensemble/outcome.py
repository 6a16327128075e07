"""What a fit leaves, as digests: of each member, and of everything that no record may decide."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from torch_holdout._fingerprints.hashing import digest, plain_bytes, qualified_name
from torch_holdout._noise.generators import GeneratorStates
from torch_holdout.prediction.ensemble.members import tensors_by_name

GENERATORS = "the use of global random generators"
_UNCOMPARED = ("default_root_dir", "logger")  # names of places, often new each time
_OF_THE_ENSEMBLE = ("num_parts", "seed", "clip_norm", "chunk_size", "num_outputs", "backend_used")
_OF_THE_DATA = ("batch_size", "steps_per_epoch", "num_workers")
_OF_THE_TRAINER = {
    "steps taken": "global_step",
    "epochs taken": "current_epoch",
    "batches in an epoch": "num_training_batches",
    "batches in a step": "accumulate_grad_batches",
    "a request to stop": "should_stop",
}


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The digests of a fit.

    Attributes:
        members: By kind of tensor: a digest for each member.
        facts: By name: a digest of what must be equal for neighbours.
    """

    members: Mapping[str, list[bytes]]
    facts: Mapping[str, bytes]

    def changed_members(self, other: "Outcome") -> dict[str, list[int]]:
        """Return the members that differ, by kind of tensor; kinds without any are left out.

        Example:
            >>> one = Outcome(members={"weights": [b"0", b"1"]}, facts={})
            >>> one.changed_members(Outcome(members={"weights": [b"0", b"2"]}, facts={}))
            {'weights': [1]}
        """
        changed = {
            kind: [
                k
                for k, pair in enumerate(zip(own, other.members[kind], strict=False))
                if pair[0] != pair[1]
            ]
            for kind, own in self.members.items()
        }
        return {kind: members for kind, members in changed.items() if members}

    def changed_facts(self, other: "Outcome") -> list[str]:
        """Return the names of facts that differ.

        Example:
            >>> Outcome(members={}, facts={"lr": b"1"}).changed_facts(Outcome(members={}, facts={}))
            ['lr']
        """
        names = dict.fromkeys([*self.facts, *other.facts])
        return [name for name in names if self.facts.get(name) != other.facts.get(name)]


def outcome_of(
    trainer: Any, ensemble: Any, datamodule: Any, options: Mapping[str, Any], inputs: Any
) -> Outcome:
    """Return the outcome of a fit that has just ended; then ask all members ``inputs``."""
    facts = {GENERATORS: digest(GeneratorStates().values())}
    facts |= {name: digest(_plain(value)) for name, value in _facts(trainer, ensemble, datamodule)}
    facts |= {
        f"the Trainer option `{name}`": digest(_plain(value))
        for name, value in options.items()
        if name not in _UNCOMPARED
    }
    states, shared = _optimizer_states(trainer, ensemble.num_parts)
    facts["the optimizer's shared state"] = digest([_plain(value) for value in shared])
    answers = ensemble.member_outputs(inputs)
    facts["the shapes of answers"] = digest([*answers.shape, str(answers.dtype)])
    members = {
        "weights": list(ensemble.members.parameters()),
        "buffers": list(ensemble.members.buffers()),
        "optimizer state": states,
        "answers": [answers],  # the outputs: votes are functions of them
    }
    return Outcome(
        members={kind: _by_member(own, ensemble.num_parts) for kind, own in members.items()},
        facts=facts,
    )


def _facts(trainer: Any, ensemble: Any, datamodule: Any) -> Iterator[tuple[str, Any]]:
    own = tensors_by_name(ensemble.members)
    yield "the shapes of weights", [(name, str(t.dtype), *t.shape) for name, t in own.items()]
    yield "the partition", ensemble.partition.identity()
    for name in _OF_THE_ENSEMBLE:
        yield f"`{name}` of the ensemble", getattr(ensemble, name)
    for name in _OF_THE_DATA:
        yield f"`{name}` of the data module", getattr(datamodule, name)
    for name, attribute in _OF_THE_TRAINER.items():
        yield name, getattr(trainer, attribute)
    yield from _rates(trainer)
    for name, value in tensors_by_name(ensemble).items():
        if not name.startswith("members."):
            yield f"`{name}`, which all members share", value


def _rates(trainer: Any) -> Iterator[tuple[str, Any]]:
    for optimizer in trainer.optimizers:
        yield "the type of the optimizer", type(optimizer)
        for number, group in enumerate(optimizer.param_groups):
            for name in sorted(group.keys() - {"params"}):
                yield f"`{name}` of the optimizer's group {number}", group[name]
    for number, config in enumerate(trainer.lr_scheduler_configs):
        yield f"the state of scheduler {number}", config.scheduler.state_dict()


def _optimizer_states(trainer: Any, num_parts: int) -> tuple[list[Tensor], list[Any]]:
    """Return the states with a row for each member, and the others."""
    values = [
        value
        for optimizer in trainer.optimizers
        for state in optimizer.state.values()
        for value in state.values()
    ]
    own = [isinstance(v, Tensor) and v.shape[:1] == (num_parts,) for v in values]
    return (
        [value for value, is_own in zip(values, own, strict=True) if is_own],
        [value for value, is_own in zip(values, own, strict=True) if not is_own],
    )


def _by_member(tensors: Iterable[Tensor], num_parts: int) -> list[bytes]:
    hashers = [hashlib.sha256() for _ in range(num_parts)]
    for tensor in tensors:
        for hasher, row in zip(hashers, tensor.detach().cpu(), strict=True):
            hasher.update(plain_bytes(row))
    return [hasher.digest() for hasher in hashers]


def _plain(value: Any) -> Any:
    """Return numbers, text and tensors, nested; of other objects the type's name."""
    if value is None or isinstance(value, bool | int | float | str | Tensor):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return qualified_name(type(value) if not isinstance(value, type) else value)
