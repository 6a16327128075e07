r"""Transfer theorems: what is private with respect to the holdout generalises.

A mechanism that answers queries is (epsilon, delta)-private when one example is replaced, and so is
everything an analyst computes from its answers, the next query included. For a query chosen that
way these theorems bound the distance between its mean h on the holdout and P in the population.
A monitor that picks the worst of all queries is such a computation too, so each of them covers all
queries at once.

Results are distances or probabilities; infinite, or 1, where a theorem does not apply. Theorems 2.x
are those of M. Lee's notes "Differential Privacy For Adaptive Queries", 1.x those of J. Sorrell's
lecture 19, Theorems 9 to 11 and Corollary 7 those of arXiv 1411.2664.

Max-information (arXiv 1506.02629) is how much a result can depend on the holdout: the smallest k
with :math:`P(S = s \mid Y = y) \le 2^k P(S = s)`, in bits.
"""

import math

from torch_holdout._shared.checks import require_between, require_failure, require_units
from torch_holdout._shared.formulas import formula
from torch_holdout._shared.numeric_search import smallest_value
from torch_holdout.bounds.single_query import hoeffding_distance

_LOG2_E = math.log2(math.e)
LARGEST_MONITORED = 1 / 8  # the epsilon up to which `monitor_tolerance` is proved


@formula
def pure_tolerance(epsilon: float, units: int, failure: float) -> float:
    r"""Return tau with :math:`P(|h - P| \ge \tau) \le \beta` under pure privacy.

    Corollary 2.3.1: :math:`\varepsilon \le \tau` ensures :math:`6 e^{-\tau^2 n}`, so
    :math:`\tau = \max(\varepsilon, \sqrt{\ln(6/\beta)/n})`. Vacuous when the result is 1 or more.

    Example:
        >>> round(pure_tolerance(0.01, 10_000, 0.05), 4)
        0.0219
    """
    _require(epsilon, units)
    require_failure(failure)
    return pure_distance(epsilon, units, failure)


def pure_distance(epsilon: float, units: int, failure: float) -> float:
    """Return ``pure_tolerance`` without checking the arguments, for searches."""
    return max(epsilon, math.sqrt(math.log(6 / failure) / units))


@formula
def monitor_tolerance(epsilon: float, delta: float, units: int) -> tuple[float, float]:
    r"""Return (tolerance, failure) of Bassily et al. 2016, as in the lecture's Theorem 1.1.

    For :math:`\varepsilon \in [\sqrt{12/n}, 1/8]`, :math:`\delta \le \varepsilon/16` and any query
    of sensitivity 1/n: :math:`P(|h - P| \ge 6\varepsilon) \le
    \max(4\delta/\varepsilon, e^{-\varepsilon^2 n/8})`. A smaller epsilon counts as
    :math:`\sqrt{12/n}`. Elsewhere it says nothing: (inf, 1).

    Example:
        >>> tolerance, failure = monitor_tolerance(0.05, 1e-6, 50_000)
        >>> round(tolerance, 3), failure < 1e-3
        (0.3, True)
    """
    _require(epsilon, units)
    require_between("delta", delta, 0, 1)
    epsilon = max(epsilon, math.sqrt(12 / units))
    if epsilon > LARGEST_MONITORED or delta > epsilon / 16:
        return math.inf, 1.0
    return 6 * epsilon, max(4 * delta / epsilon, math.exp(-(epsilon**2) * units / 8))


