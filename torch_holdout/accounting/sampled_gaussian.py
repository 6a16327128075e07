r"""The Renyi curve of integer Gaussian noise on counts of a Poisson sample of the records.

One record more: with probability q it is in the sample, and then the counts move by an integer
vector of squared length at most 2 (a vote comes, another goes). For a fixed sample of the others
the two laws are :math:`Q = N(c)` and :math:`P = (1-q)N(c) + qN(c+d)`, and at an *integer* order a

.. math:: (a-1)D_a(P \| Q) = \ln\sum_{j=0}^a \binom{a}{j}(1-q)^{a-j}q^j e^{j(j-1)/\sigma^2},

for integer noise exactly as for continuous noise: :math:`E_Q[(N(c+d)/N(c))^j]` is a sum over the
integers that a shift by the integer vector jd leaves as it is. The reflection :math:`x \to d - x`
swaps N(0) and N(d), so the other direction, one record less, is never larger (Mironov, Talwar and
Zhang 2019, Theorem 5), and the mixtures over the samples of the others are not either (joint
quasi-convexity).

At fractional orders the continuous formula is no bound for integer noise. There the logarithm of
the moment, which is convex in the order, is bounded by the straight line between its neighbouring
integers. Without sampling :math:`\alpha/\sigma^2` holds at every order (Canonne, Kamath and Steinke
2020).
"""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from torch_holdout._shared.checks import require_between
from torch_holdout._shared.formulas import formula
from torch_holdout.accounting.rdp import Curve

ORDERS = range(2, 257)
SIGMAS = (1e-100, 1e100)
_ROUNDING = 1 + 2.0**-37  # relative: logarithms of up to a few thousand are off by 1e-12
Array = npt.NDArray[np.float64]


@formula
def sampled_gaussian_rdp(rate: float, sigma: float) -> Curve:
    r"""Return the Renyi curve of counts of a sample with integer Gaussian noise.

    Guarantee:
        One record added or removed, each record in the sample with probability ``rate``, counts
        that move by a squared length of at most 2 when it is: the formula above at the integer
        orders 2 to 256, to within 1e-11 and rounded up; between two of them the straight line
        of the logarithms of moments; below 2 the value at 2; above 256
        :math:`\ln(1 - q + qe^{\alpha(\alpha-1)/\sigma^2})/(\alpha-1)` (convexity of the moment in
        its first law). Never above :math:`\alpha/\sigma^2`, the curve without sampling.

    Example:
        >>> curve = sampled_gaussian_rdp(rate=0.1, sigma=10.0)
        >>> round(curve(8.0), 6), round(8 / 10.0**2, 6)
        (0.000817, 0.08)
    """
    require_between("rate", rate, 0, 1)
    require_between("sigma", sigma, *SIGMAS)

    def curve(alpha: float) -> float:
        largest = alpha / sigma / sigma
        if rate in (0, 1):
            return rate * largest
        if alpha > ORDERS[-1]:
            exponent = math.log(rate) + _log_expm1((alpha - 1) * largest)
            sampled = _log1p_exp(exponent) / (alpha - 1) * _ROUNDING
        elif alpha <= ORDERS[0]:
            sampled = float(integer_orders(rate, sigma)[0])
        else:
            below = math.floor(alpha)
            share = alpha - below
            divergences = integer_orders(rate, sigma)[below - ORDERS[0] : below - ORDERS[0] + 2]
            logs = [(below - 1 + k) * float(value) for k, value in enumerate(divergences)]
            moment = logs[0] if share == 0 else (1 - share) * logs[0] + share * logs[1]
            sampled = float(divergences[0]) if share == 0 else moment / (alpha - 1)
        return min(sampled, largest)

    return curve


@lru_cache(maxsize=256)
def integer_orders(rate: float, sigma: float) -> Array:
    r"""Return the divergences at the orders 2 to 256; ``rate`` is above 0 and below 1.

    The terms j = 0 and 1 and the -1 of the others add up to 1: what is left,
    :math:`\sum_{j\ge2}\binom{a}{j}(1-q)^{a-j}q^j(e^{j(j-1)/\sigma^2}-1)`, has no cancellation.

    Example:
        >>> len(integer_orders(0.1, 10.0)), round(float(integer_orders(0.1, 10.0)[6]), 6)
        (255, 0.000817)
    """
    orders, places, binomials = _binomials()
    exponent = places * (places - 1) / sigma / sigma
    grown = exponent + np.log(-np.expm1(-exponent))
    logs = binomials + (orders - places) * math.log1p(-rate) + places * math.log(rate) + grown
    top = logs.max(axis=1, keepdims=True)
    rest = (top + np.log(np.exp(logs - top).sum(axis=1, keepdims=True)))[:, 0]
    moments = np.where(rest < 30, np.log1p(np.exp(np.minimum(rest, 30))), np.logaddexp(0, rest))
    divergences: Array = moments / (orders[:, 0] - 1) * _ROUNDING
    divergences.setflags(write=False)  # the cache hands out one array
    return divergences


@lru_cache(maxsize=1)
def _binomials() -> tuple[Array, Array, Array]:
    """Return the orders, the places j from 2 on, and the logarithms of their binomials."""
    orders, places = np.arange(2.0, 257.0)[:, None], np.arange(2.0, 257.0)[None, :]
    rows = [[math.log(math.comb(a, j)) if j <= a else -math.inf for j in ORDERS] for a in ORDERS]
    return orders, places, np.array(rows)


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x)) if x > 0 else -math.inf


def _log1p_exp(x: float) -> float:
    return math.log1p(math.exp(x)) if x < 30 else x + math.log1p(math.exp(-x))
