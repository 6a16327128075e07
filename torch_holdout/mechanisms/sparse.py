"""Numeric SPARSE: Thresholdout's rule with whatever guess the caller brings."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

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
class SparseVector(Mechanism):
    r"""Return the caller's guess while the holdout agrees with it; else pay for an answer.

    ``release(..., guess=...)`` must bring a guess with every query: a number in the statistic's own
    units, or the sealed sums of other examples. It may come from anywhere but the holdout's
    unreleased values: a smaller model, a hypothesis, cross-validation.

    Guarantee:
        That of Thresholdout: :math:`2/(u\sigma)` per release, comparisons that do not fire are
        free (Dwork and Roth 2014, NumericSparse; proof for integers in ``sparse_vector``). What the
        guess was made from gets no privacy.

    Args:
        threshold: T, normalised: how far guess and holdout may differ.
        sigma: Scale of the answer noise; the threshold has twice, a comparison four times that.

    Example:
        >>> SparseVector(threshold=0.02, sigma=0.002).epsilon_per_step(units=500)
        1.0
    """

    threshold: float
    sigma: float

    def __post_init__(self) -> None:
        require_threshold("threshold", self.threshold)
        require_sigma(self.sigma)
        object.__setattr__(self, "threshold", float(self.threshold))
        object.__setattr__(self, "sigma", float(self.sigma))

    def identity(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"kind": "sparse", "threshold": self.threshold, "sigma": self.sigma}

    def wants_guess(self) -> bool:
        """Whether the caller must bring a guess: always."""
        return True

    def guess_for(
        self, statistic: str, last: Release | None, given: Fraction | None
    ) -> Fraction | None:
        """Return the caller's guess."""
        return given

    def guess_distance(self) -> float:
        """Return T."""
        return self.threshold

    def epsilon_per_step(self, units: int) -> float:
        r"""Return :math:`a = 1/(u\sigma)`."""
        return math.inf if self.sigma == 0 else 1.0 / (units * self.sigma)

    def decide(self, query: Query) -> Decision:
        """Compare with the guess, and release if it is too far off."""
        gap = distance_to_guess(query)
        return sparse_decision(query, gap, self.threshold, self.sigma * query.levels)
