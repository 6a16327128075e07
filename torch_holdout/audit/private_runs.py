"""Audits of private early stopping and of its twins: exact laws of small runs, and samples."""

import itertools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, cast, final

import torch

from torch_holdout._noise.streams import NoiseSource, NoiseStream
from torch_holdout.audit.evidence import (
    Row,
    ScriptedNoise,
    ScriptEndError,
    epsilon_row,
    geometric_probability,
    largest_ratio,
    law_row,
)
from torch_holdout.audit.twins import RUN_FAULTS, Scaled
from torch_holdout.mechanisms.private_patience import Kept, PrivateChoice, PrivatePatience

Result = TypeVar("Result", bound=Hashable)
Law = dict[tuple[int | None, tuple[int, ...]], float]

_TRUNCATED = 1e-10  # noise less likely than that is left out ...
_LIKELY = 1e-6  # ... and outcomes less likely than that are not compared
_RULE = PrivatePatience(epsilon=6.0, resolution=1, patience=1)
_SHORT = (5, 11, 3, 0)  # one example can make the silent pass and the stop move apart
_LONG = (20, *[24] * 10)  # silent passes: what a redrawn threshold leaks with
_RIGHT = 3  # sampled rows of ours, which share the false-alarm rate
_TIMES = 3  # a law whose noise is 10 % too small must stand out every time


@final
@dataclass(frozen=True)
class RunGame:
    """A run over given sums; it ends with the first stop or with the last sum.

    ``fault`` says what is broken: one of ``RUN_FAULTS``, or nothing.
    """

    rule: PrivatePatience
    totals: tuple[int, ...]
    fault: str = ""

    def law(self) -> Law:
        """Return the law of (pass that stopped the run or None, evaluations said to be best)."""
        law: Law = {}
        fresh = _every(self.rule.draw_threshold)
        alive, kept = fresh, cast(dict[Kept | None, float], {None: 1.0})
        for passes in range(1, len(self.totals) + 1):
            kept = self._keep(kept, passes)
            if not self.rule.compares(passes):
                continue
            stopping = {secret: self._stopping(passes, secret) for secret in alive}
            stopped = math.fsum(mass * stopping[secret] for secret, mass in alive.items())
            self._end(law, passes, stopped, kept)
            alive = {secret: mass * (1 - stopping[secret]) for secret, mass in alive.items()}
            if self.fault == "threshold redrawn at each evaluation":
                silent = math.fsum(alive.values())
                alive = {secret: silent * mass for secret, mass in fresh.items()}
        self._end(law, None, math.fsum(alive.values()), kept)
        return law

    def _stopping(self, passes: int, secret: int) -> float:
        share = 0.5 if self.fault == "comparison noise halved" else 1.0
        return _chance_of_stopping(self.rule, self.totals[:passes], secret, share)

    def _keep(self, kept: dict[Kept | None, float], number: int) -> dict[Kept | None, float]:
        share = 0.0 if self.fault == "selection without noise" else 1.0
        choice, total = self.rule.choice, self.totals[number - 1]
        following: dict[Kept | None, float] = {}
        for state, mass in kept.items():
            for best, probability in _kept_law(choice, total, number, state, share).items():
                following[best] = following.get(best, 0.0) + mass * probability
        return following

    def _end(
        self, law: Law, ended: int | None, mass: float, kept: dict[Kept | None, float]
    ) -> None:
        chosen: dict[int, float] = {}
        for state, probability in kept.items():
            if state is not None:
                chosen[state[1]] = chosen.get(state[1], 0.0) + probability
        times = 2 if self.fault == "outcome drawn twice" else 1
        for said in itertools.product(chosen, repeat=times):
            law[ended, said] = mass * math.prod(chosen[number] for number in said)


