"""Exact laws of the prediction mechanisms, written out a second time."""

import itertools
import math

from scipy import integrate, stats


def soft_majority(votes, eta):
    weights = [math.exp(eta * (v - max(votes))) for v in votes]
    return {label: w / math.fsum(weights) for label, w in enumerate(weights)}


def permute_and_flip(votes, epsilon):
    """Every order of the classes, and the first coin that says yes."""
    heads = [math.exp(epsilon / 2 * (v - max(votes))) for v in votes]
    law = dict.fromkeys(range(len(votes)), 0.0)
    orders = list(itertools.permutations(range(len(votes))))
    for order in orders:
        reached = 1.0 / len(orders)
        for label in order:
            law[label] += reached * heads[label]
            reached *= 1 - heads[label]
    return law


def noisy_winner(votes, sigma):
    """The density of a winner's count, times the chance that all others are below it."""

    def density(x, label):
        others = math.prod(
            stats.norm.cdf((x - v) / sigma) for k, v in enumerate(votes) if k != label
        )
        return stats.norm.pdf((x - votes[label]) / sigma) / sigma * others

    reach = max(votes) + 10 * sigma
    law = {
        label: integrate.quad(density, -10 * sigma, reach, args=(label,), epsabs=1e-11)[0]
        for label in range(len(votes))
    }
    total = math.fsum(law.values())
    assert abs(total - 1) < 1e-7
    return {label: p / total for label, p in law.items()}


def confident(votes, threshold, sigma_check, sigma_answer):
    passed = stats.norm.sf((threshold - max(votes)) / sigma_check)
    law = {label: passed * p for label, p in noisy_winner(votes, sigma_answer).items()}
    return {-1: 1 - passed, **law}


def rounded_normal(center, sigma, low, high):
    """Integers: center plus rounded Gaussian noise, clipped."""
    law = {}
    for k in range(math.floor(center - 10 * sigma), math.ceil(center + 10 * sigma) + 1):
        p = stats.norm.cdf((k + 0.5 - center) / sigma) - stats.norm.cdf((k - 0.5 - center) / sigma)
        place = min(max(k, low), high)
        law[place] = law.get(place, 0.0) + p
    total = math.fsum(law.values())
    return {k: p / total for k, p in law.items()}
