"""Compare what the guard's loaders read with what the account knows, before the first answer.

An account made with a fingerprint must get those records. Any other account keeps a sketch of the
first whole dataset that the guard sees; later a part of those records is a new split and refused,
while none of them is probably another preprocessing, and said.
"""

import logging
import operator
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from torch_holdout._fingerprints.sketch import Common
from torch_holdout._shared.distributed import on_first_rank, rank_and_world
from torch_holdout._shared.tracebacks import without_trace
from torch_holdout.errors import HoldoutMismatchError, HoldoutWarning, InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.known_data import (
    has_fingerprint,
    is_open,
    known_data,
    learn_data,
)
from torch_holdout.holdout.protocol import Door
from torch_holdout.ledger.same_data import SPLIT_ONCE, compared_share, much
from torch_holdout.training.data_reading import (
    Reading,
    UnreadableDataError,
    common_indices,
    read,
)
from torch_holdout.training.requirements import listed

_MOSTLY, _HARDLY = 0.9, 0.02  # of records seen before: the same data, and other preprocessing
_DUPLICATES = 0.01  # of another loader's records may be in the holdout by chance
_OFF = "check_data=False turns this comparison off. Nothing was charged."

_log = logging.getLogger("torch_holdout")
Refusal = Callable[[Door, int, int], InvalidArgumentError]
Others = list[tuple[Any, Refusal]]  # datasets with none of the holdout's records, or this is raised
# What was compared in this process: weak references to datasets by account and their ids.
_compared: dict[tuple[Any, ...], list["weakref.ref[Any]"]] = {}


@final
@dataclass(frozen=True)
class SharedRecords:
    """The error for a set that has records of the holdout's.

    Attributes:
        argument: What the set was given as.
        why: What the holdout's own records would do there.
        remedy: What to write instead.
        whose: Whose dataset it is, for a comparison that could not be made.
    """

    argument: str
    why: str
    remedy: str
    whose: str = "Another"

    def __call__(self, holdout: Door, shared: int, records: int) -> InvalidArgumentError:
        """Return the error for ``shared`` of a set's ``records``."""
        return InvalidArgumentError(
            f"Expected {self.argument} with other records than the holdout {holdout.name!r}, but "
            f"{shared:,} of {records:,} are the holdout's own: {self.why}. {self.remedy} Nothing "
            f"was charged."
        )


def guess_of_the_holdout(argument: str, given: str, whose: str = "Another") -> SharedRecords:
    """Return the error for training values of the holdout; ``given`` is what to give instead."""
    why = "the holdout as its own guess publishes its raw mean"
    return SharedRecords(
        f"`{argument}`", why, f"Take training records after the split, e.g. {given}.", whose
    )


def display_of_the_holdout(argument: str, whose: str = "Another") -> SharedRecords:
    """Return the error for a set that may be watched and is the holdout's."""
    why = "whatever is logged for them shows the holdout's values"
    cut = "display, rest = th.split(train_set, display=0.1, seed=0)"
    return SharedRecords(argument, why, f"Cut the display off first, e.g. {cut}.", whose)


_OWN_GUESS = guess_of_the_holdout(
    "guess_dataloaders",
    "guess_dataloaders=DataLoader(th.fixed_subset(train_set, 1000, seed=0), batch_size=500)",
    "A guess loader's",
)
_DISPLAYED = display_of_the_holdout("`public_dataloaders`", "A public loader's")
_TESTED = SharedRecords(
    "loaders of trainer.test()",
    "this guard guards validation, so the test_step would log raw values",
    "Call trainer.validate(), which asks the holdout; test on other records, which a guard with "
    "stage='test' guards.",
    "A test loader's",
)


