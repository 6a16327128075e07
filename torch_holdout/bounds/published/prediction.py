r"""Private prediction: sizes, costs and generalisation (Dwork and Feldman 2018).

Numbers are those of V. Rana's report "Privacy Preserving Prediction", with its misprints corrected.
A sample size m(alpha, beta) of a learner is passed as a function.
"""

import math
from collections.abc import Callable

from torch_holdout._shared.checks import (
    require_between,
    require_callable,
    require_failure,
    require_positive,
    require_units,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.regulariser import convex_regulariser

SampleSize = Callable[[float, float], float]


@formula
def soft_majority_probability(votes: int, others: int, epsilon: float) -> float:
    r"""Return the probability of a label with ``votes`` against ``others`` for the other one.

    Labels come out with probability proportional to :math:`e^{\varepsilon n_b / 2}`; without the
    half it would cost twice epsilon.

    Example:
        >>> round(soft_majority_probability(15, 8, epsilon=1.0), 5)
        0.97069
    """
    require_whole("votes", votes, 0, 2**62)
    require_whole("others", others, 0, 2**62)
    require_between("epsilon", epsilon, 0, math.inf)
    margin = epsilon * (votes - others) / 2
    return 1 / (1 + math.exp(-margin)) if margin > -700 else 0.0


@formula
def soft_majority_parts(error: float, epsilon: float) -> int:
    r"""Return :math:`r = \lceil 6\ln(4/\alpha)/\varepsilon \rceil` of Theorem 1.

    That many learners, each of error alpha/4, give an epsilon-private prediction of error alpha.

    Example:
        >>> soft_majority_parts(0.1, epsilon=1.0)
        23
    """
    require_between("error", error, 0, 1, ends=False)
    require_between("epsilon", epsilon, 0, math.inf, ends=False)
    return math.ceil(6 * math.log(4 / error) / epsilon)


@formula
def soft_majority_size(error: float, failure: float, epsilon: float, size: SampleSize) -> float:
    r"""Return :math:`n = r\,m(\alpha/4, \beta/r)` of Theorem 1 (realizable learning).

    Example:
        >>> soft_majority_size(0.1, 0.05, 1.0, lambda error, failure: 100)
        2300
    """
    require_failure(failure)
    parts = soft_majority_parts(error, epsilon)
    return parts * _needed(size, error / 4, failure / parts)


@formula
def prediction_lower_bound(dimension: int, error: float, epsilon: float) -> float:
    r"""Return :math:`d/(32\alpha\varepsilon)`: every private predictor needs at least that many.

    Theorem 2, for errors up to 1/4 and every :math:`(\varepsilon, \varepsilon/3)`-private
    prediction of a class of VC dimension d with confidence 11/12.

    Example:
        >>> prediction_lower_bound(dimension=64, error=0.1, epsilon=0.5)
        40.0
    """
    require_whole("dimension", dimension, 1, 2**62)
    require_between("error", error, 0, 0.25)
    require_positive(error=error, epsilon=epsilon)
    return dimension / (32 * error * epsilon)


@formula
def lipschitz_noise_cost(lipschitz: float, stability: float, epsilon: float) -> float:
    r"""Return :math:`L\gamma/\varepsilon`, what Laplace noise adds to an L-Lipschitz convex loss.

    Theorem 4, first part, for a gamma-stable prediction.

    Example:
        >>> lipschitz_noise_cost(lipschitz=1.0, stability=0.01, epsilon=0.5)
        0.02
    """
    require_positive(lipschitz=lipschitz, stability=stability, epsilon=epsilon)
    return lipschitz * stability / epsilon


@formula
def smooth_noise_cost(smoothness: float, stability: float, epsilon: float) -> float:
    r"""Return :math:`\sigma\gamma^2/\varepsilon^2` for a sigma-smooth loss (not sigma squared).

    Theorem 4, second part: half of sigma times the noise's variance
    :math:`2\gamma^2/\varepsilon^2`.

    Example:
        >>> round(smooth_noise_cost(smoothness=0.25, stability=0.01, epsilon=0.5), 6)
        0.0001
    """
    require_positive(smoothness=smoothness, stability=stability, epsilon=epsilon)
    return smoothness * (stability / epsilon) ** 2


@formula
def averaging(stability: float, failure: float, parts: int) -> tuple[float, float]:
    r"""Return :math:`(\gamma/r, r\beta)`: stability and failure of an average of r learners.

    Lemma 2. An expected loss of at most nu stays at most nu for a convex loss; a bound that fails
    with probability beta for one learner fails with at most r beta for the average.

    Example:
        >>> averaging(stability=1.0, failure=0.001, parts=50)
        (0.02, 0.05)
    """
    require_between("stability", stability, 0, math.inf)
    require_failure(failure)
    require_whole("parts", parts, 1, 2**62)
    return stability / parts, min(1.0, parts * failure)


@formula
def agnostic_parts(error: float, epsilon: float) -> int:
    r"""Return :math:`r = \lceil 2/(\alpha\varepsilon) \rceil` of Corollary 1.

    Example:
        >>> agnostic_parts(0.1, epsilon=1.0)
        20
    """
    require_between("error", error, 0, 1, ends=False)
    require_between("epsilon", epsilon, 0, 1)
    require_positive(epsilon=epsilon)
    return math.ceil(2 / (error * epsilon))


@formula
def agnostic_size(error: float, failure: float, epsilon: float, size: SampleSize) -> float:
    r"""Return :math:`n = r\,m(\alpha/2, \beta/r)` of Corollary 1 (agnostic learning).

    Example:
        >>> agnostic_size(0.1, 0.05, 1.0, lambda error, failure: 100)
        2000
    """
    require_failure(failure)
    parts = agnostic_parts(error, epsilon)
    return parts * _needed(size, error / 2, failure / parts)


@formula
def strongly_convex_cost(
    *, lipschitz: float, loss_lipschitz: float, convexity: float, units: int, epsilon: float
) -> float:
    r"""Return :math:`\frac{4 L_f^2 L_\ell^2}{\lambda n}(1 + 1/\varepsilon)`: Corollary 2.

    The excess expected loss of private prediction from a lambda-strongly convex problem.

    Example:
        >>> facts = {"lipschitz": 1.0, "loss_lipschitz": 1.0, "convexity": 0.1, "units": 10_000}
        >>> round(strongly_convex_cost(**facts, epsilon=1.0), 6)
        0.008
    """
    require_positive(lipschitz=lipschitz, loss_lipschitz=loss_lipschitz, convexity=convexity)
    require_positive(epsilon=epsilon)
    require_units(units)
    return 4 * (lipschitz * loss_lipschitz) ** 2 / (convexity * units) * (1 + 1 / epsilon)


@formula
def convex_cost(
    *, lipschitz: float, loss_lipschitz: float, radius: float, units: int, epsilon: float
) -> float:
    r"""Return :math:`4 R L_f L_\ell/\sqrt{n\varepsilon/(1+\varepsilon)}`: Corollary 3.

    Example:
        >>> facts = {"lipschitz": 1.0, "loss_lipschitz": 1.0, "radius": 1.0, "units": 20_000}
        >>> round(convex_cost(**facts, epsilon=1.0), 4)
        0.04
    """
    regulariser = convex_regulariser(
        lipschitz=lipschitz,
        loss_lipschitz=loss_lipschitz,
        radius=radius,
        units=units,
        epsilon=epsilon,
    )
    return 2 * regulariser * radius**2


@formula
def smooth_convex_cost(
    *,
    lipschitz: float,
    loss_lipschitz: float,
    smoothness: float,
    radius: float,
    units: int,
    epsilon: float,
) -> float:
    r"""Return :math:`2 R L_f L_\ell/\sqrt n + \sigma R^2 L_f^2/(n\varepsilon^2)`: Corollary 4.

    For convex, sigma-smooth problems with :math:`\sigma \le 2 L_f L_\ell\sqrt n/R` (the stray
    strong convexity of the report is not needed); infinite otherwise.

    Example:
        >>> facts = {"lipschitz": 1.0, "loss_lipschitz": 1.0, "smoothness": 0.25, "radius": 1.0}
        >>> round(smooth_convex_cost(**facts, units=10_000, epsilon=0.1), 4)
        0.0225
    """
    require_positive(lipschitz=lipschitz, loss_lipschitz=loss_lipschitz, smoothness=smoothness)
    require_positive(radius=radius, epsilon=epsilon)
    require_units(units)
    if smoothness > 2 * lipschitz * loss_lipschitz * math.sqrt(units) / radius:
        return math.inf
    statistical = 2 * radius * lipschitz * loss_lipschitz / math.sqrt(units)
    return statistical + smoothness * (radius * lipschitz / epsilon) ** 2 / units


@formula
def private_expectation(expectation: float, epsilon: float, delta: float, bound: float) -> float:
    r"""Return :math:`e^\varepsilon E[V] + \delta B`, a bound on E[U] for close laws on [0, B].

    Lemma 5, for :math:`D_\infty^\delta(U \| V) \le \varepsilon`.

    Example:
        >>> round(private_expectation(0.2, epsilon=0.1, delta=1e-3, bound=1.0), 4)
        0.222
    """
    require_between("expectation", expectation, 0, math.inf)
    require_between("epsilon", epsilon, 0, 700)
    require_between("delta", delta, 0, 1)
    require_between("bound", bound, 0, math.inf)
    return math.exp(epsilon) * expectation + delta * bound


@formula
def fresh_moment(
    order: int, mean: float, epsilon: float, delta: float = 0.0, bound: float = 1.0
) -> float:
    r"""Return :math:`e^{k^2\varepsilon}(\alpha + k\delta B)^k`, a bound on a fresh k-th moment.

    Lemma 6: :math:`E[(E_{S'}[M(S)])^k] \le e^{k^2\varepsilon} E[(E_S[M(S)] + k\delta B)^k]`, here
    with an empirical mean of at most alpha.

    Example:
        >>> round(fresh_moment(2, mean=0.1, epsilon=0.05), 5)
        0.01221
    """
    _require_evaluation(mean, epsilon, delta, bound)
    require_whole("order", order, 1, 10**6)
    base = mean + order * delta * bound
    exponent = order**2 * epsilon + (order * math.log(base) if base else -math.inf)
    return math.exp(exponent) if exponent < 700 else math.inf


@formula
def fresh_mean(
    mean: float, epsilon: float, failure: float, *, delta: float = 0.0, bound: float = 1.0
) -> float:
    r"""Return what a private evaluation's mean on fresh data exceeds with probability beta only.

    Lemma 7: the smallest over whole k of :math:`(\alpha + k\delta B)\,e^{k\varepsilon +
    \ln(1/\beta)/k}`, alpha the largest empirical mean. The closed form
    :math:`\alpha e^{2\sqrt{\varepsilon\ln(1/\beta)}}` is for :math:`\delta = 0` and a k that need
    not be whole: it is never above. Vacuous when the result is B or more.

    Example:
        >>> round(fresh_mean(0.1, epsilon=0.1, failure=0.05), 4)
        0.3002
        >>> round(0.1 * math.exp(2 * math.sqrt(0.1 * math.log(20))), 4)
        0.2988
    """
    _require_evaluation(mean, epsilon, delta, bound)
    require_failure(failure)
    if mean == 0 and delta == 0:
        return 0.0

    log_failure = math.log(1 / failure)

    def log_at(order: int) -> float:
        return math.log(mean + order * delta * bound) + order * epsilon + log_failure / order

    # The logarithm falls, then rises in k: double until it has risen, then look around its bottom.
    last = 2
    while log_at(2 * last) < log_at(last) and last < 2**40:
        last *= 2
    low, high = 1, 2 * last
    while high - low > 2:
        middle = (low + high) // 2
        if log_at(middle) <= log_at(middle + 1):
            high = middle + 1
        else:
            low = middle
    best = min(log_at(order) for order in range(low, high + 1))
    return math.exp(best) if best < 700 else math.inf


def _require_evaluation(mean: float, epsilon: float, delta: float, bound: float) -> None:
    require_between("bound", bound, 0, math.inf, ends=False)
    require_between("mean", mean, 0, bound)
    require_between("epsilon", epsilon, 0, math.inf)
    require_between("delta", delta, 0, 1)


def _needed(size: SampleSize, error: float, failure: float) -> float:
    """Return the number of examples that the caller's own formula gives."""
    require_callable("size", size)
    needed = size(error, failure)
    require_between("size(...)", needed, 0, math.inf)
    return needed
