"""A test that one record changes one member, with everything made anew from the records."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, final

from torch_holdout._fingerprints.hashing import digest
from torch_holdout._shared.checks import require_callable, require_length, require_whole
from torch_holdout._shared.text import counted
from torch_holdout.errors import HoldoutError, InvalidArgumentError, IsolationError
from torch_holdout.prediction.ensemble.neighbouring import (
    FAR,
    NO_CHANGE,
    Change,
    changed_records,
    far_record,
    given_record,
    has_floats,
    moved_record,
    places_of_user,
)
from torch_holdout.prediction.ensemble.outcome import GENERATORS, Outcome
from torch_holdout.prediction.ensemble.rebuilding import Rebuilding, seeded

_LOOKED_AT = 100  # records among which another target is searched for
_NAMED = 8  # members in an error


@final
@dataclass(frozen=True, kw_only=True)
class Isolation:
    """The result of a test that one record changes one member.

    Attributes:
        member: The member that changed, with the first record.
        steps: How many steps were taken.
        neighbours: How many neighbouring sets of records were tried.

    Example:
        >>> Isolation(member=3, steps=20)  # of ensemble.verify_isolation(data)
        Isolation(member=3, steps=20, neighbours=1)
    """

    member: int
    steps: int
    neighbours: int = 1


def verify_isolation(
    build: Callable[[Any], tuple[Any, ...]],
    records: Any,
    *,
    index: int | Sequence[int] | None = None,
    replacement: Any = None,
    inputs: Any = None,
    steps: int | None = None,
) -> Isolation:
    """Test that a record changes its own member only, with everything made anew from the records.

    ``build`` is called for the records and for neighbours of them: without one record (or user)
    where the partition's relation is add-remove, with another in its place where it is replace-one,
    and with outliers. Each time what it returns is fitted, from the same state of the global
    generators. All members but the record's own must be equal bit for bit (weights, buffers,
    optimizer state, answers), and so must all that no record may decide: steps, epochs, learning
    rates, Trainer options, shapes, and how often the global generators were drawn from.

    It is a test, not a proof. It does not see what was made before or outside of ``build`` (by
    ``records`` itself, in a global, in a file), events that are rare or come later in a longer fit,
    other records, another device, or hyperparameters that were chosen on the records. It takes as
    long as six short fits.

    Args:
        build: Makes everything from the records it is given, each time anew, and returns
            ``(ensemble, datamodule)`` or ``(ensemble, datamodule, trainer_options)``, the options
            being a dictionary. Its data module has all of these records, in their order.
        records: The raw records: a list, tensor, array, ``TensorDataset`` or another dataset with a
            length. The neighbours are of the same kind; those of another dataset are views of it.
        index: The record, or several, to test; None: three that are served in the first epoch.
        replacement: A record to put in the place of the first one; None: another record of the set,
            with other numbers.
        inputs: What all members are asked after the fit; None: the inputs of some records.
        steps: The length of each fit; None: past the end of the epoch in which the records are
            served, but no longer than the Trainer options say, nor than 200 steps if the records
            are served within those.

    Raises:
        IsolationError: If a record changed other members, or what no record may decide.

    Example:
        >>> from functools import partial
        >>> import warnings
        >>> import torch
        >>> from torch import nn
        >>> from torch_holdout import prediction as tp
        >>> warnings.simplefilter("ignore")  # of Lightning, about a loader without workers
        >>> records = torch.utils.data.TensorDataset(torch.randn(60, 3), torch.arange(60) % 2)
        >>> parts = tp.Partition(num_parts=4, key="content", seed=7)
        >>> def build(records):
        ...     mean = records.tensors[0].mean(dim=0)  # of all records: every member sees it
        ...     ensemble = tp.PartitionedEnsemble(
        ...         lambda: nn.Linear(3, 2),
        ...         parts,
        ...         loss=nn.functional.cross_entropy,
        ...         optimizer=partial(torch.optim.SGD, lr=0.1),
        ...     )
        ...     data = tp.PartitionedDataModule(
        ...         records,
        ...         parts,
        ...         as_pair=lambda record: (record[0] - mean, record[1]),
        ...         batch_size=4,
        ...         steps_per_epoch=3,
        ...     )
        ...     return ensemble, data, {"max_epochs": 2}
        >>> tp.verify_isolation(build, records)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.IsolationError: ... 4 of 4 members changed ...
    """
    require_callable("build", build)
    if require_length("records", records) < 2:
        raise InvalidArgumentError("Expected at least two `records`, but got fewer.")
    fits = Rebuilding(build, records, inputs)
    chosen, length = _chosen(fits, index, steps)
    first, _ = fits.fit(NO_CHANGE, changed_records(records, NO_CHANGE), length)
    tried, moved = 0, list[int]()
    for change in _changes(fits, chosen, replacement):
        neighbour = _fitted(fits, change, length)
        if neighbour is None:
            continue
        difference = _Difference(first, *neighbour)
        if difference.is_too_much:
            _require_same_twice(first, fits, length)
            raise IsolationError(difference.explained(change, fits.num_parts))
        tried += 1
        moved += difference.members if change.essential else []
    if not moved:
        raise IsolationError(
            f"Expected a member to change with its record, but none of {fits.num_parts} did. Make "
            f"everything in `build` from the records that it is given; or pass another `index` or "
            f"`replacement`, or more `steps`: these records may teach nothing."
        )
    return Isolation(member=moved[0], steps=length, neighbours=tried)


@final
class _Difference:
    """What differs between two fits, one of them on neighbouring records."""

    def __init__(self, one: Outcome, other: Outcome, parts: int) -> None:
        self._kinds = one.changed_members(other)
        self._facts = one.changed_facts(other)
        self._parts = parts
        self.members = sorted({member for own in self._kinds.values() for member in own})

    @property
    def is_too_much(self) -> bool:
        """Whether anything but the members of the changed parts differs."""
        return bool(self._facts) or len(self.members) > self._parts

    def explained(self, change: Change, num_parts: int) -> str:
        """Return the error's words."""
        kinds = "; ".join(f"{kind} of {_numbers(own)}" for kind, own in self._kinds.items())
        public = [name for name in self._facts if name != GENERATORS]
        also = f", and so did {', '.join(public)}" if public else ""
        told = [
            f"Expected {change.action} to change {counted(self._parts, 'member')} at most and "
            f"nothing else, but {len(self.members)} of {num_parts} members changed"
            f"{kinds and f' ({kinds})'}{also}."
        ]
        if public:
            told.append(
                "Declare the numbers of a fit instead of computing them from the records, and let "
                "no callback act on the loss."
            )
        if GENERATORS in self._facts:
            told.append(
                "Records decide how often a global random generator is drawn from: draw equally "
                "often for every record, or seed a generator by the record's id."
            )
        if len(self.members) > self._parts:
            told.append(
                "Something is shared: class weights, a normalisation, a vocabulary or an encoding "
                "from all records; mixup; augmentation by index; a sampler; a loss or a callback "
                "with a state. Use public numbers, or those of each part alone."
            )
        return " ".join([*told, "The promised epsilon does not hold for this ensemble."])