@final
class DataCheck:
    """The comparison of a guard's datasets, once for each dataset object in this process.

    Args:
        holdout: The account.
        check_data: Whether records are read; subsets of one dataset are always compared.
    """

    def __init__(self, holdout: Door, *, check_data: bool) -> None:
        self._holdout = holdout
        self._check_data = check_data
        self._held: list[list[Any]] = []  # what was compared and has no weak references

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_held": []}

    def run(self, loader: Any, guess_loaders: Any, public_loaders: Sequence[Any] = ()) -> None:
        """Compare the loader's dataset with the account, and with the other loaders'."""
        dataset = None if loader is None else _dataset(loader)
        wanted = guess_loaders is not None and self._holdout.mechanism.wants_guess()
        guesses = [_dataset(loader) for loader in listed(guess_loaders)] if wanted else []
        shown = [_dataset(loader) for loader in public_loaders]
        others: Others = [(each, _OWN_GUESS) for each in guesses]
        others += [(each, _DISPLAYED) for each in shown]
        self.compare(dataset, others)

    def compare(self, dataset: Any, others: Others) -> None:
        """Compare datasets; rank 0 reads, its errors reach all."""
        _, world = rank_and_world()
        # Frames of the comparison hold records and their hashes.
        without_trace(lambda: on_first_rank(world, lambda: self._once(dataset, others)))

    def refuse_tested(self, loaders: Iterable[Any]) -> None:
        """Raise if unguarded loaders of a test have records that the open account knows."""
        holdout = self._holdout
        if not self._check_data or not isinstance(holdout, ReusableHoldout):
            return
        datasets = [_dataset(loader) for loader in loaders]
        _, world = rank_and_world()
        without_trace(lambda: on_first_rank(world, lambda: self._refuse(holdout, datasets)))

    def _refuse(self, holdout: ReusableHoldout, datasets: Iterable[Any]) -> None:
        for dataset in datasets if is_open(holdout) else ():
            self._refuse_one(holdout, dataset)

    def _refuse_one(self, holdout: ReusableHoldout, dataset: Any) -> None:
        try:
            require_unknown(holdout, read(dataset), _TESTED)
        except UnreadableDataError as reason:
            self._say(f"{_TESTED.whose} dataset was not compared: {reason}", logging.INFO)

    def _once(self, dataset: Any, others: Others) -> None:
        publics = sum(refusal is _DISPLAYED for _, refusal in others)
        key = (self._holdout.address, self._holdout.account, self._check_data, publics)
        datasets = [dataset, *(other for other, _ in others)]
        if not self._seen(key, datasets):
            self._compare(dataset, others)
            self._remember(key, datasets)

    def _compare(self, dataset: Any, others: Others) -> None:
        for other, refusal in others:
            require_other_records(self._holdout, dataset, other, refusal)
        holdout = self._holdout
        if not self._check_data or not isinstance(holdout, ReusableHoldout):
            return  # a board's account is elsewhere
        try:
            reading = read(dataset)
            foreign = compare_with_account(holdout, reading)
        except UnreadableDataError as reason:
            # Users who have registered a fingerprint count on the comparison.
            level = logging.WARNING if has_fingerprint(holdout) else logging.INFO
            self._say(f"The loader's dataset was not compared with the account: {reason}", level)
            return
        for other, refusal in others:
            if foreign or common_indices_or_none(dataset, other) is None:
                self._compare_other(holdout, reading, other, refusal, foreign=foreign)

    def _compare_other(
        self,
        holdout: ReusableHoldout,
        reading: Reading,
        other: Any,
        refusal: Refusal,
        *,
        foreign: bool,
    ) -> None:
        try:
            require_other_hashes(holdout, reading, read(other), refusal, foreign=foreign)
        except UnreadableDataError as reason:
            # Whatever is shown of the holdout's records would publish its mean.
            whose = refusal.whose if isinstance(refusal, SharedRecords) else "Another"
            what = f"{whose} dataset was not compared with the holdout's: {reason}"
            self._say(what, logging.WARNING)

    def _say(self, what: str, level: int) -> None:
        _log.log(level, "Holdout %r: %s.", self._holdout.name, what)

    def _seen(self, key: tuple[Any, ...], datasets: list[Any]) -> bool:
        known = [reference() for reference in _compared.get((*key, *map(id, datasets)), [])]
        return any(
            len(each) == len(datasets) and all(map(operator.is_, each, datasets))
            for each in (known, *self._held)
        )

    def _remember(self, key: tuple[Any, ...], datasets: list[Any]) -> None:
        name = (*key, *map(id, datasets))
        try:
            _compared[name] = [
                weakref.ref(dataset, lambda _: _compared.pop(name, None)) for dataset in datasets
            ]
        except TypeError:  # a list, or None
            self._held.append(datasets)


