"""EffectiveRounds (Dwork et al., arXiv 1411.2664): estimation sets and a detection holdout."""

from dataclasses import dataclass
from typing import ClassVar, final

from torch_holdout._shared.checks import plain_whole, require_whole
from torch_holdout.mechanisms.families import StaysNearGuess


@final
@dataclass(frozen=True, kw_only=True)
class EffectiveRounds(StaysNearGuess):
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

    kind: ClassVar[str] = "effective-rounds"
    grid_guess: ClassVar[bool] = True

    threshold: float
    sigma: float
    rounds: int

    def __post_init__(self) -> None:
        self._check_distance("threshold")
        object.__setattr__(self, "rounds", plain_whole(self.rounds))
        require_whole("rounds", self.rounds, 1, 10**6)

    @property
    def estimation_sets(self) -> int | None:
        """How many sets guesses come from, one after the other."""
        return self.rounds

    def wants_guess(self) -> bool:
        """Whether the caller must bring the estimate: always."""
        return True
