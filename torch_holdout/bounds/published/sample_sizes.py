r"""Sample sizes of private mechanisms, with the constants that O() hides.

The mechanisms of Dwork et al. (arXiv 1411.2664, section 5) with the constants of Dwork and Roth's
book, and the recipe of J. Sorrell's lecture 19, solved numerically. Values are in [0, 1].
"""

import math
from dataclasses import dataclass
from typing import final

from torch_holdout._shared.checks import (
    require_between,
    require_failure,
    require_tolerance,
    require_units,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout._shared.numeric_search import smallest_value
from torch_holdout.bounds.published.transfer import moment_transfer_size


@formula
def laplace_error(units: int, epsilon: float, failure: float) -> float:
    r"""Return :math:`\alpha = \ln(1/\beta)/(n\varepsilon)`: how far Laplace noise moves an answer.

    Noise of scale :math:`1/(n\varepsilon)` exceeds :math:`t/(n\varepsilon)` with probability
    :math:`e^{-t}` (Claim 1.3 of the lecture). Continuous noise; ``laplace_tail`` is for integers.

    Example:
        >>> round(laplace_error(1000, 0.1, 0.05), 4)
        0.03
    """
    require_units(units)
    require_between("epsilon", epsilon, 0, math.inf, ends=False)
    require_failure(failure)
    return math.log(1 / failure) / (units * epsilon)


@formula
def laplace_size(
    queries: int, accuracy: float, failure: float, epsilon: float, delta: float | None = None
) -> float:
    r"""Return n for m answers, each within alpha of the holdout except with probability beta.

    :math:`m \ln(1/\beta)/(\varepsilon\alpha)` with all of them epsilon-private; at delta (and
    :math:`\varepsilon \le 1`) :math:`\sqrt{8 m \ln(1/\delta)} \ln(1/\beta)/(\varepsilon\alpha)`.

    Example:
        >>> round(laplace_size(100, 0.05, 0.05, epsilon=0.1))
        59915
    """
    require_whole("queries", queries, 1, 2**62)
    _require(accuracy, failure, epsilon)
    share = math.log(1 / failure) / (epsilon * accuracy)
    if delta is None:
        return queries * share
    require_between("delta", delta, 0, 0.5, ends=False)
    require_between("epsilon", epsilon, 0, 1)
    return math.sqrt(8 * queries * math.log(1 / delta)) * share


@formula
def sparse_size(
    rounds: int,
    accuracy: float,
    failure: float,
    epsilon: float,
    *,
    queries: int | None = None,
    delta: float | None = None,
) -> float:
    r"""Return n for numeric SPARSE with r answers above the threshold.

    :math:`9 r\,\ell/(\varepsilon\alpha)`, and at delta (and :math:`\varepsilon \le 1`)
    :math:`(\sqrt{512}+1)\sqrt{r\ln(2/\delta)}\,\ell/(\varepsilon\alpha)`. With beta per query
    :math:`\ell = \ln(4/\beta)`; for all k queries at once :math:`\ell = \ln k + \ln(4r/\beta)`
    (Dwork and Roth, Theorem 3.28).

    Example:
        >>> round(sparse_size(20, 0.05, 0.05, epsilon=0.1))
        157753
        >>> round(sparse_size(20, 0.05, 0.05, epsilon=0.1, queries=1000))
        514279
    """
    require_whole("rounds", rounds, 1, 2**62)
    _require(accuracy, failure, epsilon)
    log = math.log(4 / failure)
    if queries is not None:
        require_whole("queries", queries, 1, 2**62)
        log = math.log(queries) + math.log(4 * rounds / failure)
    if delta is None:
        return 9 * rounds * log / (epsilon * accuracy)
    require_between("delta", delta, 0, 1, ends=False)
    require_between("epsilon", epsilon, 0, 1)
    factor = (math.sqrt(512) + 1) * math.sqrt(rounds * math.log(2 / delta))
    return factor * log / (epsilon * accuracy)


@final
@dataclass(frozen=True)
class EffectiveRoundsSize:
    """The parameters and examples that EffectiveRounds needs.

    Example:
        >>> size = effective_rounds_size(rounds=5, tolerance=0.1, failure=0.05)
        >>> isinstance(size, EffectiveRoundsSize), round(size.total)
        (True, 3233448)
    """

    threshold: float
    epsilon: float
    estimation: float
    detection: float
    total: float


@formula
def effective_rounds_size(rounds: int, tolerance: float, failure: float) -> EffectiveRoundsSize:
    r"""Return the sets that EffectiveRounds needs for r rounds of adaptivity.

    :math:`T = \tau/4`, :math:`\varepsilon = \tau/16`; r estimation sets of
    :math:`\ln(6/\beta)/(2(\tau/8)^2)` and one detection set of SPARSE's size at
    :math:`(\tau/8, \beta/3, \tau/16)`. Beta is per query: divide by m for all m.

    Example:
        >>> size = effective_rounds_size(rounds=5, tolerance=0.1, failure=0.05)
        >>> round(size.estimation), round(size.detection)
        (15320, 3156848)
    """
    require_whole("rounds", rounds, 1, 2**62)
    require_tolerance(tolerance)
    require_failure(failure)
    estimation = math.log(6 / failure) / (2 * (tolerance / 8) ** 2)
    detection = sparse_size(rounds, tolerance / 8, failure / 3, tolerance / 16)
    return EffectiveRoundsSize(
        tolerance / 4, tolerance / 16, estimation, detection, rounds * estimation + detection
    )


@final
@dataclass(frozen=True)
class MultiplicativeWeightsSize:
    """The parameters and examples that private multiplicative weights need.

    Example:
        >>> size = multiplicative_weights_size(1024, 1000, 0.1, 0.05, epsilon=1.0)
        >>> isinstance(size, MultiplicativeWeightsSize), round(size.learning_rate, 3)
        (True, 0.05)
    """

    learning_rate: float
    threshold: float
    updates: float
    size: float
    error: float


@formula
def multiplicative_weights_size(
    universe: int, queries: int, accuracy: float, failure: float, epsilon: float
) -> MultiplicativeWeightsSize:
    r"""Return parameters and size for a finite universe (Hardt and Rothblum 2010).

    With :math:`\eta = \alpha/2` and :math:`T = 2\alpha` at most :math:`c = 4\ln|X|/\alpha^2`
    updates happen; SPARSE over them needs :math:`n = 9c(\ln 2m + \ln(4c/\beta))/(\varepsilon
    \alpha)`; every answer is then within :math:`3\alpha` of the holdout. Built here from Dwork and
    Roth's constants, not quoted.

    Example:
        >>> size = multiplicative_weights_size(1024, 1000, 0.1, 0.05, epsilon=1.0)
        >>> round(size.updates), round(size.size), round(size.error, 2)
        (2773, 4968318, 0.3)
    """
    require_whole("universe", universe, 2, 2**62)
    require_whole("queries", queries, 1, 2**62)
    _require(accuracy, failure, epsilon)
    updates = 4 * math.log(universe) / accuracy**2
    log = math.log(2 * queries) + math.log(4 * updates / failure)
    size = 9 * updates * log / (epsilon * accuracy)
    return MultiplicativeWeightsSize(accuracy / 2, 2 * accuracy, updates, size, 3 * accuracy)


@formula
def laplace_population_size(queries: int, tolerance: float, failure: float) -> float:
    r"""Return n for m adaptive answers within tau of the *population*, by Theorem 9.

    Half of tau for the noise, half for the transfer (:math:`\varepsilon = \tau/4`); half of beta,
    divided by m, for each.

    Example:
        >>> round(laplace_population_size(10, 0.1, 0.05))
        47932
    """
    require_whole("queries", queries, 1, 2**62)
    require_tolerance(tolerance)
    require_failure(failure)
    share = failure / (2 * queries)
    needed, epsilon = moment_transfer_size(min(tolerance / 2, 1 / 3), share)
    return max(needed, laplace_size(queries, tolerance / 2, share, epsilon))


@formula
def lecture_size(queries: int, tolerance: float, failure: float) -> float:
    r"""Return n for k adaptive Laplace answers within alpha of the population, all at once.

    The lecture's recipe with numbers: Theorem 1.2 at total privacy (epsilon, delta), basic
    or zCDP composition of the k answers, and the smallest n over the split of tolerance and
    failure.

    Example:
        >>> round(lecture_size(10, 0.1, 0.05), -3)
        189000.0
    """
    require_whole("queries", queries, 1, 10**6)
    require_tolerance(tolerance)
    require_failure(failure)
    largest = min(1 / 8, tolerance / 6)

    def size(share: float, epsilon: float) -> float:
        transfer = share * failure
        delta = min(transfer * epsilon / 4, epsilon / 16)
        log = math.log(1 / delta)
        concentrated = (math.sqrt(log + epsilon) - math.sqrt(log)) * math.sqrt(2 / queries)
        each = max(epsilon / queries, concentrated)
        error = tolerance - 6 * epsilon
        noise = math.log(queries / ((1 - share) * failure)) / (each * error)
        return max(12 / epsilon**2, 8 * math.log(1 / transfer) / epsilon**2, noise)

    def best(share: float) -> float:
        return smallest_value(lambda x: size(share, largest / (1 + math.exp(-x))), -6.0, 6.0)

    return smallest_value(lambda x: best(1 / (1 + math.exp(-x))), -3.0, 8.0)


def _require(accuracy: float, failure: float, epsilon: float) -> None:
    require_between("accuracy", accuracy, 0, 1, ends=False)
    require_failure(failure)
    require_between("epsilon", epsilon, 0, math.inf, ends=False)