def compare_with_account(holdout: ReusableHoldout, reading: Reading) -> bool:
    """Raise if a dataset is not the account's own; let an account without known data keep it.

    Return whether its records are not those that the account knows: that is only a warning.
    """
    known = known_data(holdout, reading.hashes)
    common = known.common
    if not reading.whole:
        _log.info(
            "Holdout %r: %d of %d records of the loader's dataset were compared.",
            holdout.name,
            len(reading.hashes),
            reading.total,
        )
    if common is None:
        if reading.whole and not known.registered and not learn_data(holdout, reading.hashes):
            return compare_with_account(holdout, reading)  # another process was faster
        return False
    if known.registered:
        if not (common.same if reading.whole else common.both == common.given):
            reading.require_repeatable()
            raise HoldoutMismatchError(_not_registered(holdout, common))
        return False
    return common.both < common.given and _meet_other_data(holdout, reading, common)


def _not_registered(holdout: ReusableHoldout, common: Common) -> str:
    advice = (
        f"{SPLIT_ONCE}."
        if common.both
        else "Fingerprint the dataset that the loader reads, with its preprocessing; or give new "
        "data an account of its own."
    )
    return (
        f"Expected the loader of holdout {holdout.name!r} to read the records of its fingerprint, "
        f"but {compared_share(common)} are among them. {advice} {_OFF}"
    )


def _meet_other_data(holdout: ReusableHoldout, reading: Reading, common: Common) -> bool:
    """Refuse a new split of the data seen before; say so if it has changed otherwise.

    Return whether these are other records.
    """
    if common.share_of_given >= _MOSTLY:
        _log.info(
            "Holdout %r: %s are among those it was validated on before.",
            holdout.name,
            compared_share(common),
        )
        return False
    reading.require_repeatable()
    if common.share_of_given >= _HARDLY:
        raise HoldoutMismatchError(
            f"Expected the records that holdout {holdout.name!r} was validated on before, but "
            f"{compared_share(common)} are among them. {SPLIT_ONCE}. Data of its own needs an "
            f"account of its own. {_OFF}"
        )
    warnings.warn(
        f"Holdout {holdout.name!r}: {compared_share(common)} are among those it was validated on "
        f"before. If the preprocessing has changed, this is fine; other data needs an account of "
        f"its own, and its answers count on the same records. fingerprint=th.fingerprint(dataset) "
        f"makes sure.",
        HoldoutWarning,
        stacklevel=2,
    )
    return True


def require_other_records(holdout: Door, dataset: Any, other: Any, refusal: Refusal) -> None:
    """Raise if another loader has the holdout's dataset, or takes records from the same one."""
    if dataset is None or other is None:
        return
    if shared := common_indices_or_none(dataset, other):
        raise refusal(holdout, shared, len(other))


def require_other_hashes(
    holdout: ReusableHoldout,
    reading: Reading,
    other: Reading,
    refusal: Refusal,
    *,
    foreign: bool = False,
) -> None:
    """Raise if more of another loader's records than chance allows are the holdout's.

    ``foreign``: the account knows other records than the holdout's loader has now; those that it
    knows are the holdout's too, e.g. where two parts of a set have changed places.
    """
    own, given = np.unique(reading.hashes), np.unique(other.hashes)
    repeats = min(1 - len(own) / len(reading.hashes), 1 - len(given) / len(other.hashes))
    if reading.whole:
        common = Common(len(given), len(own), len(np.intersect1d(own, given)))
        _require_few(common, holdout, other, refusal, repeats)
    if foreign or not reading.whole:
        known = known_data(holdout, given).common
        if known is None:
            raise UnreadableDataError("the holdout is too large to be read whole")
        _require_few(known, holdout, other, refusal, repeats)


def require_unknown(holdout: ReusableHoldout, other: Reading, refusal: Refusal) -> None:
    """Raise if more of a dataset's records than chance allows are those that the account knows."""
    given = np.unique(other.hashes)
    known = known_data(holdout, given).common
    if known is not None:
        _require_few(known, holdout, other, refusal, 1 - len(given) / len(other.hashes))


def _require_few(
    common: Common, holdout: Door, other: Reading, refusal: Refusal, repeats: float
) -> None:
    if much(common, tolerated=_DUPLICATES + 2 * repeats):
        other.require_repeatable()
        raise refusal(holdout, common.both, common.given)


def common_indices_or_none(dataset: Any, other: Any) -> int | None:
    """Count common records of subsets of one dataset; None if that is not known."""
    try:
        return common_indices(dataset, other)
    except Exception:  # datasets without a length, indices of another kind
        return len(other) if dataset is other and hasattr(other, "__len__") else None


def _dataset(loader: Any) -> Any:
    return getattr(loader, "dataset", None)
