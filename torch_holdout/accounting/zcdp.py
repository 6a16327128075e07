r"""Zero-concentrated privacy: :math:`\rho` adds up, also when mechanisms are chosen adaptively.

Bun and Steinke 2016. The sum stays valid when the parameters are chosen along the way (a filter),
which the exact composition of pure mechanisms does not promise.
"""

import math

from torch_holdout._shared.checks import require_between
from torch_holdout._shared.numeric_search import largest_where, smallest_value


def rho_of_pure(epsilon: float) -> float:
    r"""Return :math:`\varepsilon^2/2`: every pure mechanism is that concentrated.

    Example:
        >>> rho_of_pure(0.5)
        0.125
    """
    require_between("epsilon", epsilon, 0, math.inf)
    return epsilon * epsilon / 2


def rho_of_gaussian(sigma: float, sensitivity: float) -> float:
    r"""Return :math:`\Delta^2/(2\sigma^2)` of Gaussian noise, continuous or discrete.

    Example:
        >>> rho_of_gaussian(sigma=2.0, sensitivity=1.0)
        0.125
    """
    require_between("sensitivity", sensitivity, 0, math.inf)
    require_between("sigma", sigma, 0, math.inf, ends=False)
    return (sensitivity / sigma) ** 2 / 2


def epsilon_of_rho(rho: float, delta: float) -> float:
    r"""Return the epsilon of :math:`\rho`-zCDP at delta.

    The smallest over :math:`\alpha > 1` of

    .. math:: \alpha\rho + \frac{\ln(1/\delta) + (\alpha-1)\ln(1 - 1/\alpha) - \ln\alpha}{\alpha-1},

    the conversion of Canonne, Kamath and Steinke 2020; never above the usual
    :math:`\rho + 2\sqrt{\rho \ln(1/\delta)}`.

    Example:
        >>> round(epsilon_of_rho(0.005, 1e-6), 3)
        0.43
        >>> round(epsilon_of_rho_simple(0.005, 1e-6), 3)
        0.531
    """
    simple = epsilon_of_rho_simple(rho, delta)
    if rho == 0 or math.isinf(rho):
        return simple
    found = smallest_value(lambda log: _at_order(1 + math.exp(log), rho, delta), -12.0, 25.0)
    return max(0.0, min(simple, found))


def epsilon_of_rho_simple(rho: float, delta: float) -> float:
    r"""Return :math:`\rho + 2\sqrt{\rho\ln(1/\delta)}`.

    Example:
        >>> round(epsilon_of_rho_simple(5e-5, 1e-6), 4)
        0.0526
    """
    require_between("rho", rho, 0, math.inf)
    require_between("delta", delta, 0, 1, ends=False)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def rho_for(epsilon: float, delta: float) -> float:
    """Return the largest rho up to ``epsilon + 1`` with at most ``epsilon`` at delta; rounded down.

    Example:
        >>> round(epsilon_of_rho(rho_for(1.0, 1e-6), 1e-6), 6)
        1.0
    """
    require_between("epsilon", epsilon, 0, 1e6)
    require_between("delta", delta, 0, 1, ends=False)
    return largest_where(lambda rho: epsilon_of_rho(rho, delta) <= epsilon, 0.0, epsilon + 1.0)


def _at_order(alpha: float, rho: float, delta: float) -> float:
    rest = math.log(1 / delta) + (alpha - 1) * math.log1p(-1 / alpha) - math.log(alpha)
    return alpha * rho + rest / (alpha - 1)
