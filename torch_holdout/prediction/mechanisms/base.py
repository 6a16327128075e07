"""What a prediction mechanism sees and what it returns.

Example:
    >>> import torch
    >>> labels = torch.tensor([2, NO_CONSENSUS, OUT_OF_BUDGET])  # what a predictor may return
    >>> labels[labels >= 0]
    tensor([2])
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._shared.checks import require_whole
from torch_holdout.accounting import Charge
from torch_holdout.prediction.voters import Voters

NO_CONSENSUS = -1  # a mechanism's own abstention: answered, charged
OUT_OF_BUDGET = -2  # nothing was asked of the mechanism, nothing charged


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is public about the members: how many, over what, and how many one neighbour changes.

    Example:
        >>> Setting(num_parts=50, num_outputs=10).members_changed
        1
    """

    num_parts: int
    num_outputs: int
    members_changed: int = 1

    def __post_init__(self) -> None:
        require_whole("num_parts", self.num_parts, 1, 2**20)
        require_whole("num_outputs", self.num_outputs, 1, 2**20)
        require_whole("members_changed", self.members_changed, 1, 2)
        for name in ("num_parts", "num_outputs", "members_changed"):
            object.__setattr__(self, name, int(getattr(self, name)))


class PredictionMechanism(ABC):
    """A rule that turns what the members say of a query into one private answer.

    The members' outputs become a *table*, integers that add up over members: votes, or levels. It
    is raw and stays on its device. Only ``answer`` makes something of it that may leave, and only
    after the query has been charged.

    Attributes:
        answers: Labels (int64, one per query) or values (float64).

    Example:
        >>> from torch_holdout.prediction import NoisyMean, SoftMajority
        >>> issubclass(SoftMajority, PredictionMechanism), SoftMajority.answers, NoisyMean.answers
        (True, 'labels', 'values')
    """

    answers: ClassVar[Literal["labels", "values"]]

    @abstractmethod
    def table(self, outputs: Tensor) -> Tensor:
        """Return the int64 table [B, ...] of some members' outputs [m, B, ...].

        It raises for a shape, never for a value.
        """

    @abstractmethod
    def charge(self, setting: Setting) -> Charge:
        """Return what one query costs, whatever the answer."""

    @abstractmethod
    def answer(self, table: Tensor, setting: Setting, uniforms: Uniforms) -> Tensor:
        """Return one private answer per query. Reads nothing back to the host."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what the ledger stores and compares when the account is opened again."""

    @abstractmethod
    def sampler_error(self, setting: Setting) -> float:
        """Bound the total variation between one answer and its law."""

    def require_voters(self, voters: Voters) -> None:  # noqa: B027  most take any
        """Refuse models that the charge was not made for."""

    def value_shape(self, queries: int, setting: Setting) -> tuple[int, ...]:
        """Return the shape of values that answer some queries; labels are one each."""
        return (queries,)
