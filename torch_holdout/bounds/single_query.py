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
from torch_holdout._shared.numeric_search import largest_where, smallest_where
from torch_holdout.accounting.pure import log_binomial


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
    share, mean = failure / 2, successes / trials
    low = high = mean
    if successes > 0:
        low = largest_where(lambda p: at_least(successes, trials, p) <= share, 0.0, mean)
    if successes < trials:
        misses = trials - successes
        high = smallest_where(lambda p: at_least(misses, trials, 1 - p) <= share, mean, 1.0)
    return low, high


def at_least(successes: int, trials: int, p: float) -> float:
    """Return P(X >= successes) for a binomial X with mean at most ``successes``.

    Example:
        >>> round(at_least(2, 3, 0.5), 12)
        0.5
    """
    if p <= 0:
        return 0.0
    if p >= 1:
        return 1.0
    log_term = log_binomial(trials, successes) + successes * math.log(p)
    total = term = math.exp(log_term + (trials - successes) * math.log1p(-p))
    # Terms fall from here on: the ratio of two of them is below 1.
    for k in range(successes, trials):
        term *= (trials - k) / (k + 1) * p / (1 - p)
        total += term
        if term < 1e-18 * total:
            break
    return min(1.0, total)
