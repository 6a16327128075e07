"""What mechanisms have in common: comparing in rounds, being near a guess, answering all."""

import math
from fractions import Fraction
from typing import ClassVar

from torch_holdout.mechanisms.base import (
    Decision,
    Mechanism,
    Query,
    Release,
    require_sigma,
    require_threshold,
)
from torch_holdout.mechanisms.rounds import distance_to_guess, sparse_decision


class ComparesInRounds(Mechanism):
    """Compares with noise of scale ``sigma`` (answer), twice (threshold) and four times that."""

    sigma: float

    def epsilon_per_step(self, units: int) -> float:
        r"""Return :math:`a = 1/(u\sigma)`, what an answer or a round of comparisons costs."""
        return math.inf if self.sigma == 0 else 1.0 / (units * self.sigma)

    def _check_distance(self, name: str) -> None:
        """Check the distance of that name, and sigma, and keep both as floats."""
        require_threshold(name, getattr(self, name))
        require_sigma(self.sigma)
        object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "sigma", float(self.sigma))


class StaysNearGuess(ComparesInRounds):
    """Returns the guess while the holdout is within ``threshold`` of it, on both sides."""

    threshold: float

    def guess_for(
        self, statistic: str, last: Release | None, given: Fraction | None
    ) -> Fraction | None:
        """Return the caller's guess."""
        return given

    def guess_distance(self) -> float:
        """Return T."""
        return self.threshold

    def decide(self, query: Query) -> Decision:
        """Compare with the guess, and release if it is too far off; without a guess, release."""
        gap = distance_to_guess(query)
        return sparse_decision(query, gap, self.threshold, self.sigma * query.levels)


class AnswersEverything(Mechanism):
    """Releases every query; there are no guesses."""

    compares: ClassVar[bool] = False
    guess_rule: ClassVar[str | None] = None

    def guess_for(
        self, statistic: str, last: Release | None, given: Fraction | None
    ) -> Fraction | None:
        """Return no guess: every query is released."""
        return None

    def guess_distance(self) -> float:
        """Return 0: there are no guesses."""
        return 0.0
