r"""Bounds for one query, chosen without looking at the holdout.

Values are in [0, 1]; h is the empirical mean of n independent units, P the population's.
"""

import math

from torch_holdout._shared.checks import (
    require_between,
    require_failure,
    require_number,
    require_units,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.binomial_tails import log_at_least


@formula
def hoeffding(units: int, failure: float) -> float:
    r"""Return :math:`\tau = \sqrt{\ln(2/\beta)/(2n)}`: P(|h - P| > tau) is at most beta.

    For one query fixed before the holdout is seen. Vacuous when the result is 1 or more.

    Example:
        >>> round(hoeffding(1000, 0.05), 4)
        0.0429
    """
    require_units(units)
    require_failure(failure)
    return hoeffding_distance(units, failure)


def hoeffding_distance(units: int, failure: float) -> float:
    """Return ``hoeffding`` without checking the arguments, for searches."""
    return math.sqrt(math.log(2 / failure) / (2 * units))


@formula
def binary_kl(first: float, second: float) -> float:
    r"""Return :math:`\mathrm{kl}(p \| q)` of two coins, infinite where q excludes p.

    Example:
        >>> round(binary_kl(0.5, 0.25), 4), binary_kl(0.5, 0.0)
        (0.1438, inf)
    """
    require_between("first", first, 0, 1)
    require_between("second", second, 0, 1)
    return _binary_kl(first, second)


def _binary_kl(first: float, second: float) -> float:
    total = 0.0
    for p, q in ((first, second), (1 - first, 1 - second)):
        if p > 0:
            if q <= 0:
                return math.inf
            total += p * math.log(p / q)
    return max(0.0, total)


@formula
def kl_interval(mean: float, divergence: float) -> tuple[float, float]:
    r"""Return all P with :math:`\mathrm{kl}(h \| P)` at most ``divergence``, as an interval.

    Rounded outwards. With ``divergence = ln(2/beta)/n`` it is the Chernoff interval of one query,
    inside Hoeffding's and much narrower near 0 and 1.

    Example:
        >>> low, high = kl_interval(0.05, math.log(2 / 0.05) / 1000)
        >>> round(low, 3), round(high, 3)
        (0.033, 0.071)
    """
    require_number("mean", mean)
    require_between("divergence", divergence, 0, math.inf)
    mean = min(max(mean, 0.0), 1.0)
    return kl_edge(mean, 0.0, divergence), kl_edge(mean, 1.0, divergence)


def kl_edge(mean: float, end: float, divergence: float) -> float:
    """Return one edge of ``kl_interval``, towards an end of [0, 1], without checking the arguments.

    Bisects from the mean; the outer side of the last step is returned.

    Example:
        >>> kl_edge(0.05, 1.0, 0.004) == kl_interval(0.05, 0.004)[1]
        True
    """
    divergence += 4e-16  # what rounding may take off a divergence
    if _binary_kl(mean, end) <= divergence:
        return end
    inside, outside = mean, end
    for _ in range(60):
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            break
        if _binary_kl(mean, middle) <= divergence:
            inside = middle
        else:
            outside = middle
    return outside


def clopper_pearson(successes: int, trials: int, failure: float) -> tuple[float, float]:
    """Return an interval that misses the probability with at most ``failure``, half on each side.

    Exact for any number of trials (Clopper and Pearson 1934).

    Example:
        >>> low, high = clopper_pearson(10, 100, 0.05)
        >>> round(low, 4), round(high, 4)
        (0.049, 0.1762)
    """
    require_whole("trials", trials, 1, 2**40)
    require_whole("successes", successes, 0, trials)
    require_failure(failure)
    return binomial_interval(successes, trials, math.log(2 / failure))


def binomial_interval(successes: int, trials: int, bracket: float) -> tuple[float, float]:
    """Return ``clopper_pearson`` for a failure of e^-c on each side, without checking arguments.

    Example:
        >>> low, high = binomial_interval(500, 10_000, 9.143298)
        >>> round(low, 6), round(high, 6)
        (0.042308, 0.058551)
    """
    low = _binomial_low(successes, trials, bracket)
    beyond = _binomial_low(trials - successes, trials, bracket)
    return low, min(1.0, math.nextafter(1 - beyond, 2.0))


def _binomial_low(successes: int, trials: int, bracket: float) -> float:
    """Return a p for which P(X >= successes) is at most e^-c, the largest up to rounding.

    The logarithm of the tail is concave in p, so Newton's steps from below stay below; a little
    shortened they do so in spite of rounding.
    """
    rounding = 1e-12 * (1 + bracket) + 1e-15 * math.sqrt(trials)
    target = -bracket - rounding
    # Chernoff's bound on the tail; it is reached when all trials succeed.
    low, p = 0.0, kl_edge(successes / trials, 0.0, (bracket + 2 * rounding) / trials)
    while p > low:
        log_tail, slope = log_at_least(successes, trials, p)
        if log_tail > target:
            break
        low, p = p, p + (1 - 1e-4) * (target - log_tail) / slope
    return low
