r"""Max-information of a description, and what a given number of bits allows.

Dwork, Feldman, Hardt, Pitassi, Reingold and Roth 2015 (arXiv 1506.02629); information is in bits.
"""

import math

from torch_holdout._shared.checks import (
    require_between,
    require_failure,
    require_tolerance,
    require_units,
)

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
    require_units(units)
    require_tolerance(tolerance)
    exponent = tolerance**2 * units
    return _LOG2_E * exponent, 2 * math.exp(-exponent)


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
