"""Adaptive analysts who try to make a holdout lie, against any oracle.

An oracle takes per-example values in {0, 1} and the truth (their population mean, which the analyst
knows because the features are independent coins) and returns the published value, or None when it
is exhausted. Every query's truth is exact.
"""

import numpy as np
from scipy import stats


def signs(generator, size, queries, ask, p=0.5):
    """Ask for coins, keep each coin's sign, and ask for the vote that fits the holdout best."""
    columns, weights = [], []
    for _ in range(queries - 1):
        column = generator.random(size) < p
        answer = ask(column, p)
        if answer is None:
            return
        if answer != p:
            columns.append(column)
            weights.append(1 if answer > p else -1)
    if columns:
        ask(*vote(np.array(columns), np.array(weights), p))


def climber(generator, size, queries, ask, p=0.5):
    """Grow a vote: keep a new coin whenever the published value of the vote went up."""
    kept, best = [generator.random(size) < p], -1.0
    for _ in range(queries):
        trial = [*kept, generator.random(size) < p]
        answer = ask(*vote(np.array(trial), np.ones(len(trial), dtype=int), p))
        if answer is None:
            return
        if answer > best:
            kept, best = trial, answer


def hunter(generator, size, queries, ask, p=0.5):
    """Ask for coins and vote with those alone whose answer stands out, again and again."""
    lucky, weights = [], []
    for number in range(queries):
        if number % 8 == 7 and lucky:
            answer = ask(*vote(np.array(lucky), np.array(weights), p))
        else:
            column = generator.random(size) < p
            answer = ask(column, p)
            if answer is not None and abs(answer - p) > 0.5 / np.sqrt(size):
                lucky.append(column)
                weights.append(1 if answer > p else -1)
        if answer is None:
            return


def vote(columns, weights, p):
    """A weighted vote of independent coins that is 1 about as often as p, and its exact truth."""
    plus, minus = int((weights > 0).sum()), int((weights < 0).sum())
    support = np.arange(-minus, plus + 1)
    law = np.convolve(
        stats.binom.pmf(np.arange(plus + 1), plus, p),
        stats.binom.pmf(np.arange(minus + 1), minus, p)[::-1],
    )
    above = law[::-1].cumsum()[::-1]  # P(sum >= s)
    chosen = int(np.abs(above - p).argmin())
    total = (columns * weights[:, None]).sum(axis=0)
    return total >= support[chosen], float(min(1.0, above[chosen]))


ANALYSTS = {"signs": signs, "climber": climber, "hunter": hunter}
