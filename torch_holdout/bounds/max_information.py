r"""Max-information: how much a published result can depend on the holdout.

Dwork, Feldman, Hardt, Pitassi, Reingold and Roth 2015 (arXiv 1506.02629); numbers
are those of M. Lee, "Differential Privacy For Adaptive Queries". The max-information of
holdout and result is the smallest k with :math:`P(S = s \mid Y = y) \le 2^k P(S = s)`: an upper
bound on dependence. Information is in bits here.
"""

import math

from torch_holdout._shared.checks import (
    require_between,
    require_failure,
    require_units,
)
from torch_holdout.bounds.single_query import hoeffding_distance

_LOG2_E = math.log2(math.e)


def information_tolerance(units: int, bits: float, failure: float) -> float:
    r"""Return :math:`\tau = \sqrt{(\ln(2/\beta) + k\ln 2)/(2n)}` for k bits of information.

    Theorem 2.1 with Hoeffding's inequality, solved for the tolerance. With
    :math:`\beta'`-approximate max-information the failure is :math:`\beta + \beta'`. Vacuous when
    the result is 1 or more.

    Example:
        >>> round(information_tolerance(10_000, bits=100, failure=0.05), 4)
        0.0604
    """
    require_between("bits", bits, 0, math.inf)
    require_units(units)
    require_failure(failure)
    return information_distance(units, bits, failure)


def information_distance(units: int, bits: float, failure: float) -> float:
    """Return ``information_tolerance`` without checking the arguments, for searches."""
    sampling = hoeffding_distance(units, failure)
    return math.sqrt(sampling**2 + bits * math.log(2) / (2 * units))


def information_of_pure(epsilon: float, units: int) -> float:
    r"""Return :math:`\log_2(e)\,\varepsilon n` bits: what an epsilon-private result can carry.

    Lemma 2.2, for any distribution of the holdout. It follows from group privacy: replacing all n
    examples changes probabilities by at most :math:`e^{\varepsilon n}`.

    Example:
        >>> round(information_of_pure(0.01, 1000), 2)
        14.43
    """
    require_between("epsilon", epsilon, 0, math.inf)
    require_units(units)
    return _bits_of_pure(epsilon, units)


def information_of_pure_iid(epsilon: float, units: int, failure: float) -> float:
    r"""Return the bits of an epsilon-private result about independent examples.

    .. math:: \log_2(e) \left(\frac{\varepsilon^2 n}{2}
        + \varepsilon \sqrt{\frac{n \ln(2/\beta)}{2}}\right)

    is the beta-approximate max-information for a product distribution; never above Lemma 2.2's.

    Example:
        >>> round(information_of_pure_iid(0.01, 1000, 0.05), 2)
        0.69
    """
    require_failure(failure)
    require_between("epsilon", epsilon, 0, math.inf)
    require_units(units)
    return bits_of_pure_iid(epsilon, units, failure)


def bits_of_pure_iid(epsilon: float, units: int, failure: float) -> float:
    """Return ``information_of_pure_iid`` without checking the arguments, for searches."""
    spread = epsilon * math.sqrt(units * math.log(2 / failure) / 2)
    return min(_bits_of_pure(epsilon, units), _LOG2_E * (epsilon**2 * units / 2 + spread))


def _bits_of_pure(epsilon: float, units: int) -> float:
    return _LOG2_E * epsilon * units