def run_rows(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Audit private early stopping and its twins; see ``audit``.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> rows = run_rows(SeededNoise(1), draws=300, failure=1e-6)
        >>> any(row.flagged for row in rows if not row.twin)
        False
    """
    return [*exact_runs(), *sampled_runs(source, draws, failure)]


def exact_runs() -> list[Row]:
    """Compare the exact loss of small runs, a stop and its choice together, with the claim.

    Example:
        >>> [row.right for row in exact_runs()]
        [True, True, True, True, True]
    """
    what, claimed = "a run: stop and choice", _RULE.epsilon
    twins = [
        Row(fault, "exact", what, claimed, _run_loss(fault), twin=True) for fault in RUN_FAULTS
    ]
    return [Row("PrivatePatience", "exact", what, claimed, _run_loss()), *twins]


def sampled_runs(source: NoiseSource, draws: int, failure: float) -> list[Row]:
    """Compare sampled stops and choices with laws and claims; see ``audit``."""
    epsilon, failure, flat, mixed = 0.5, failure / _RIGHT, (3, 3, 3), (3, 5, 5)
    stops = RunGame(_RULE, flat).law()
    patient = PrivatePatience(epsilon=_RULE.epsilon / 4, resolution=1, patience=len(mixed))
    choices = RunGame(patient, mixed).law()  # nothing is compared
    stopped = _distribution(stops, lambda ended, said: ended or len(flat) + 1)
    chosen = _distribution(choices, lambda ended, said: said[0])
    rows = []
    for share, twin in ((1.0, False), (0.9, True)):
        numbers = range(_TIMES * draws)
        drawn = [_stop(_RULE, flat, source.stream("audit", share, n), share) for n in numbers]
        subject = "comparison noise 10 % too small" if twin else "PrivatePatience"
        rows.append(law_row(subject, torch.tensor(drawn), stopped, failure, twin=twin))
        drawn = _choices(patient.choice, mixed, source, share, len(numbers))
        subject = "choice noise 10 % too small" if twin else "PrivateChoice"
        rows.append(law_row(subject, torch.tensor(drawn), chosen, failure, twin=twin))
    for share, twin in ((1.0, False), (0.5, True)):
        choosing = PrivateChoice(epsilon=epsilon, resolution=1)
        samples = [_choices(choosing, pair, source, share, draws) for pair in ((0, 2), (1, 1))]
        subject = "choice noise halved" if twin else "PrivateChoice"
        rows.append(epsilon_row(subject, samples, epsilon, failure, twin=twin))
    return rows


def _run_loss(fault: str = "") -> float:
    """Return the largest loss between two runs and those neighbours whose sums all move by L."""
    one_way = [(move, *[-move] * (len(_LONG) - 1)) for move in (1, -1)]
    games = [(_SHORT, itertools.product((-1, 1), repeat=len(_SHORT))), (_LONG, iter(one_way))]
    losses = []
    for totals, every in games:
        law = RunGame(_RULE, totals, fault).law()
        for moves in every:
            moved = tuple(total + move for total, move in zip(totals, moves, strict=True))
            losses.append(largest_ratio(law, RunGame(_RULE, moved, fault).law(), _LIKELY))
    return max(losses)


def _distribution(law: Law, place: Callable[[int | None, tuple[int, ...]], int]) -> list[float]:
    """Return the chances that the place of an outcome is at most 0, 1, ... up to the last."""
    masses: dict[int, float] = {}
    for (ended, said), mass in law.items():
        at = place(ended, said)
        masses[at] = masses.get(at, 0.0) + mass
    return list(itertools.accumulate(masses.get(k, 0.0) for k in range(max(masses) + 1)))


def _stop(rule: PrivatePatience, totals: tuple[int, ...], stream: NoiseStream, share: float) -> int:
    """Return the pass that stopped a run, or the one after the last."""
    threshold, noise = rule.draw_threshold(stream), _scaled(stream, share)
    for passes in range(1, len(totals) + 1):
        if rule.stops(totals[:passes], threshold, noise):
            return passes
    return len(totals) + 1


def _choices(
    rule: PrivateChoice, totals: tuple[int, ...], source: NoiseSource, share: float, draws: int
) -> list[int]:
    chosen = []
    for repeat in range(draws):
        noise = _scaled(source.stream("audit", rule.epsilon, totals, share, repeat), share)
        kept = rule.keep(totals[0], 1, None, noise)
        for number, total in enumerate(totals[1:], start=2):
            kept = rule.keep(total, number, kept, noise)
        chosen.append(kept[1])
    return chosen


@lru_cache(maxsize=100_000)
def _chance_of_stopping(
    rule: PrivatePatience, totals: tuple[int, ...], secret: int, share: float
) -> float:
    return _every(lambda noise: rule.stops(totals, secret, _scaled(noise, share))).get(True, 0.0)


@lru_cache(maxsize=100_000)
def _kept_law(
    rule: PrivateChoice, total: int, number: int, kept: Kept | None, share: float
) -> dict[Kept, float]:
    return _every(lambda noise: rule.keep(total, number, kept, _scaled(noise, share)))


def _scaled(noise: NoiseStream, share: float) -> NoiseStream:
    return cast(NoiseStream, Scaled(noise, share)) if share != 1 else noise


def _every(draw: Callable[[NoiseStream], Result]) -> dict[Result, float]:
    """Return the law of what a function makes of one draw."""
    try:
        return {draw(cast(NoiseStream, ScriptedNoise(()))): 1.0}
    except ScriptEndError as end:
        (scale,) = end.args
    law: dict[Result, float] = {}
    for k in range(math.ceil(-math.log(_TRUNCATED) * scale)):
        result = draw(cast(NoiseStream, ScriptedNoise((k,))))
        law[result] = law.get(result, 0.0) + geometric_probability(k, scale)
    return law
