"""How many nearest records have to be looked at until enough of them are in a random sample."""

from functools import lru_cache
from math import log, log1p

import numpy as np

from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout.errors import InvalidArgumentError

WALK_ERROR = 2.0**-60  # the probability that the walk was too short
RATES = 1e-4, 1.0
MOST_VOTES = 2**16
_LONGEST = 2**18
_MARGIN = 1e-6  # of logarithms: larger than their rounding


@lru_cache(maxsize=256)
def walk(rate: float, votes: int) -> int:
    r"""Return the smallest M with :math:`P(\mathrm{Binomial}(M, q) < k) \le 2^{-60}`.

    Sampling each record with probability q does not depend on the order: of the nearest M, tossed
    one after the other, the first k heads are the k nearest of the whole sample, but for that
    probability. M depends on public numbers only; where rounding could decide, it is one more.

    Example:
        >>> walk(1.0, 40), walk(0.2, 60), walk(0.01, 5)
        (40, 726, 5423)
    """
    require_between("rate", rate, *RATES)
    require_whole("k", votes, 1, MOST_VOTES)
    if rate == 1:
        return votes
    low, high = votes, votes
    while _log_missing(high, rate, votes) > log(WALK_ERROR) - _MARGIN:
        low, high = high, 2 * high
        if low > _LONGEST:
            raise InvalidArgumentError(
                f"Expected a `rate` and `k` for which the nearest {_LONGEST:,} records are enough, "
                f"but got a rate of {rate:g} and {votes} votes. Take a larger rate or a smaller k."
            )
    while high - low > 1:
        middle = (low + high) // 2
        enough = _log_missing(middle, rate, votes) <= log(WALK_ERROR) - _MARGIN
        low, high = (low, middle) if enough else (middle, high)
    return high


def _log_missing(places: int, rate: float, votes: int) -> float:
    """Return the logarithm of the probability of fewer heads than votes among the places."""
    heads = np.arange(votes)
    steps = np.log(places - heads[:-1]) - np.log(heads[1:]) + log(rate) - log1p(-rate)
    terms = np.concatenate([[0.0], np.cumsum(steps)]) + places * log1p(-rate)
    return float(np.logaddexp.reduce(terms))
