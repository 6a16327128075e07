r"""Tolerances of noisy answers by the transfer theorems, with every share chosen in advance.

Each theorem turns the privacy of all answers together (a sparse vector with a = 1/(u sigma) and a
budget B: 2B mechanisms of a each) into a distance between holdout and population; the noise of the
answer comes on top. The failure probability is divided so that the sum is smallest, from registered
parameters alone, and every division is valid.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import final

from torch_holdout._shared.checks import require_failure, require_units
from torch_holdout._shared.numeric_search import best_argument, smallest_value, smallest_where
from torch_holdout.accounting.compose import PrivacyLoss
from torch_holdout.accounting.rdp import simple_epsilon
from torch_holdout.bounds.transfer import (
    LARGEST_MONITORED,
    accuracy_distance,
    bits_of_pure_iid,
    information_distance,
    information_mse,
    pure_distance,
)

_RANGE = (-20.0, -0.1)  # logarithms of a slack or a loss


@final
@dataclass(frozen=True)
class PrivateAnswers:
    """The answers of a whole budget: their privacy ``loss`` and their noise, ``error(beta)``.

    A theorem that cannot come ``below`` a given distance returns its floor, a value that none of
    its divisions is under, instead of searching.
    """

    units: int
    loss: PrivacyLoss
    error: Callable[[float], float]
    failure: float
    below: float = math.inf

    def __post_init__(self) -> None:
        require_units(self.units)
        require_failure(self.failure)

    def best_division(self, sampling: Callable[[float], float], least: float) -> float:
        """Return the smallest sum of ``sampling`` and noise, each with a share of the failure.

        ``least`` is a distance that ``sampling`` is not under, whatever its share.
        """
        error, failure = self.error, self.failure

        def at(logit: float) -> float:
            share = 1 / (1 + math.exp(-logit))
            return sampling(share * failure) + error((1 - share) * failure)

        floor = least + error(failure)
        return smallest_value(at, -8.0, 8.0) if floor < self.below else floor


def by_pure_privacy(answers: PrivateAnswers) -> float:
    """Return the tolerance by Corollary 2.3.1.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.002), count=10),))
        >>> answers = PrivateAnswers(10_000, loss, lambda beta: 0.002 * math.log(5 / beta), 0.05)
        >>> round(by_pure_privacy(answers), 3)
        0.509
    """
    epsilon, units = answers.loss.pure, answers.units

    def sampling(failure: float) -> float:
        return pure_distance(epsilon, units, failure)

    return answers.best_division(sampling, sampling(answers.failure))


def by_max_information(answers: PrivateAnswers) -> float:
    """Return the tolerance by max-information of independent examples.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.01), count=10),))
        >>> answers = PrivateAnswers(10_000, loss, lambda beta: 0.01 * math.log(5 / beta), 0.05)
        >>> round(by_max_information(answers), 3)
        0.108
    """
    epsilon, units = answers.loss.pure, answers.units

    def sampling(failure: float) -> float:
        half = failure / 2  # for the information, and for Hoeffding
        return information_distance(units, bits_of_pure_iid(epsilon, units, half), half)

    return answers.best_division(sampling, sampling(answers.failure))


def by_monitor(answers: PrivateAnswers) -> float:
    """Return the tolerance by Bassily et al. (Theorem 1.2); infinite outside its range.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.05), count=10),))
        >>> answers = PrivateAnswers(10_000, loss, lambda beta: 0.05 * math.log(5 / beta), 0.05)
        >>> round(by_monitor(answers), 3)
        0.591
    """
    pure, rho, units = answers.loss.pure, answers.loss.rho, answers.units

    def smallest(transfer: float) -> float:
        epsilon = math.sqrt(max(12.0, 8 * math.log(1 / transfer)) / units)
        return epsilon if epsilon <= LARGEST_MONITORED else math.inf

    def sampling(transfer: float) -> float:
        def private(epsilon: float) -> bool:
            delta = min(transfer * epsilon / 4, epsilon / 16)
            return epsilon >= pure or simple_epsilon(rho, delta) <= epsilon

        least = smallest(transfer)
        return least if math.isinf(least) else 6 * smallest_where(private, least, LARGEST_MONITORED)

    return answers.best_division(sampling, 6 * smallest(answers.failure))


def by_accuracy(answers: PrivateAnswers) -> float:
    """Return the tolerance by Jung et al., pure or at the best delta.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.02), count=10),))
        >>> answers = PrivateAnswers(10_000, loss, lambda beta: 0.02 * math.log(5 / beta), 0.05)
        >>> round(by_accuracy(answers), 3)
        0.242
    """
    return min(_accuracy_pure(answers), _accuracy_approximate(answers))


def by_mutual_information(answers: PrivateAnswers) -> float:
    """Return the tolerance by Rogers et al.: the worst query's mean square, then Chebyshev.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.005), count=10),))
        >>> answers = PrivateAnswers(10_000, loss, lambda beta: 0.005 * math.log(5 / beta), 0.05)
        >>> round(by_mutual_information(answers), 3)
        0.191
    """
    rho, units = answers.loss.rho, answers.units
    mean_square = cache(lambda: information_mse(rho * units, units))
    # It is at least 2I/(4n), of I = rho n nats.
    least = math.sqrt(rho / 2 / answers.failure)
    return answers.best_division(lambda failure: math.sqrt(mean_square() / failure), least)


THEOREMS: dict[str, Callable[[PrivateAnswers], float]] = {
    "pure privacy (Dwork et al. 2015)": by_pure_privacy,
    "max-information (Dwork et al. 2015)": by_max_information,
    "approximate privacy (Bassily et al. 2016)": by_monitor,
    "sample accuracy and privacy (Jung et al. 2020)": by_accuracy,
    "mutual information (Rogers et al. 2020)": by_mutual_information,
}


def best_theorem(answers: PrivateAnswers) -> tuple[float, str]:
    """Return the smallest tolerance of these theorems and its name; infinite without noise.

    A result that is not below ``answers.below`` may be too small, but is never below it.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> loss = PrivacyLoss((Pure(1 / (1e6 * 0.01), count=2000),))
        >>> noise = lambda beta: 0.01 * math.log(1000 / beta)
        >>> best_theorem(PrivateAnswers(1_000_000, loss, noise, 0.05))[1]
        'mutual information (Rogers et al. 2020)'
    """
    if math.isinf(answers.loss.rho):
        return math.inf, "none: without noise nothing is private"
    return min(((by(answers), name) for name, by in THEOREMS.items()), key=lambda pair: pair[0])


def _accuracy_pure(answers: PrivateAnswers) -> float:
    epsilon, error, failure = answers.loss.pure, answers.error, answers.failure

    def at(log_slack: float) -> float:
        slack = math.exp(log_slack)
        return accuracy_distance(epsilon, error(failure * slack), slack, 0.0)

    floor = accuracy_distance(epsilon, error(failure), 0.0, 0.0)
    return smallest_value(at, *_RANGE) if floor < answers.below else floor


def _accuracy_approximate(answers: PrivateAnswers) -> float:
    """Search with a quick epsilon; the exact one is computed once, at the best slack and loss."""
    pure, rho = answers.loss.pure, answers.loss.rho
    error, failure = answers.error, answers.failure

    def roughly(log_loss: float) -> float:
        return min(pure, simple_epsilon(rho, failure * math.exp(log_loss) / 2))

    def best_slack(epsilon: float, share: float) -> float:
        def at(log_slack: float) -> float:
            slack = math.exp(log_slack)
            return accuracy_distance(epsilon, error(failure * slack / 2), slack, share)

        return math.exp(best_argument(at, *_RANGE, 20))

    # Slack and loss stand in different terms of a sum, so the best loss is that of any slack.
    slack = best_slack(0.0, 0.0)
    noise = error(failure * slack / 2)
    log_loss = best_argument(
        lambda log: accuracy_distance(roughly(log), noise, slack, math.exp(log)), *_RANGE, 20
    )
    share = math.exp(log_loss)
    slack = best_slack(roughly(log_loss), share)
    noise = error(failure * slack / 2)
    floor = accuracy_distance(0.0, noise, slack, share)
    if floor >= answers.below:
        return floor
    return accuracy_distance(answers.loss.at(failure * share / 2), noise, slack, share)