@formula
def accuracy_transfer(
    epsilon: float, delta: float, *, error: float, error_failure: float, slack: float, loss: float
) -> tuple[float, float]:
    r"""Return (tolerance, failure) of Jung, Ligett, Neel, Roth, Sharifi-Malvajerdi, Shenfeld 2020.

    If answers are within ``error`` of the holdout except with probability ``error_failure`` and the
    mechanism is (epsilon, delta)-private, then for every c, d > 0 they are within
    :math:`\alpha + (e^\varepsilon - 1) + c + 2d` of the population except with probability
    :math:`\beta'/c + \delta/d`. No sample size appears: it is in epsilon. With :math:`\delta = 0`,
    d may be 0.

    Epsilon, delta and beta' (``error_failure``) are of all answers together; alpha is ``error``, c
    is ``slack`` and d is ``loss``.

    Example:
        >>> facts = {"error": 0.01, "error_failure": 1e-4, "slack": 0.01, "loss": 0.0}
        >>> tolerance, failure = accuracy_transfer(0.02, 0.0, **facts)
        >>> round(tolerance, 4), failure
        (0.0402, 0.01)
    """
    require_between("epsilon", epsilon, 0, math.inf)
    require_between("delta", delta, 0, 1)
    require_between("error", error, 0, math.inf)
    require_between("error_failure", error_failure, 0, 1)
    require_between("slack", slack, 0, 1, ends=False)
    require_between("loss", loss, 0, 1)
    missed = 0.0 if delta == 0 else (math.inf if loss == 0 else delta / loss)
    distance = accuracy_distance(epsilon, error, slack, loss)
    return distance, min(1.0, error_failure / slack + missed)


def accuracy_distance(epsilon: float, error: float, slack: float, loss: float) -> float:
    """Return the tolerance of ``accuracy_transfer`` without checking the arguments."""
    growth = math.expm1(epsilon) if epsilon < 700 else math.inf
    return error + growth + slack + 2 * loss


@formula
def information_mse(information: float, units: int) -> float:
    r"""Return a bound on :math:`E[(h - P)^2]` for a query that carries ``information`` nats.

    .. math:: \min_{0<\lambda<1} \frac{2I - \ln(1-\lambda)}{4 n \lambda}

    Rogers, Roth, Smith, Srebro, Thakkar and Woodworth 2020: the Donsker-Varadhan inequality and a
    mean of n values in [0, 1] being :math:`1/(4n)`-subgaussian. A :math:`\rho`-zCDP mechanism on n
    independent examples carries at most :math:`\rho n` nats (Bun and Steinke 2016).

    Example:
        >>> round(information_mse(0.0, 1000) * 1000, 2)  # the variance is at most 0.25
        0.25
        >>> round(information_mse(5.0, 1000) * 1000, 2)
        3.4
    """
    require_between("information", information, 0, math.inf)
    require_units(units)

    def at(logit: float) -> float:
        # lambda = e^x/(1 + e^x), so -ln(1 - lambda) = ln(1 + e^x), without cancellation.
        share = 1 / (1 + math.exp(-logit))
        return (2 * information + math.log1p(math.exp(logit))) / (4 * units * share)

    return smallest_value(at, -30.0, 30.0)


@formula
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


@formula
def information_of_pure(epsilon: float, units: int) -> float:
    r"""Return :math:`\log_2(e)\,\varepsilon n` bits: what an epsilon-private result can carry.

    Lemma 2.2, for any distribution of the holdout. It follows from group privacy: replacing all n
    examples changes probabilities by at most :math:`e^{\varepsilon n}`.

    Example:
        >>> round(information_of_pure(0.01, 1000), 2)
        14.43
    """
    _require(epsilon, units)
    return _bits_of_pure(epsilon, units)


@formula
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
    _require(epsilon, units)
    return bits_of_pure_iid(epsilon, units, failure)


def bits_of_pure_iid(epsilon: float, units: int, failure: float) -> float:
    """Return ``information_of_pure_iid`` without checking the arguments, for searches."""
    spread = epsilon * math.sqrt(units * math.log(2 / failure) / 2)
    return min(_bits_of_pure(epsilon, units), _LOG2_E * (epsilon**2 * units / 2 + spread))


def _bits_of_pure(epsilon: float, units: int) -> float:
    return _LOG2_E * epsilon * units


def _require(epsilon: float, units: int) -> None:
    require_between("epsilon", epsilon, 0, math.inf)
    require_units(units)
