"""The models behind a predictor and the rules that answer from their outputs.

Example:
    >>> import torch
    >>> labels = torch.tensor([2, NO_CONSENSUS, OUT_OF_BUDGET])  # what a predictor may return
    >>> labels[labels >= 0]
    tensor([2])
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, TypeVar, final

import torch
from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._shared.checks import require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout._shared.locks import OwnLock, lock_of
from torch_holdout._shared.quiet import without_warnings
from torch_holdout._shared.text import counted
from torch_holdout.accounting import Charge, largest_parameter
from torch_holdout.prediction.mechanisms.votes import is_like, vote_table, without_numbers
from torch_holdout.prediction.neighbours import Neighbours
from torch_holdout.prediction.plain_inputs import require_plain_inputs

NO_CONSENSUS = -1  # a mechanism's own abstention: answered, charged
OUT_OF_BUDGET = -2  # nothing was asked of the mechanism, nothing charged
_Vote = TypeVar("_Vote", bound="OneParameterVote")


class Voters(ABC):
    """Models whose raw outputs are private: an ensemble on disjoint parts, or one stable model.

    Attributes:
        num_outputs: Classes, or the size of the output; None until it is known.
        records_change: Whether records are added and removed under one account.
        revision: An object that is replaced whenever records are added or removed.
    """

    num_outputs: int | None
    records_change: bool = False
    revision: object = None

    @property
    def members_lock(self) -> OwnLock:
        """The lock that a thread holds while it computes members' outputs.

        Re-entrant; free in copies, in pickles and after a fork. Subclasses need do nothing for it.
        """
        return lock_of(self)

    @property
    @abstractmethod
    def num_parts(self) -> int:
        """The number of models."""

    @property
    @abstractmethod
    def neighbours(self) -> Neighbours:
        """Which change of the training records is protected."""

    @property
    def source(self) -> str:
        """What answers are made from, in a few public words."""
        return counted(self.num_parts, "part")

    @property
    def protects(self) -> str:
        """Who is protected, in a few public words."""
        return str(self.neighbours)

    def require_mechanism(self, kind: str) -> None:  # noqa: B027  most take any
        """Raise if a mechanism of this kind cannot answer from these outputs."""

    @abstractmethod
    def public_outputs(self, inputs: Any) -> Tensor:
        """Return the outputs ``[B, ...]`` of a model with public weights, the members' twin.

        It is asked before any member: it alone may raise, because its failure tells of the queries
        and of nothing else.
        """

    @abstractmethod
    def output_chunks(self, inputs: Any) -> Iterator[Tensor]:
        """Yield raw outputs ``[m, B, ...]`` of a few members at a time, without gradients."""

    def member_chunks(self, inputs: Any, pattern: Tensor) -> Iterator[Tensor]:
        """Yield raw outputs like ``pattern``, the twin's, of a few members at a time."""
        return self.output_chunks(inputs)

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the public facts of their training."""


class NearestVoters(Voters):
    """Records that vote themselves, each for its label, in an exact order of nearness."""

    @abstractmethod
    def nearest(self, inputs: Any, count: int) -> Tensor:
        """Return the labels of the nearest records or users, int32 [B, count]; -1 for none. Raw.

        The order of two of them depends on these two and the query alone.
        """


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """The public facts of the members: their number, their outputs, how many a neighbour changes.

    Example:
        >>> Setting(num_parts=50, num_outputs=10).members_changed
        1
    """

    num_parts: int
    num_outputs: int
    members_changed: int = 1

    def __post_init__(self) -> None:
        for name, largest in (("num_parts", 2**20), ("num_outputs", 2**20), ("members_changed", 2)):
            require_whole(name, getattr(self, name), 1, largest)
            object.__setattr__(self, name, int(getattr(self, name)))


class PredictionMechanism(ABC):
    """A rule that turns the members' outputs for a query into one private answer.

    The members' outputs become a *table*, integers that add up over members: votes, or levels. It
    is raw and stays on its device. Only ``answer`` makes something of it that may leave, and only
    after the query has been charged.

    Attributes:
        kind: Its name in the ledger.
        answers: Labels (int64, one per query) or values (float64).

    Example:
        >>> from torch_holdout.prediction import NoisyMean, SoftMajority
        >>> issubclass(SoftMajority, PredictionMechanism), SoftMajority.answers, NoisyMean.answers
        (True, 'labels', 'values')
    """

    kind: ClassVar[str]
    answers: ClassVar[Literal["labels", "values"]]

    @abstractmethod
    def table(self, outputs: Tensor) -> Tensor:
        """Return the int64 table [B, ...] of some members' outputs [m, B, ...].

        It raises for a shape, never for a value.
        """

    def public_table(self, voters: Voters, inputs: Any) -> Tensor:
        """Return the table of the members' twin; it raises if the queries are wrong."""
        with voters.members_lock:
            return self.table(_public_pattern(voters, inputs)[None])

    def total_table(self, voters: Voters, inputs: Any) -> Tensor:
        """Add up the tables of all members. Raw.

        The public twin is asked first, and only it can make this raise. Afterwards an error would
        tell of the records, for free: a member that fails, or gives something else than the twin
        did, counts as one whose outputs are not numbers. Threads take turns.
        """
        with voters.members_lock, without_warnings():
            pattern = _public_pattern(voters, inputs)
            absent = self.table(without_numbers(pattern)[None])
            total, heard = torch.zeros_like(absent), 0
            with contextlib.suppress(Exception):
                for outputs in voters.member_chunks(inputs, pattern):
                    if not is_like(outputs, pattern):
                        break
                    total = total + self.table(outputs)
                    heard += len(outputs)
        return total + max(voters.num_parts - heard, 0) * absent

    @abstractmethod
    def charge(self, setting: Setting) -> Charge:
        """Return the charge of one query, whatever the answer."""

    @abstractmethod
    def answer(self, table: Tensor, setting: Setting, uniforms: Uniforms) -> Tensor:
        """Return one private answer per query. Reads nothing back to the host."""

    @abstractmethod
    def sampler_error(self, setting: Setting) -> float:
        """Bound the total variation between one answer and its law."""

    def identity(self) -> dict[str, Any]:
        """Return the name and parameters that the ledger stores with every charge."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]

    def num_outputs(self, table: Tensor) -> int | None:
        """Return the number of outputs that a table has; None if it does not show it."""
        return table.shape[1] if table.ndim > 1 else 1

    def require_voters(self, voters: Voters) -> None:
        """Raise if the charge does not hold for these models."""
        voters.require_mechanism(type(self).__name__)

    def value_shape(self, queries: int, setting: Setting) -> tuple[int, ...]:
        """Return the shape of values that answer some queries; labels are one each."""
        return (queries,)


def _public_pattern(voters: Voters, inputs: Any) -> Tensor:
    """Return the twin's outputs; raise if something in the queries, or the model, would watch."""
    require_plain_inputs(inputs)
    pattern = voters.public_outputs(inputs)
    require_plain_inputs(pattern)  # a query may hide its tensors, in a closure or an iterator
    return pattern


