r"""Composition of pure mechanisms.

The exact optimum for :math:`k` mechanisms of :math:`\varepsilon_0` each (Kairouz, Oh and Viswanath
2015): the composition is dominated by :math:`k` randomised responses, so

.. math:: \delta(\varepsilon) = \frac{1}{(1 + e^{\varepsilon_0})^k} \sum_{l=0}^{k} \binom{k}{l}
    \max\left(0, e^{(k-l)\varepsilon_0} - e^{\varepsilon + l \varepsilon_0}\right).

It holds for adaptively chosen mechanisms when their number and parameters are fixed beforehand.
"""

import math
from functools import lru_cache

from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout.accounting.rdp import simple_epsilon

_EXACT_UP_TO = 100_000
_SUMMED_UP_TO = 10**8  # beyond, adding up the terms takes more than a second
_ROUNDING = 1e-8  # of a delta: more than double precision loses over that many mechanisms


@formula
def compose_pure(epsilon: float, count: int, delta: float | None = None) -> float:
    """Return the epsilon of ``count`` mechanisms of ``epsilon`` each, at ``delta``.

    Without ``delta`` this is the sum. Rounded up by at most one part in a billion of the sum. Above
    100,000 mechanisms the zCDP bound stands in, which is a little larger.

    Example:
        >>> compose_pure(0.5, 4)
        2.0
        >>> round(compose_pure(0.01, 1000, delta=1e-6), 2)
        1.37
    """
    require_between("epsilon", epsilon, 0, math.inf)
    require_whole("count", count, 0, 2**62)
    if delta is not None:
        require_between("delta", delta, 0, 1, ends=False)
    return _compose_pure(epsilon, count, delta)


@lru_cache(maxsize=256)
def _compose_pure(epsilon: float, count: int, delta: float | None) -> float:
    total = epsilon * count
    if delta is None or math.isinf(total) or total == 0:
        return total
    if count > _EXACT_UP_TO:
        return min(total, simple_epsilon(count * epsilon**2 / 2, delta))
    low, high = 0.0, total
    while high - low > 1e-9 * total:
        middle = (low + high) / 2
        if _delta_of_pure(epsilon, count, middle) * (1 + _ROUNDING) > delta:
            low = middle
        else:
            high = middle
    return high


@formula
def delta_of_pure(epsilon: float, count: int, at: float) -> float:
    """Return the smallest delta of ``count`` mechanisms of ``epsilon`` each, at epsilon ``at``.

    Example:
        >>> delta_of_pure(0.5, 4, at=2.0)
        0.0
    """
    require_between("epsilon", epsilon, 0, math.inf)
    require_whole("count", count, 0, _SUMMED_UP_TO)
    require_between("at", at, 0, math.inf)
    return _delta_of_pure(epsilon, count, at)


def _delta_of_pure(epsilon: float, count: int, at: float) -> float:
    if at >= count * epsilon:
        return 0.0
    log_one = epsilon + math.log1p(math.exp(-epsilon))
    log_all = count * log_one
    # The number of losses is binomial: outside 27 sqrt(k) it has less than e^-1458 of the mass.
    mean, reach = count * math.exp(-log_one), 27 * math.sqrt(count)
    first, last = max(0, math.floor(mean - reach)), min(count, math.ceil(mean + reach))
    terms = []
    for losses in range(first, last + 1):
        margin = (count - 2 * losses) * epsilon - at
        if margin <= 0:
            break
        log_weight = log_binomial(count, losses) + (count - losses) * epsilon
        terms.append(math.exp(log_weight + math.log(-math.expm1(-margin)) - log_all))
    return min(1.0, math.fsum(terms))


def log_binomial(n: int, k: int) -> float:
    """Return ln C(n, k), to 1e-8 or one part in 10^15, whichever is more.

    Example:
        >>> round(log_binomial(10**18, 2), 6) == round(math.log(10**18 * (10**18 - 1) // 2), 6)
        True
    """
    k = min(k, n - k)
    if n < 2**20:
        return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    if k < 100:  # differences of large logarithms would lose all digits
        return math.fsum(math.log((n - j) / (j + 1)) for j in range(k))
    entropy = -k * math.log(k / n) - (n - k) * math.log1p(-k / n)
    spread = math.log(2 * math.pi * k) + math.log1p(-k / n)
    return entropy - spread / 2 + _stirling(n) - _stirling(k) - _stirling(n - k)


def _stirling(n: int) -> float:
    return 1 / (12 * n) - 1 / (360 * n**3)
