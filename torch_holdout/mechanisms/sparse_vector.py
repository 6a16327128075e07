"""Numeric SPARSE: Thresholdout's rule with whatever guess the caller brings."""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

from torch_holdout.mechanisms.families import StaysNearGuess


@final
@dataclass(frozen=True, kw_only=True)
class SparseVector(StaysNearGuess):
    r"""Return the caller's guess while the holdout agrees with it; else pay for an answer.

    ``release(..., guess=...)`` must bring a guess with every query: a number in the statistic's own
    units, or the sealed sums of other examples. It may come from anywhere but the holdout's
    unreleased values: a smaller model, a hypothesis, cross-validation.

    Guarantee:
        That of Thresholdout: :math:`2/(u\sigma)` per release, comparisons that do not fire are
        free (Dwork and Roth 2014, NumericSparse; proof for integers in ``rounds``). What the
        guess was made from gets no privacy.

    Args:
        threshold: T, normalised: how far guess and holdout may differ.
        sigma: Scale of the answer noise; the threshold has twice, a comparison four times that.

    Example:
        >>> SparseVector(threshold=0.02, sigma=0.002).epsilon_per_step(units=500)
        1.0
    """

    kind: ClassVar[str] = "sparse"

    threshold: float
    sigma: float

    def __post_init__(self) -> None:
        self._check_distance("threshold")

    def wants_guess(self) -> bool:
        """Whether the caller must bring a guess: always."""
        return True

    def guess_source(self) -> Literal["caller"]:
        """Return whose value a guess is: the caller's."""
        return "caller"
