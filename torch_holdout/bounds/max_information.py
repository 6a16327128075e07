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
    require_tolerance,
    require_whole,
)
from torch_holdout.bounds.single_query import hoeffding

_LOG2_E = math.log2(math.e)


def overfitting_from_information(bits: float, failure: float) -> float:
    r"""Return :math:`\min(1, 2^k \beta)`: how often a chosen event happens.

    Theorem 2.1. Each event R(y) has probability at most beta for a y chosen without the holdout; y
    chosen with k bits of max-information about it makes :math:`P(S \in R(Y)) \le 2^k\beta`.
    Vacuous when the result is 1.

    Example:
        >>> round(overfitting_from_information(bits=10, failure=1e-6), 6)
        0.001024
    """
    require_between("bits", bits, 0, math.inf)
    require_failure(failure)
    exponent = bits + math.log2(failure)
    return 2.0**exponent if exponent < 0 else 1.0


def information_allowed(units: int, tolerance: float) -> tuple[float, float]:
    r"""Return the bits that keep a query within ``tolerance``, and how often that fails.

    Corollary 2.1.1. With at most :math:`\log_2(e)\,\tau^2 n` bits the chosen query is off by more
    than tau with probability at most :math:`2 e^{-\tau^2 n}` (one side alone: half of that).
    Vacuous when the probability is 1 or more.

    Example:
        >>> bits, failure = information_allowed(50_000, 0.1)
        >>> round(bits), failure < 1e-200
        (721, True)
    """
    require_whole("units", units, 1, 2**62)
    require_tolerance(tolerance)
    exponent = tolerance**2 * units
    return _LOG2_E * exponent, 2 * math.exp(-exponent)


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
    sampling = hoeffding(units, failure)
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
    require_whole("units", units, 1, 2**62)
    return _LOG2_E * epsilon * units


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
    plain = information_of_pure(epsilon, units)
    spread = epsilon * math.sqrt(units * math.log(2 / failure) / 2)
    return min(plain, _LOG2_E * (epsilon**2 * units / 2 + spread))


def information_of_description(bits: float, failure: float) -> float:
    r"""Return :math:`k + \log_2(1/\beta)` bits for a result that can be written in k bits.

    It is the beta-approximate max-information of any function of the holdout with :math:`2^k`
    values, noisy or not.

    Example:
        >>> round(information_of_description(100, 0.01), 2)
        106.64
    """
    require_between("bits", bits, 0, math.inf)
    require_failure(failure)
    return bits + math.log2(1 / failure)
