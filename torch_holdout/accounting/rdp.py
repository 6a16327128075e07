r"""Renyi privacy: curves over the order :math:`\alpha` that add up, and (epsilon, delta)."""

import math
from collections.abc import Callable

from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout._shared.numeric_search import smallest_value

Curve = Callable[[float], float]


def rdp_of_pure(epsilon: float) -> Curve:
    r"""Return the curve of any pure mechanism: that of a randomised response, the worst one.

    .. math:: \frac{1}{\alpha-1}\ln\frac{e^{\alpha\varepsilon} + e^{(1-\alpha)\varepsilon}}
        {1 + e^{\varepsilon}}

    Example:
        >>> round(rdp_of_pure(0.1)(10.0), 4)
        0.0439
    """
    require_between("epsilon", epsilon, 0, math.inf)

    def curve(alpha: float) -> float:
        # Half an epsilon taken out of both sums leaves hyperbolic cosines.
        return (_log_cosh((alpha - 0.5) * epsilon) - _log_cosh(epsilon / 2)) / (alpha - 1)

    return curve


def rdp_of_rho(rho: float) -> Curve:
    r"""Return :math:`\alpha\rho`.

    Example:
        >>> rdp_of_rho(0.005)(10.0)
        0.05
    """
    require_between("rho", rho, 0, math.inf)
    return lambda alpha: alpha * rho


def rdp_of_discrete_laplace(scale: float, sensitivity: int) -> Curve:
    r"""Return the exact curve of integer Laplace noise: :math:`P(j) \propto q^{|j|}`.

    With :math:`q = e^{-1/t}`, sensitivity L and :math:`c = (1-q)/(1+q)`, the sum over the integers
    :math:`\sum_x P(x)^\alpha Q(x)^{1-\alpha}` has three geometric parts. The formula for
    continuous noise is its limit for a large L and lies below it: that one does not hold here.

    Example:
        >>> round(rdp_of_discrete_laplace(scale=10.0, sensitivity=1)(10.0), 4)
        0.0439
    """
    require_between("scale", scale, 0, math.inf, ends=False)
    require_whole("sensitivity", sensitivity, 1, 2**62)
    # In units of the largest term, q^((1 - alpha) L), so that nothing overflows.
    step = 1 / scale
    log_c = math.log(-math.expm1(-step)) - math.log1p(math.exp(-step))
    log_tail = -math.log(-math.expm1(-step))

    def curve(alpha: float) -> float:
        log_largest = (alpha - 1) * sensitivity * step
        below = math.exp(log_tail)
        above = math.exp(log_tail - (2 * alpha - 1) * sensitivity * step)
        ratio = (2 * alpha - 1) * step
        between = 0.0
        if sensitivity > 1:
            between = math.exp(-ratio) * math.expm1(-ratio * (sensitivity - 1)) / math.expm1(-ratio)
        return (log_c + log_largest + math.log(below + above + between)) / (alpha - 1)

    return curve


def _log_cosh(x: float) -> float:
    if x < 1:
        return math.log1p(2 * math.sinh(x / 2) ** 2)
    return x + math.log1p(math.exp(-2 * x)) - math.log(2)


def epsilon_of_rdp(curve: Curve, delta: float) -> float:
    r"""Return the epsilon of a Renyi curve at delta, the smallest over the orders.

    .. math:: \varepsilon = R(\alpha) + \ln(1 - 1/\alpha)
        + \frac{\ln(1/\delta) - \ln\alpha}{\alpha - 1}

    (Canonne, Kamath and Steinke 2020; valid for every order.)

    Example:
        >>> pure = rdp_of_pure(0.01)
        >>> round(epsilon_of_rdp(lambda alpha: 1000 * pure(alpha), 1e-6), 2)
        1.47
    """
    require_between("delta", delta, 0, 1, ends=False)

    def at(log: float) -> float:
        alpha = 1 + math.exp(log)
        rest = (math.log(1 / delta) - math.log(alpha)) / (alpha - 1)
        return curve(alpha) + math.log1p(-1 / alpha) + rest

    return max(0.0, smallest_value(at, -12.0, 25.0))
