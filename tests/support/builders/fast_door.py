"""A guarded door without a ledger: the same answers, many times faster, for repetitions."""

import math
from fractions import Fraction

import torch
from torch_holdout._demo.doors import Door
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.mechanisms import Query, Release

RESOLUTION = 2**16


class FastDoor(Door):
    """Draws what ``guarded_door`` with the same arguments draws."""

    def __init__(self, mechanism, scale, *, size, budget, seed, guess=None):
        self.mechanism, self.scale, self.size, self.left = mechanism, scale, size, budget
        self.grid = 2 ** math.ceil(math.log2(2 / scale.standard_error(size)))
        self.noise, self.guess = SeededNoise(seed), guess
        self.known, self.secret, self.last, self.shown = {}, None, None, math.nan

    def ask(self, values, queries):
        totals = self._totals(values).tolist()
        answers = []
        for pair, query in zip(totals, queries, strict=True):
            if self.left <= 1:
                break
            answers.append(self._release(pair, query))
        return torch.tensor(answers, dtype=torch.float64)

    def claim(self, values, query):
        return self._release(self._totals(values[None])[0].tolist(), query)

    def _totals(self, values):
        flat = self.scale.statistic.levels((values.flatten(),), {}, RESOLUTION)
        return flat.view(values.shape).sum(dim=-1)

    def _release(self, totals, query):
        if query not in self.known and self.left:
            self.known[query] = self._decide(*totals)
        self.shown = self.known.get(query, self.shown)
        return self.shown

    def _decide(self, total, training):
        guess = self.mechanism.guess_for("value", self.last, self._given(training))
        decision = self.mechanism.decide(
            Query(
                total=total,
                units=self.size,
                resolution=RESOLUTION,
                grid=self.grid,
                guess=guess,
                threshold=self.secret,
                forced=guess is None,
                mode=self.scale.statistic.mode,
                noise=self.noise.stream("attacked", len(self.known) + 1),
            )
        )
        self.secret = decision.threshold
        if decision.index is not None:
            self.last = Release(decision.index, self.grid)
            self.left, self.releases = self.left - 1, self.releases + 1
        value = guess if decision.index is None else self.last.value
        return self.scale.statistic.to_user(float(value))

    def _given(self, training):
        if not self.mechanism.wants_guess():
            initial = self.mechanism.identity().get("initial") or {}
            return (
                Fraction(self.scale.statistic.to_normalised(initial["value"])) if initial else None
            )
        if self.guess is not None:
            return Fraction(self.scale.statistic.to_normalised(self.guess))
        return Fraction(training, self.size * RESOLUTION)
