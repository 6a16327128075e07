"""The Laplace mechanism: every query answered, with noise."""

from dataclasses import dataclass
from typing import ClassVar, final

from torch_holdout._shared.checks import require_number
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms.base import Decision, Query
from torch_holdout.mechanisms.families import AnswersEverything
from torch_holdout.mechanisms.rounds import sparse_decision

_SMALLEST, _LARGEST = 1e-9, 1e3


@final
@dataclass(frozen=True, kw_only=True)
class LaplaceMechanism(AnswersEverything):
    r"""Answer every query with :math:`h + \mathrm{Lap}(1/(u\varepsilon))`, rounded to the grid.

    Guarantee:
        Replacing one holdout example changes the law of one answer by at most
        :math:`e^\varepsilon`: B answers cost :math:`B\varepsilon`, less at a delta. Every answer is
        a release: the certificate counts all of them.

    Args:
        epsilon: What one answer costs. The noise has scale ``resolution / epsilon`` in levels.

    Example:
        >>> LaplaceMechanism(epsilon=0.1).epsilon_per_step(units=500)
        0.1
    """

    kind: ClassVar[str] = "laplace"

    epsilon: float

    def __post_init__(self) -> None:
        require_number("epsilon", self.epsilon)
        if not _SMALLEST <= self.epsilon <= _LARGEST:
            raise InvalidArgumentError(
                f"Expected `epsilon` of one answer from {_SMALLEST:g} to {_LARGEST:g}, but got "
                f"{self.epsilon!r}."
            )
        object.__setattr__(self, "epsilon", float(self.epsilon))

    def epsilon_per_step(self, units: int) -> float:
        """Return epsilon, whatever the number of units: the noise follows it."""
        return self.epsilon

    def decide(self, query: Query) -> Decision:
        """Release the noisy value."""
        return sparse_decision(query, None, 0.0, query.resolution / self.epsilon)
