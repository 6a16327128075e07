"""Exact laws by enumeration: the oracles of the statistical tests."""

import math
from fractions import Fraction


def discrete_laplace(scale, reach=40):
    """P(k) proportional to exp(-|k|/scale), enumerated far into the tails."""
    limit = math.ceil(reach * scale) + 1
    weights = {k: math.exp(-abs(k) / scale) for k in range(-limit, limit + 1)}
    total = math.fsum(weights.values())
    return {k: w / total for k, w in weights.items()}


def geometric(scale, reach=40):
    """P(k) proportional to exp(-k/scale) for k = 0, 1, ..., enumerated far into the tail."""
    weights = [math.exp(-k / scale) for k in range(math.ceil(reach * scale) + 1)]
    total = math.fsum(weights)
    return {k: w / total for k, w in enumerate(weights)}


def discrete_gaussian(scale, reach=12):
    limit = math.ceil(reach * scale) + 1
    weights = {k: math.exp(-(k**2) / (2 * scale**2)) for k in range(-limit, limit + 1)}
    total = math.fsum(weights.values())
    return {k: w / total for k, w in weights.items()}


def survival(law):
    """P(X > k) as a function of k."""
    tail, total = {}, 0.0
    for k in sorted(law, reverse=True):
        tail[k] = total
        total += law[k]
    return lambda k: 1.0 if k < min(law) else tail.get(k, 0.0)


def answer_law(total, levels, grid, scale):
    """Law of a released grid index: noise, clip, round half up, each written out."""
    law = {}
    for noise, probability in discrete_laplace(scale).items():
        clipped = min(max(total + noise, 0), levels)
        index = math.floor(Fraction(clipped * grid, levels) + Fraction(1, 2))
        law[index] = law.get(index, 0.0) + probability
    return law


def round_law(totals, guess, threshold, levels, grid, scale, gap=abs, publish=None):
    """Law of one round over given totals: (which query fired, its answer), or (None, None).

    ``gap`` turns total minus guess into what is compared; ``publish`` an answer's index into what
    leaves.
    """
    law = {}
    answers = [answer_law(total, levels, grid, scale) for total in totals]
    above = survival(discrete_laplace(4 * scale))
    for gamma, probability in discrete_laplace(2 * scale).items():
        alive = probability
        for position, total in enumerate(totals):
            fire = above(threshold + gamma - gap(total - guess))
            for index, p in answers[position].items():
                index = index if publish is None else publish(index)
                law[position, index] = law.get((position, index), 0.0) + alive * fire * p
            alive *= 1 - fire
        law[None, None] = law.get((None, None), 0.0) + alive
    return law
