"""Exact confidence bounds for a probability, from counted successes."""

import math

from torch_holdout._shared.checks import require_failure, require_whole
from torch_holdout._shared.numeric_search import largest_where, smallest_where
from torch_holdout.accounting.pure import log_binomial


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
    term = math.exp(
        log_binomial(trials, successes)
        + successes * math.log(p)
        + (trials - successes) * math.log1p(-p)
    )
    total = term
    # Terms fall from here on: the ratio of two of them is below 1.
    for k in range(successes, trials):
        term *= (trials - k) / (k + 1) * p / (1 - p)
        total += term
        if term < 1e-18 * total:
            break
    return min(1.0, total)
