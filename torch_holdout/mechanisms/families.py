"""Families of mechanisms: comparing in rounds, staying near a guess, answering everything."""

import math
from typing import ClassVar

from torch_holdout._shared.checks import require_number
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms.base import Decision, Guess, Mechanism, Query, Release, require_sigma
from torch_holdout.mechanisms.rounds import distance_to_guess, sparse_decision


class ComparesInRounds(Mechanism):
    """Mechanisms that compare: noise of ``sigma`` (answer), twice (threshold), four times (gap)."""

    sigma: float

    def epsilon_per_step(self, units: int) -> float:
        r"""Return :math:`a = 1/(u\sigma)`, what an answer or a round of comparisons costs."""
        return math.inf if self.sigma == 0 else 1.0 / (units * self.sigma)

    def _check_distance(self, name: str) -> None:
        """Raise unless the distance of that name and sigma are usable; keep both as floats."""
        distance = getattr(self, name)
        require_number(name, distance)
        if not 0 <= distance < 1:
            raise InvalidArgumentError(
                f"Expected `{name}` from 0 to below 1, in normalised units (the bounds mapped to "
                f"[0, 1]), but got {distance!r}."
            )
        require_sigma(self.sigma)
        object.__setattr__(self, name, float(distance))
        object.__setattr__(self, "sigma", float(self.sigma))


class StaysNearGuess(ComparesInRounds):
    """Mechanisms that return the guess while the holdout is within ``threshold`` of it."""

    threshold: float

    def guess_for(self, statistic: str, last: Release | None, given: Guess) -> Guess:
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
    """Mechanisms that release every query; there are no guesses."""

    compares: ClassVar[bool] = False
    guess_rule: ClassVar[str | None] = None

    def guess_for(self, statistic: str, last: Release | None, given: Guess) -> Guess:
        """Return no guess: every query is released."""
        return None

    def guess_distance(self) -> float:
        """Return 0: there are no guesses."""
        return 0.0
