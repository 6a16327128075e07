"""Broken twins that the audits must catch. None of them is reachable from anywhere else."""

from dataclasses import dataclass, replace
from typing import Any, cast

from torch_holdout._noise.streams import NoiseStream
from torch_holdout.mechanisms import Decision, Mechanism, Query, Release
from torch_holdout.mechanisms.base import Guess
from torch_holdout.mechanisms.rounds import (
    distance_to_guess,
    fires,
    noisy_answer,
    noisy_threshold,
    to_levels,
)


@dataclass(frozen=True)
class Twin(Mechanism):
    """Thresholdout with a fault: ``fault`` says which."""

    threshold: float
    sigma: float
    fault: str

    def identity(self) -> dict[str, Any]:
        """Return the name of its fault."""
        return {"kind": f"twin: {self.fault}"}

    def guess_for(self, statistic: str, last: Release | None, given: Guess) -> Guess:
        """Return the caller's guess."""
        return given

    def epsilon_per_step(self, units: int) -> float:
        """Return the epsilon that it claims."""
        return 1.0 / (units * self.sigma)

    def decide(self, query: Query) -> Decision:
        """Decide, with the fault."""
        if self.fault == "noise reused":
            query = replace(query, noise=cast(NoiseStream, _Reused(query.noise)))
        return self._round(query, self.sigma * query.levels)

    def _round(self, query: Query, scale: float) -> Decision:
        gap, secret = distance_to_guess(query), query.threshold
        public = to_levels(self.threshold, query.levels)
        if gap is not None:
            if secret is None:
                quiet = self.fault == "no threshold noise"
                secret = public if quiet else noisy_threshold(public, scale, query.noise)
            if not fires(gap, secret, scale, query.noise):
                kept = None if self.fault == "threshold redrawn per query" else secret
                return Decision(index=None, compared=True, opened=False, threshold=kept)
        shrunk = 0.9 if self.fault == "answer noise 10 % too small" else 1.0
        index = noisy_answer(query.total, query.levels, query.grid, shrunk * scale, query.noise)
        return Decision(index=index, compared=gap is not None, opened=False, threshold=None)


class _Reused:
    """Noise that returns its first draw again, scaled."""

    def __init__(self, noise: NoiseStream) -> None:
        self._noise = noise
        self._first: tuple[int, float] | None = None

    def laplace(self, scale: float) -> int:
        if self._first is None:
            self._first = (self._noise.laplace(scale), scale)
        draw, first = self._first
        return round(draw * scale / first)


class Scaled:
    """Noise whose scale is multiplied by a share, which may be 0."""

    def __init__(self, noise: NoiseStream, share: float) -> None:
        self._noise, self._share = noise, share

    def geometric(self, scale: float) -> int:
        """Draw with the wrong scale."""
        return self._noise.geometric(self._share * scale)


def float_answer(mean: float, noise: float) -> float:
    """Answer in floating point, as most code does: its last bits betray the mean."""
    return mean + noise


def off_by_one(budget: int) -> list[bool]:
    """Return what a door that compares with ``<=`` grants."""
    return [number <= budget for number in range(3 * budget)]


FAULTS = (
    "threshold redrawn per query",
    "no threshold noise",
    "answer noise 10 % too small",
    "noise reused",
)

RUN_FAULTS = (
    "threshold redrawn at each evaluation",
    "selection without noise",
    "comparison noise halved",
    "outcome drawn twice",
)