class KnownAccuracy(ABC):
    """A rule whose expected accuracy is known, and how far one neighbour moves it."""

    @abstractmethod
    def label_chances(
        self, table: Tensor, labels: Tensor, num_classes: int, uniforms: Uniforms
    ) -> Tensor:
        """Return the probability of each row's label, float64 [B]; as raw as the table.

        What else is random than the noise is drawn from ``uniforms``.
        """

    @abstractmethod
    def accuracy_sensitivity(self) -> float:
        """Bound how far one changed member, or record, moves such a probability."""


class VoteMechanism(PredictionMechanism):
    """A rule that answers with a label, from the number of votes of each class."""

    answers: ClassVar[Literal["labels", "values"]] = "labels"

    def table(self, outputs: Tensor) -> Tensor:
        """Return votes [B, C] of scores [m, B, C]."""
        return vote_table(outputs)


class OneParameterVote(VoteMechanism):
    """A vote whose one parameter decides how sharp it is."""

    @classmethod
    @abstractmethod
    def of_sharpness(cls: type[_Vote], sharpness: float) -> _Vote:
        """Return the vote of a sharpness: a larger one has less noise and costs more."""

    @classmethod
    def charge_of(cls, sharpness: float, setting: Setting) -> Charge:
        """Return the charge of one query at a sharpness."""
        return cls.of_sharpness(sharpness).charge(setting)

    @classmethod
    @formula
    def for_budget(
        cls: type[_Vote],
        *,
        epsilon: float,
        delta: float | None,
        queries: int,
        num_parts: int,
        num_classes: int,
        members_changed: int = 1,
    ) -> _Vote:
        """Return the vote with the least noise that a budget pays for this often.

        Example:
            >>> from torch_holdout.prediction import GNMax, PermuteAndFlip, SoftMajority
            >>> public = {"queries": 100, "num_parts": 50, "num_classes": 10}
            >>> round(GNMax.for_budget(epsilon=2.0, delta=1e-5, **public).sigma, 1)
            30.4
            >>> round(SoftMajority.for_budget(epsilon=2.0, delta=1e-5, **public).eta, 4)
            0.0631
            >>> round(PermuteAndFlip.for_budget(epsilon=2.0, delta=None, **public).epsilon, 9)
            0.02
        """
        setting = Setting(
            num_parts=num_parts, num_outputs=num_classes, members_changed=members_changed
        )
        sharpness = largest_parameter(
            lambda sharpness: cls.charge_of(sharpness, setting), queries, epsilon, delta
        )
        return cls.of_sharpness(sharpness)
