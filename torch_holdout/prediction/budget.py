"""The budget of all answers from some training records."""

from dataclasses import dataclass
from typing import Any, final

from torch_holdout._shared.checks import require_between
from torch_holdout._shared.moved import old_name
from torch_holdout.accounting import Charge
from torch_holdout.accounting.filters import queries_for
from torch_holdout.errors import InvalidArgumentError

_LARGEST = 1000.0
_RECORDS = "torch_holdout.prediction.records"
_MOVED = dict.fromkeys(("TrainingRecords", "_handle"), _RECORDS)  # pickles name the second


@final
@dataclass(frozen=True, kw_only=True)
class PrivacyBudget:
    """The (epsilon, delta) that everything answered from some training records may add up to.

    Args:
        epsilon: In all, for the neighbouring relation of the partition.
        delta: None for pure epsilon; then charges are plainly added.

    Example:
        >>> PrivacyBudget(epsilon=2.0, delta=1e-5)
        PrivacyBudget(epsilon=2.0, delta=1e-05)
    """

    epsilon: float
    delta: float | None = None

    def __post_init__(self) -> None:
        require_between("epsilon", self.epsilon, 0, _LARGEST)
        if self.epsilon == 0:
            raise InvalidArgumentError(
                "Expected `epsilon` to be above 0: a budget of zero answers nothing."
            )
        if self.delta is not None:
            require_between("delta", self.delta, 0, 1, ends=False)
            object.__setattr__(self, "delta", float(self.delta))
        object.__setattr__(self, "epsilon", float(self.epsilon))

    def queries_for(self, charge: Charge) -> int:
        """Return how many queries of one charge the whole budget buys.

        Example:
            >>> from torch_holdout.accounting import Concentrated
            >>> PrivacyBudget(epsilon=2.0, delta=1e-5).queries_for(Concentrated(0.1**2 / 2))
            21
        """
        return queries_for(charge, self.epsilon, self.delta)


def __getattr__(name: str) -> Any:
    return old_name(__name__, name, _MOVED)
