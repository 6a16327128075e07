r"""Renyi privacy: curves over the order :math:`\alpha` that add up, and (epsilon, delta).

Zero-concentrated privacy is the curve :math:`\alpha\rho` (Bun and Steinke 2016): :math:`\rho` adds
up, also when mechanisms and their parameters are chosen along the way (a filter), which the exact
composition of pure mechanisms does not promise.
"""

import math
from collections.abc import Callable

from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout._shared.numeric_search import largest_where, smallest_value

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


def epsilon_of_rdp(curve: Curve, delta: float) -> float:
    """Return the smallest ``epsilon_at_order`` of a Renyi curve at delta.

    Example:
        >>> pure = rdp_of_pure(0.01)
        >>> round(epsilon_of_rdp(lambda alpha: 1000 * pure(alpha), 1e-6), 2)
        1.47
    """
    require_between("delta", delta, 0, 1, ends=False)
    return max(0.0, _smallest_epsilon(curve, delta))


def epsilon_at_order(divergence: float, order: float, delta: float) -> float:
    r"""Return the epsilon of a Renyi divergence of one order at delta.

    .. math:: \varepsilon = R + \frac{\ln(1/\delta) + (\alpha-1)\ln(1 - 1/\alpha) - \ln\alpha}
        {\alpha - 1}

    (Canonne, Kamath and Steinke 2020; valid for every order above 1.) The inverse in R is
    ``filters.capacity``.

    Example:
        >>> round(epsilon_at_order(0.05, order=10.0, delta=1e-5), 4)
        0.968
    """
    rest = math.log(1 / delta) + (order - 1) * math.log1p(-1 / order) - math.log(order)
    return divergence + rest / (order - 1)


def rho_of_pure(epsilon: float) -> float:
    r"""Return :math:`\varepsilon^2/2`: every pure mechanism is that concentrated.

    Example:
        >>> rho_of_pure(0.5)
        0.125
    """
    require_between("epsilon", epsilon, 0, math.inf)
    return epsilon * epsilon / 2


@formula
def rho_of_gaussian(sigma: float, sensitivity: float) -> float:
    r"""Return :math:`\Delta^2/(2\sigma^2)` of Gaussian noise, continuous or discrete.

    Example:
        >>> rho_of_gaussian(sigma=2.0, sensitivity=1.0)
        0.125
    """
    require_between("sensitivity", sensitivity, 0, math.inf)
    require_between("sigma", sigma, 0, math.inf, ends=False)
    return (sensitivity / sigma) ** 2 / 2


@formula
def epsilon_of_rho(rho: float, delta: float) -> float:
    r"""Return the epsilon of :math:`\rho`-zCDP at delta.

    The smallest ``epsilon_at_order`` of the curve :math:`\alpha\rho`; never above the usual
    :math:`\rho + 2\sqrt{\rho \ln(1/\delta)}`.

    Example:
        >>> round(epsilon_of_rho(0.005, 1e-6), 3)
        0.43
        >>> round(epsilon_of_rho_simple(0.005, 1e-6), 3)
        0.531
    """
    require_between("rho", rho, 0, math.inf)
    require_between("delta", delta, 0, 1, ends=False)
    return _epsilon_of_rho(rho, delta)


def epsilon_of_rho_simple(rho: float, delta: float) -> float:
    r"""Return :math:`\rho + 2\sqrt{\rho\ln(1/\delta)}`.

    Example:
        >>> round(epsilon_of_rho_simple(5e-5, 1e-6), 4)
        0.0526
    """
    require_between("rho", rho, 0, math.inf)
    require_between("delta", delta, 0, 1, ends=False)
    return simple_epsilon(rho, delta)


def simple_epsilon(rho: float, delta: float) -> float:
    """Return ``epsilon_of_rho_simple`` without checking the arguments, for searches."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


@formula
def rho_for(epsilon: float, delta: float) -> float:
    """Return the largest rho up to ``epsilon + 1`` with at most ``epsilon`` at delta; rounded down.

    Example:
        >>> round(epsilon_of_rho(rho_for(1.0, 1e-6), 1e-6), 6)
        1.0
    """
    require_between("epsilon", epsilon, 0, 1e6)
    require_between("delta", delta, 0, 1, ends=False)
    return largest_where(lambda rho: _epsilon_of_rho(rho, delta) <= epsilon, 0.0, epsilon + 1.0)


def _epsilon_of_rho(rho: float, delta: float) -> float:
    simple = simple_epsilon(rho, delta)
    if rho == 0 or math.isinf(rho):
        return simple
    return max(0.0, min(simple, _smallest_epsilon(lambda order: order * rho, delta)))


def _smallest_epsilon(curve: Curve, delta: float) -> float:
    def at(log: float) -> float:
        order = 1 + math.exp(log)
        return epsilon_at_order(curve(order), order, delta)

    return smallest_value(at, -12.0, 25.0)


def _log_cosh(x: float) -> float:
    if x < 1:
        return math.log1p(2 * math.sinh(x / 2) ** 2)
    return x + math.log1p(math.exp(-2 * x)) - math.log(2)
