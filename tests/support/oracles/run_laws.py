"""Exact laws of private runs, written out by hand for many sequences of sums at once."""

import itertools
import math

import numpy as np


class RunLaws:
    """The rule with given scales; smaller sums are better.

    ``redrawn``, ``times=2`` and a ``choice`` of 0 are faults: a threshold for each comparison, an
    outcome drawn twice, a selection without noise. With ``times=0`` only the stop is seen.
    """

    def __init__(self, *, patience, threshold, comparison, choice, centre, redrawn=False, times=1):
        self.patience, self.threshold, self.comparison = patience, threshold, comparison
        self.choice, self.centre, self.redrawn, self.times = choice, centre, redrawn, times

    def law(self, totals):
        """Return outcomes (pass or None, evaluations chosen) and their chances, one row a run."""
        totals = np.asarray(totals)
        stops, silent = self._stops(totals)
        outcomes, columns = [], []
        ends = [(t, stops[:, t - 1]) for t in range(self.patience + 1, totals.shape[1] + 1)]
        for ended, mass in [*ends, (None, silent)]:
            chosen = self._choices(totals[:, :ended])
            for said in itertools.product(range(chosen.shape[1]), repeat=self.times):
                outcomes.append((ended, tuple(number + 1 for number in said)))
                columns.append(mass * np.prod([chosen[:, number] for number in said], axis=0))
        return outcomes, np.stack(columns, axis=1)

    def _stops(self, totals):
        masses = geometric_masses(self.threshold)
        secrets = self.centre + np.arange(len(masses))
        alive = np.tile(masses, (len(totals), 1))
        stops = np.zeros(totals.shape)
        for passes in range(self.patience + 1, totals.shape[1] + 1):
            before = totals[:, : passes - self.patience].min(axis=1)
            last = totals[:, passes - self.patience : passes].min(axis=1)
            quiet = at_most(secrets - (last - before)[:, None], self.comparison)
            stops[:, passes - 1] = (alive * (1 - quiet)).sum(axis=1)
            alive = alive * quiet
            if self.redrawn:
                alive = alive.sum(axis=1, keepdims=True) * masses
        return stops, alive.sum(axis=1)

    def _choices(self, totals):
        count = totals.shape[1]
        if self.choice == 0:
            return np.eye(count)[totals.argmin(axis=1)]
        masses = geometric_masses(self.choice)
        noise = np.arange(len(masses))
        chosen = []
        for mine in range(count):
            won = np.tile(masses, (len(totals), 1))
            for other in set(range(count)) - {mine}:
                room = (totals[:, other] - totals[:, mine])[:, None] + noise - (other < mine)
                won = won * at_most(room, self.choice)
            chosen.append(won.sum(axis=1))
        return np.stack(chosen, axis=1)


def geometric_masses(scale):
    """P(k) for k = 0, 1, ... far into the tail."""
    q = math.exp(-1 / scale)
    return (1 - q) * q ** np.arange(math.ceil(36 * scale) + 2)


def at_most(k, scale):
    """P(noise <= k)."""
    return np.where(k < 0, 0.0, 1 - np.exp(-(np.maximum(k, 0) + 1) / scale))


def largest_loss(rule, *, values, passes, moves):
    """Return the largest log ratio over all runs and their neighbours.

    Sums are from 0 to ``values`` - 1, and each moves by any of -moves, ..., moves. Outcomes below
    1e-9 on both sides are left out: there rounding decides.
    """
    wide = values + 2 * moves
    every = np.stack(np.unravel_index(np.arange(wide**passes), (wide,) * passes), axis=1)
    _, law = rule.law(every)
    table = law.reshape((wide,) * passes + (-1,))
    base = table[(slice(moves, moves + values),) * passes]
    worst = 0.0
    for move in itertools.product(range(-moves, moves + 1), repeat=passes):
        other = table[tuple(slice(moves + m, moves + m + values) for m in move)]
        likely = np.maximum(base, other) > 1e-9
        if (np.minimum(base, other)[likely] == 0).any():
            return math.inf
        worst = max(worst, float(np.abs(np.log(base[likely] / other[likely])).max()))
    return worst