def _chosen(
    fits: Rebuilding, index: int | Sequence[int] | None, steps: int | None
) -> tuple[list[int], int]:
    """Return the records to test, and the length of the fits."""
    if steps is not None:
        require_whole("steps", steps, 1, 2**31)
    if index is None:
        length = steps or fits.length()
        return fits.served_in(length), length
    chosen = list(index) if isinstance(index, Sequence) else [index]
    for place in chosen:
        require_whole("index", place, 0, fits.size - 1)
    if not chosen:
        raise InvalidArgumentError("Expected at least one `index`, but got none.")
    return chosen, steps or fits.length(seen=fits.steps_to_serve(chosen))


def _changes(fits: Rebuilding, chosen: list[int], replacement: Any) -> Iterator[Change]:
    """Yield what the partition's relation calls neighbours; last, outliers in its place."""
    records, relation = fits.records, fits.neighbours.relation
    whole = fits.neighbours.unit == "user"
    keys = fits.keys() if whole else []
    for number, place in enumerate(chosen):
        places = places_of_user(keys, place) if whole else frozenset([place])
        what = f"record {place}" if not whole else f"the user of record {place}"
        if relation == "add-remove":
            yield Change(action=f"removing {what}", removed=places)
        elif number == 0 and replacement is not None:
            new = {k: given_record(records, k, replacement) for k in places}
            yield Change(action=f"replacing {what}", replaced=new)
        else:
            read = moved_record(records, _donor(fits, places))
            yield Change(action=f"replacing {what}", replaced=dict.fromkeys(places, read))
    first = chosen[0]
    if replacement is not None and relation == "add-remove":
        new = {first: given_record(records, first, replacement)}
        yield Change(action=f"replacing record {first}", replaced=new)
    elif has_floats(seeded(lambda: records[first])):
        for far in FAR:
            new = {first: far_record(records, first, far)}
            action = f"replacing record {first} by an outlier"
            yield Change(action=action, replaced=new, essential=False)


def _donor(fits: Rebuilding, places: frozenset[int]) -> int:
    """Return another record, with another target if there is one nearby."""
    start = min(places)
    turned = (k % fits.size for k in range(start + 1, start + fits.size))
    others = list(islice((k for k in turned if k not in places), _LOOKED_AT))
    if not others:
        raise InvalidArgumentError(
            "Expected records of several users, but all are of one: nobody can be replaced."
        )
    own = digest(fits.target(start), lenient=True)
    unlike = (k for k in others if digest(fits.target(k), lenient=True) != own)
    return next(unlike, others[0])


def _fitted(fits: Rebuilding, change: Change, length: int) -> tuple[Outcome, int] | None:
    """Fit a neighbour; return None if an outlier is more than the user's code takes."""
    records = changed_records(fits.records, change)
    try:
        return fits.fit(change, records, length)
    except HoldoutError as error:
        kind, detail = type(error).__name__, str(error)
    except Exception as error:
        kind, detail = type(error).__name__, "Its message is withheld: it may quote records."
    if not change.essential:
        return None
    raise IsolationError(
        f"Expected the same fit after {change.action}, but it raised {kind}, which it does not on "
        f"all records. Make everything in `build` from the records that it is given. {detail}"
    )


def _require_same_twice(first: Outcome, fits: Rebuilding, length: int) -> None:
    again, _ = fits.fit(NO_CHANGE, changed_records(fits.records, NO_CHANGE), length)
    difference = _Difference(first, again, 0)
    if difference.is_too_much:
        raise IsolationError(
            f"Expected the same training twice on the same records, but "
            f"{len(difference.members)} of {fits.num_parts} members differ, or the numbers of the "
            f"fit: something keeps a state from one call of `build` to the next, or draws from "
            f"another source of chance. Make everything anew in `build`, and use deterministic "
            f"algorithms."
        )


def _numbers(members: list[int]) -> str:
    shown = ", ".join(map(str, members[:_NAMED]))
    more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
    return f"{'member' if len(members) == 1 else 'members'} {shown}{more}"
