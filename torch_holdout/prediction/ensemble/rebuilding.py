"""Fits of an ensemble that is made anew from changed records, each from the same start."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np

from torch_holdout._noise.generators import lent_generators
from torch_holdout.errors import InvalidArgumentError, IsolationError
from torch_holdout.prediction.ensemble.batches import BLANK, GatheredRecords
from torch_holdout.prediction.ensemble.data import PartitionedDataHooks, ReadsBatches
from torch_holdout.prediction.ensemble.neighbouring import NO_CHANGE, Change, changed_records
from torch_holdout.prediction.ensemble.outcome import Outcome, outcome_of
from torch_holdout.prediction.neighbours import Neighbours

MORE_STEPS = 3  # after the record was seen: what couples through an optimizer comes later
MOST_EPOCHS = 1000  # how far a record is searched for; also the length of Lightning's own default
TRAINER_OPTIONS: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "max_epochs": -1,
}
_MOST_STEPS = 200  # unless the records are served later
_ASKED = 16  # records whose inputs members are asked
_Result = TypeVar("_Result")


@final
@dataclass(frozen=True)
class _Made:
    """What ``build`` returned."""

    ensemble: Any
    datamodule: Any
    options: dict[str, Any]


@final
class Rebuilding:
    """What a user's ``build`` makes of records and of their neighbours, fitted."""

    def __init__(self, build: Callable[[Any], Any], records: Any, inputs: Any) -> None:
        self.records = records
        self.size = len(records)
        self._build = build
        # One build more, to look at: reading records may draw, and fits start all alike.
        self._plan = seeded(lambda: self._made(changed_records(records, NO_CHANGE)))
        self._inputs = seeded(self._some_inputs) if inputs is None else inputs
        self.neighbours: Neighbours = self._plan.ensemble.neighbours
        self.num_parts: int = self._plan.ensemble.num_parts
        self._epoch = _epoch_length(self._plan)
        self._longest = _longest(self._plan.options, self._epoch)

    def fit(self, change: Change, records: Any, steps: int) -> tuple[Outcome, int]:
        """Build from the changed records, fit; return what is left, and how many parts changed."""
        with lent_generators("isolation"):
            made = self._made(records)
            if made.ensemble is self._plan.ensemble or made.datamodule is self._plan.datamodule:
                raise InvalidArgumentError(
                    "Expected `build` to return a new ensemble and a new data module each time, "
                    "but one of them is that of an earlier call. Make them inside `build`."
                )
            options = {**TRAINER_OPTIONS, **made.options, "max_steps": steps, "max_epochs": -1}
            trainer = made.ensemble.trainer_class(**options)
            if trainer.world_size > 1:
                raise InvalidArgumentError(
                    f"Expected Trainer options for one process, but they ask for "
                    f"{trainer.world_size}. Leave `devices` and `strategy` out."
                )
            trainer.fit(made.ensemble, datamodule=made.datamodule)
            outcome = outcome_of(
                trainer, made.ensemble, made.datamodule, made.options, self._inputs
            )
        return outcome, self._touched(change, made)

    def length(self, seen: int = 0) -> int:
        """Return the steps of a fit: past the end of the epoch in which the records were seen."""
        past_end = max(1, math.ceil(seen / self._epoch)) * self._epoch + MORE_STEPS
        return min(self._longest, max(seen + MORE_STEPS, min(past_end, _MOST_STEPS)))

    def served_in(self, steps: int) -> list[int]:
        """Return the first, the middle and the last of the records of a short fit."""
        served: set[int] = set()
        for _, indices in self._batches(max(1, min(steps - MORE_STEPS, self._epoch))):
            served.update(indices.tolist())
        places = sorted(served - {BLANK}) or [0]
        return list(dict.fromkeys([places[0], places[len(places) // 2], places[-1]]))

    def steps_to_serve(self, places: list[int]) -> int:
        """Return the number of steps after which all these records were served."""
        missing = set(places)
        for step, indices in self._batches(self._longest):
            missing -= set(indices.tolist())
            if not missing:
                return step
        raise IsolationError(
            f"Expected every record to be served to its member, but record {min(missing)} was not "
            f"within the fit. Pass another `index`, or let the Trainer take more steps."
        )

    def keys(self) -> list[Any]:
        """Return the key of every record."""
        data = self._plan.datamodule
        if data._keys is None:
            return seeded(lambda: [data.parts.key(data.train_set[k]) for k in range(self.size)])
        data._keys = list(data._keys)
        return list(data._keys)

    def target(self, place: int) -> Any:
        """Return the target of a record."""
        data = self._plan.datamodule
        record = seeded(lambda: data.train_set[place])
        return (data.as_pair(record) if data.as_pair else record)[1]

    def _made(self, records: Any) -> _Made:
        made = self._build(records)
        if not isinstance(made, tuple) or len(made) not in (2, 3):
            raise _other_things(type(made).__name__)
        ensemble, datamodule, *options = made
        if not isinstance(ensemble, ReadsBatches):
            raise _other_things(type(ensemble).__name__)
        if not isinstance(datamodule, PartitionedDataHooks):
            raise _other_things(type(datamodule).__name__)
        if options and not isinstance(options[0], dict):
            raise _other_things(type(options[0]).__name__)
        if len(datamodule.train_set) != len(records):
            raise InvalidArgumentError(
                "Expected `build` to make a data module of all the records that it is given, in "
                "their order, but it has another number of them. Drop records before, each by "
                "itself: a choice that depends on other records reaches every member."
            )
        return _Made(ensemble, datamodule, dict(options[0]) if options else {})

    def _some_inputs(self) -> Any:
        data = self._plan.datamodule
        return GatheredRecords(data.train_set, data.as_pair)[np.arange(min(_ASKED, self.size))][0]

    def _batches(self, steps: int) -> Iterator[tuple[int, Any]]:
        """Yield the steps of a fit, from 1, and the indices that each is served."""
        order, step = seeded(self._plan.datamodule.sampler), 0
        for epoch in range(MOST_EPOCHS):
            order.set_epoch(epoch)
            for _, indices in zip(range(self._epoch), order, strict=False):
                step += 1
                if step > steps:
                    return
                yield step, indices

    def _touched(self, change: Change, made: _Made) -> int:
        """Return how many parts lost or got a record; what a data module says is not trusted."""
        places = [*change.removed, *change.replaced]
        before = seeded(self._plan.datamodule.assignment)
        after = seeded(made.datamodule.assignment)
        parts = _holding(before, places) | _holding(after, list(change.replaced))
        moves = bool(change.replaced) and self._plan.datamodule.parts.key != "index"
        return max(1, min(len(parts), 1 + moves))


def seeded(action: Callable[[], _Result]) -> _Result:
    """Run code that may draw at random from the same start each time; put the generators back."""
    with lent_generators("isolation"):
        return action()


def _holding(assignment: list[Any], places: list[int]) -> set[int]:
    wanted = np.array(places, dtype=np.int64)
    return {k for k, part in enumerate(assignment) if bool(np.isin(wanted, part.numpy()).any())}


def _epoch_length(made: _Made) -> int:
    whole = int(made.datamodule.steps_per_epoch)
    limit = made.options.get("limit_train_batches")
    if limit is None:
        return whole
    return max(1, min(whole, int(limit * whole) if isinstance(limit, float) else int(limit)))


def _longest(options: dict[str, Any], epoch: int) -> int:
    """Return how many steps the user's own fit takes."""
    steps, epochs = options.get("max_steps", -1), options.get("max_epochs")
    if epochs is None:
        epochs = MOST_EPOCHS if steps == -1 else -1
    ends = [end for end in (steps, epochs * epoch) if end >= 0]
    if 0 in ends:
        raise InvalidArgumentError("Expected Trainer options for a fit of some steps, but of none.")
    return int(min(ends, default=MOST_EPOCHS * epoch))


def _other_things(kind: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Expected `build` to return a PartitionedEnsemble, a PartitionedDataModule and, if any, a "
        f"dictionary of Trainer options, but got a {kind}."
    )
