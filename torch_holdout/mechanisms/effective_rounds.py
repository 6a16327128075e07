"""EffectiveRounds (Dwork et al., arXiv 1411.2664): estimation sets and a detection holdout."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, final

from torch_holdout.checks import plain_whole, require_whole
from torch_holdout.mechanisms.base import (
    Decision,
    Mechanism,
    Query,
    Release,
    require_sigma,
    require_threshold,
)
from torch_holdout.mechanisms.sparse_vector import distance_to_guess, sparse_decision


@final
@dataclass(frozen=True, kw_only=True)
class EffectiveRounds(Mechanism):
    r"""Answer from an estimation set until the holdout shows that it has been overfitted.

    There are ``rounds`` estimation sets, disjoint from each other, from the training data and from
    the holdout. A query is answered by its mean on the current set, rounded to the grid, as long as
    the holdout is within the threshold of it (with noise). When it is not, the holdout's noisy
    answer is released, the set is discarded and the next one is used. Adaptivity is paid for only
    when it has done harm.

    Guarantee:
        For the holdout that of Thresholdout: :math:`2/(u\sigma)` per release. The estimation sets
        get no privacy: their means are published. A release discards a set, so the budget is at
        most ``rounds``.

    Args:
        threshold: T, normalised; the paper takes a quarter of the tolerance.
        sigma: Scale of the answer noise; the threshold has twice, a comparison four times that.
        rounds: How many estimation sets there are: as many guess loaders in ``HoldoutGuard``.

    Example:
        >>> EffectiveRounds(threshold=0.02, sigma=0.002, rounds=5).estimation_sets
        5
    """

    grid_guess: ClassVar[bool] = True

    threshold: float
    sigma: float
    rounds: int

    def __post_init__(self) -> None:
        require_threshold("threshold", self.threshold)
        require_sigma(self.sigma)
        object.__setattr__(self, "rounds", plain_whole(self.rounds))
        require_whole("rounds", self.rounds, 1, 10**6)
        object.__setattr__(self, "threshold", float(self.threshold))
        object.__setattr__(self, "sigma", float(self.sigma))

    @property
    def estimation_sets(self) -> int | None:
        """How many sets guesses come from, one after the other."""
        return self.rounds

    def identity(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {
            "kind": "effective-rounds",
            "threshold": self.threshold,
            "sigma": self.sigma,
            "rounds": self.rounds,
        }

    def wants_guess(self) -> bool:
        """Whether the caller must bring the estimate: always."""
        return True

    def guess_for(
        self, statistic: str, last: Release | None, given: Fraction | None
    ) -> Fraction | None:
        """Return the estimate."""
        return given

    def guess_distance(self) -> float:
        """Return T."""
        return self.threshold

    def epsilon_per_step(self, units: int) -> float:
        r"""Return :math:`a = 1/(u\sigma)`."""
        return math.inf if self.sigma == 0 else 1.0 / (units * self.sigma)

    def decide(self, query: Query) -> Decision:
        """Compare with the estimate, and release if it is too far off."""
        gap = distance_to_guess(query)
        return sparse_decision(query, gap, self.threshold, self.sigma * query.levels)
