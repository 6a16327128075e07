r"""Transfer theorems that no certificate here uses: sizes, expectations, information in bits.

Theorems 2.x are those of M. Lee's notes "Differential Privacy For Adaptive Queries", 1.x those of
J. Sorrell's lecture 19, Theorems 9 to 11 and Corollary 7 those of arXiv 1411.2664;
max-information is that of arXiv 1506.02629.
"""

import math

from torch_holdout._shared.checks import (
    require_between,
    require_failure,
    require_tolerance,
    require_units,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.transfer import information_mse, monitor_tolerance

_LOG2_E = math.log2(math.e)


@formula
def pure_overfitting(epsilon: float, units: int, failure: float) -> float:
    r"""Return how often unlikely events happen when they are chosen with pure privacy.

    Each event has probability at most beta without looking. If :math:`\varepsilon \le
    \sqrt{\ln(1/\beta)/(2n)}`, choosing it with epsilon-privacy makes it at most
    :math:`3\sqrt{\beta}` likely; for a larger epsilon nothing is said and the result is 1.
    (Theorem 11; Theorem 2.3, which is not
    :math:`3/\sqrt\beta`: that is above 1.) It is not limited to means: R(y) may be any event.

    Example:
        >>> round(pure_overfitting(0.01, 10_000, 1e-6), 6)
        0.003
    """
    require_between("epsilon", epsilon, 0, math.inf)
    require_units(units)
    require_failure(failure)
    if epsilon > math.sqrt(math.log(1 / failure) / (2 * units)):
        return 1.0
    return min(1.0, 3 * math.sqrt(failure))


@formula
def pure_tolerance_two_sided(epsilon: float, units: int, failure: float) -> float:
    r"""Return ``pure_tolerance`` from one two-sided event instead of two one-sided ones.

    :math:`\varepsilon \le \sqrt{\tau^2 - \ln 2/(2n)}` ensures :math:`3\sqrt2\,e^{-\tau^2 n}`
    (arXiv 1411.2664, after Theorem 11).

    Example:
        >>> round(pure_tolerance_two_sided(0.01, 10_000, 0.05), 4)
        0.0211
    """
    require_between("epsilon", epsilon, 0, math.inf)
    require_units(units)
    require_failure(failure)
    from_failure = math.log(3 * math.sqrt(2) / failure) / units
    return math.sqrt(max(from_failure, epsilon**2 + math.log(2) / (2 * units)))


@formula
def moment_transfer_size(tolerance: float, failure: float) -> tuple[float, float]:
    r"""Return (n, epsilon) of Theorem 9: that many examples, at most that epsilon, give tau.

    :math:`n \ge 12\ln(4/\beta)/\tau^2` and :math:`\varepsilon \le \tau/2` (arXiv 1411.2664). Its
    proof needs :math:`\tau \le 1/3`.

    Example:
        >>> examples, epsilon = moment_transfer_size(0.1, 0.05)
        >>> round(examples, 1), epsilon
        (5258.4, 0.05)
    """
    require_tolerance(tolerance, 1 / 3)
    require_failure(failure)
    return 12 * math.log(4 / failure) / tolerance**2, tolerance / 2


@formula
def approximate_transfer_size(tolerance: float, failure: float) -> tuple[float, float, float]:
    r"""Return (n, epsilon, delta) for approximate privacy: Theorem 10, Theorem 2.4.

    :math:`n \ge 48\ln(4/\beta)/\tau^2`, :math:`\varepsilon \le \tau/4`,
    :math:`\delta \le e^{-4\ln(8/\beta)/\tau}` (arXiv 1411.2664; 48 ln(8/beta), as sometimes
    written, is a little more than needed). Needs :math:`\tau \le 2/3`.

    Example:
        >>> examples, epsilon, delta = approximate_transfer_size(0.1, 0.05)
        >>> round(examples), epsilon, delta < 1e-80
        (21034, 0.025, True)
    """
    require_tolerance(tolerance, 2 / 3)
    require_failure(failure)
    delta = math.exp(-4 * math.log(8 / failure) / tolerance)
    return 48 * math.log(4 / failure) / tolerance**2, tolerance / 4, delta


@formula
def expected_gap(epsilon: float, delta: float = 0.0) -> float:
    r"""Return :math:`e^\varepsilon - 1 + \delta`, a bound on :math:`|E[h] - E[P]|`.

    Corollary 7 of arXiv 1411.2664: in expectation only, for any n. Vacuous when 1 or more.

    Example:
        >>> round(expected_gap(0.05), 4)
        0.0513
    """
    require_between("epsilon", epsilon, 0, 700)
    require_between("delta", delta, 0, 1)
    return math.expm1(epsilon) + delta


@formula
def composed_tolerance(
    epsilon: float, delta: float, units: int, *, queries: int, error: float, failure: float
) -> tuple[float, float]:
    r"""Return (tolerance, failure) for the answers to k queries: Theorem 1.2.

    If the whole sequence is (epsilon, delta)-private and each answer is within ``error`` of h
    except with probability ``failure``, all answers are within :math:`6\varepsilon + \alpha` of
    the population except with probability :math:`k\beta + \max(4\delta/\varepsilon,
    e^{-\varepsilon^2 n/8})`.

    Example:
        >>> answers = {"queries": 10, "error": 0.02, "failure": 0.001}
        >>> tolerance, failure = composed_tolerance(0.05, 0.0, 50_000, **answers)
        >>> round(tolerance, 3), round(failure, 4)
        (0.32, 0.01)
    """
    require_whole("queries", queries, 1, 2**62)
    require_between("error", error, 0, math.inf)
    require_failure(failure)
    distance, wrong = monitor_tolerance(epsilon, delta, units)
    return distance + error, min(1.0, queries * failure + wrong)


@formula
def information_chebyshev(information: float, units: int, failure: float) -> float:
    r"""Return tau with :math:`P(|h - P| > \tau) \le \beta`, by Chebyshev from ``information_mse``.

    Example:
        >>> round(information_chebyshev(5.0, 10_000, 0.05), 3)
        0.082
    """
    require_failure(failure)
    return math.sqrt(information_mse(information, units) / failure)


@formula
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


@formula
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


@formula
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
