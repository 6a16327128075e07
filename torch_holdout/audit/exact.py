"""Exact laws of small games, by running a mechanism's own code over every noise it can draw."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast, final

from torch_holdout._noise.streams import NoiseStream
from torch_holdout.audit.evidence import (
    ScriptedNoise,
    ScriptEndError,
    laplace_probability,
    largest_ratio,
)
from torch_holdout.mechanisms import Decision, Mechanism, Query

_TRUNCATED = 1e-9  # noise less likely than that is left out ...
_LIKELY = 1e-5  # ... and outcomes less likely than that are not compared
Outcome = tuple[int, int] | None
State = tuple[tuple[int, int], ...]


@final
@dataclass(frozen=True)
class Step:
    """One question: the raw sum on each of two neighbouring holdouts.

    ``resets`` says that a release of another units value happened before it, with no influence of
    the example in which the holdouts differ.
    """

    totals: tuple[int, int]
    resets: int | None = None


@final
@dataclass(frozen=True)
class Game:
    """A round of questions to a small holdout; it ends with the first release."""

    mechanism: Mechanism
    steps: tuple[Step, ...]
    units: int = 4
    grid: int = 4
    guess: Fraction | None = Fraction(1, 4)
    mode: str = "min"
    key: Callable[[int], int] = int  # which secret threshold belongs to a units value

    def law(self, side: int) -> dict[Outcome, float]:
        """Return the law of (which question was released, its answer) on one of the holdouts."""
        law: dict[Outcome, float] = {}
        alive: dict[State, float] = {(): 1.0}
        for position, step in enumerate(self.steps):
            following: dict[State, float] = {}
            for state, weight in alive.items():
                secrets = dict(state)
                if step.resets is not None:
                    secrets.pop(self.key(step.resets), None)
                facts = (self.mechanism, self.units, self.grid, self.guess, self.mode)
                secret = secrets.get(self.key(self.units))
                for probability, index, kept in _enumerated(*facts, step.totals[side], secret):
                    mass = weight * probability
                    if index is not None:
                        law[position, index] = law.get((position, index), 0.0) + mass
                        continue
                    held = {} if kept is None else {self.key(self.units): kept}
                    entry = tuple(sorted({**secrets, **held}.items()))
                    following[entry] = following.get(entry, 0.0) + mass
            alive = following
        law[None] = math.fsum(alive.values())
        return law

    def loss(self) -> float:
        """Return the largest logarithm of a ratio between the two laws."""
        return largest_ratio(self.law(0), self.law(1), _LIKELY)


@lru_cache(maxsize=100_000)
def _enumerated(
    mechanism: Mechanism,
    units: int,
    grid: int,
    guess: Fraction | None,
    mode: str,
    total: int,
    secret: int | None,
) -> list[tuple[float, int | None, int | None]]:
    merged: dict[tuple[int | None, int | None], float] = {}
    facts: dict[str, Any] = {
        "total": total,
        "units": units,
        "resolution": 1,
        "grid": grid,
        "guess": guess,
        "threshold": secret,
        "forced": guess is None,
        "mode": mode,
    }
    for probability, decision in _every_decision(mechanism, facts):
        outcome = (decision.index, decision.threshold)
        merged[outcome] = merged.get(outcome, 0.0) + probability
    return [(p, index, kept) for (index, kept), p in merged.items()]


def _every_decision(
    mechanism: Mechanism, facts: dict[str, Any]
) -> Iterator[tuple[float, Decision]]:
    scripts: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while scripts:
        script, weight = scripts.pop()
        noise = cast(NoiseStream, ScriptedNoise(script))
        try:
            yield weight, mechanism.decide(Query(**facts, noise=noise))
        except ScriptEndError as end:
            scripts += [((*script, k), weight * p) for k, p in _laplace_law(*end.args)]


@lru_cache(maxsize=64)
def _laplace_law(scale: float) -> list[tuple[int, float]]:
    reach = math.ceil(-math.log(_TRUNCATED) * scale)
    return [(k, laplace_probability(k, scale)) for k in range(-reach, reach + 1)]
