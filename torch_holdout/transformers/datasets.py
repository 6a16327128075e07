"""Which datasets of a ``HoldoutTrainer`` are the holdout, and which share no record with it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

from torch.utils.data import Dataset

from torch_holdout._noise.generators import lent_generators
from torch_holdout._shared.distributed import on_first_rank, rank_and_world
from torch_holdout._shared.tracebacks import without_trace
from torch_holdout.errors import InvalidArgumentError, UnguardedLogError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.protocol import Door
from torch_holdout.training.data_check import (
    DataCheck,
    Others,
    Refusal,
    SharedRecords,
    common_indices_or_none,
    display_of_the_holdout,
    guess_of_the_holdout,
    require_other_hashes,
)
from torch_holdout.training.data_reading import Reading, UnreadableDataError, read

_DISPLAYED = display_of_the_holdout("sets in `public_eval`")
_OWN_GUESS = guess_of_the_holdout(
    "guess_dataset", "guess_dataset=th.fixed_subset(train_set, 1000, seed=0)"
)
_TRAINED_ON = SharedRecords(
    "`train_dataset`",
    "values on records that were trained on say nothing about new ones",
    "Split once, e.g. train_set, val_set = th.split(dataset, vault=0.1, seed=0). check_data=False "
    "turns this comparison off.",
)


@final
class HoldoutData:
    """The datasets of a trainer.

    Args:
        holdout: The account.
        trainer: Has the training set, which may be another one later.
        own: The holdout's dataset, as the ``Trainer`` has it and as it was given.
        public: Other evaluation sets.
        guesses: Training examples to compare with.
        check_data: Whether records are compared.
    """

    def __init__(
        self,
        holdout: ReusableHoldout,
        trainer: Any,
        own: Sequence[Any],
        *,
        public: Mapping[str, Any],
        guesses: Sequence[Any],
        check_data: bool,
    ) -> None:
        self.own = own[0]
        self._holdout = holdout
        self._trainer = trainer
        self._given = own
        self._check_data = check_data
        self._checked: list[Any] = []  # the training set that the others were compared with
        self._check = DataCheck(holdout, check_data=check_data)
        self._others: Others = [(each, _DISPLAYED) for each in public.values()]
        self._others += [(each, _OWN_GUESS) for each in guesses]
        self._apart: list[Any] = [each for each, _ in self._others]

    def is_own(self, dataset: Any) -> bool:
        """Whether it is the holdout's dataset itself."""
        return any(dataset is each for each in self._given)

    def has_own(self, dataset: Any) -> bool:
        """Whether it is, or takes records from, the holdout's dataset."""
        return self.is_own(dataset) or bool(common_indices_or_none(self.own, dataset))

    def check(self) -> None:
        """Compare all datasets with the account and the holdout's, once for each."""
        train = self._trainer.train_dataset
        if self._checked and self._checked[0] is train:
            return
        trained: Others = [] if train is None else [(train, _TRAINED_ON)]
        others = [*self._others, *trained]
        self._check.compare(self.own, others)
        _, world = rank_and_world()
        without_trace(lambda: on_first_rank(world, lambda: self._compare_inputs(others)))
        self._checked = [train]

    def require_apart(self, dataset: Any, what: str) -> None:
        """Raise if a dataset that ``what`` evaluates as ever has records of the holdout's."""
        if self.is_own(dataset):
            raise _raw(self._holdout, what, "its dataset is the holdout's")
        self.check()
        if any(dataset is each for each in self._apart):
            return
        _, world = rank_and_world()
        without_trace(lambda: on_first_rank(world, lambda: self._compare(dataset, what)))
        self._apart.append(dataset)

    def _compare(self, dataset: Any, what: str) -> None:
        def refusal(holdout: Door, shared: int, records: int) -> InvalidArgumentError:
            reason = f"{shared:,} of {records:,} records are the holdout's own"
            return InvalidArgumentError(str(_raw(holdout, what, reason)))

        self._check.compare(self.own, [(dataset, refusal)])
        self._compare_inputs([(dataset, refusal)])
        if not self._check_data or common_indices_or_none(self.own, dataset) is not None:
            return
        try:
            read(self.own)
            read(dataset)
        except UnreadableDataError as reason:
            raise InvalidArgumentError(
                f"Expected the dataset of {what} to have other records than the holdout "
                f"{self._holdout.name!r}, but one of the two cannot be compared: {reason}. "
                f"check_data=False says that you know. Nothing was charged."
            ) from None

    def _compare_inputs(self, others: Others) -> None:
        """Compare what the model reads of a row, where rows have other fields than the holdout's.

        A column more or less, or another order of them, makes other records of the same examples.
        """
        name = getattr(self._trainer.model, "main_input_name", "")
        own = _fields(self.own) if self._check_data else None
        for dataset, refusal in others:
            fields = None if own is None else _fields(dataset)
            if own and fields and fields != own and name in own and name in fields:
                self._compare_field(name, dataset, refusal)

    def _compare_field(self, name: str, dataset: Any, refusal: Refusal) -> None:
        try:
            own, other = (_read_whole(_Field(each, name)) for each in (self.own, dataset))
        except UnreadableDataError:
            return  # whole records cannot be compared either, and that is said
        require_other_hashes(self._holdout, own, other, refusal)


class _Field(Dataset[Any]):
    """One field of each row of a dataset."""

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset = dataset
        self._name = name

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index][self._name]


def _read_whole(dataset: Any) -> Reading:
    """Return what was read as if it were all: the account has no hashes of single fields."""
    reading = read(dataset)
    return replace(reading, total=len(reading.hashes))


def _fields(dataset: Any) -> list[Any] | None:
    """Return the names of a first row's fields, in order; None if it has none."""
    try:
        with lent_generators("data check", "fields"):
            row = dataset[0]
    except Exception:  # it cannot be read by number
        return None
    return list(row) if isinstance(row, Mapping) else None


def _raw(holdout: Door, what: str, reason: str) -> UnguardedLogError:
    return UnguardedLogError(
        f"Expected {what} on other data than the holdout {holdout.name!r}, but {reason}: raw "
        f"predictions and metrics of the holdout would get out. trainer.evaluate() without a "
        f"dataset asks the holdout; predictions are for a test set. Nothing was charged."
    )
