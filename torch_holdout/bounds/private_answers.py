r"""What the transfer theorems certify for noisy answers, with every share chosen in advance.

Each theorem turns the privacy of all answers together (a sparse vector with a = 1/(u sigma) and a
budget B: 2B mechanisms of a each) into a distance between holdout and population; the noise of the
answer comes on top. The failure probability is divided so that the sum is smallest, from registered
parameters alone, and every division is valid.

A theorem that cannot come ``below`` a given distance returns its floor, a value that none of its
divisions is under, instead of searching.
"""

import math
from collections.abc import Callable
from typing import Protocol

from torch_holdout._shared.checks import (
    require_failure,
    require_units,
)
from torch_holdout._shared.numeric_search import best_argument, smallest_value, smallest_where
from torch_holdout.accounting.compose import PrivacyLoss
from torch_holdout.accounting.rdp import simple_epsilon
from torch_holdout.bounds.max_information import bits_of_pure_iid, information_distance
from torch_holdout.bounds.transfer import (
    LARGEST_MONITORED,
    accuracy_distance,
    information_mse,
    pure_distance,
)

Error = Callable[[float], float]
_RANGE = (-20.0, -0.1)  # logarithms of a slack or a loss


def by_pure_privacy(
    units: int, loss: PrivacyLoss, error: Error, failure: float, below: float = math.inf
) -> float:
    """Return the tolerance by Corollary 2.3.1 and ``error(beta)``, the noise of all answers.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.002 * math.log(5 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.002), count=10),))
        >>> round(by_pure_privacy(10_000, loss, noise, 0.05), 3)
        0.509
    """
    _require(units, failure)
    epsilon = loss.pure

    def at(share: float) -> float:
        return pure_distance(epsilon, units, share * failure) + error((1 - share) * failure)

    floor = pure_distance(epsilon, units, failure) + error(failure)
    return _best_share(at) if floor < below else floor


def by_max_information(
    units: int, loss: PrivacyLoss, error: Error, failure: float, below: float = math.inf
) -> float:
    """Return the tolerance by max-information of independent examples.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.01 * math.log(5 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.01), count=10),))
        >>> round(by_max_information(10_000, loss, noise, 0.05), 3)
        0.108
    """
    _require(units, failure)
    epsilon = loss.pure

    def at(share: float) -> float:
        # Half of the share for the information, half for Hoeffding.
        return sampling(share * failure / 2) + error((1 - share) * failure)

    def sampling(half: float) -> float:
        return information_distance(units, bits_of_pure_iid(epsilon, units, half), half)

    floor = sampling(failure / 2) + error(failure)
    return _best_share(at) if floor < below else floor


def by_monitor(
    units: int, loss: PrivacyLoss, error: Error, failure: float, below: float = math.inf
) -> float:
    """Return the tolerance by Bassily et al. (Theorem 1.2); infinite outside its range.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.05 * math.log(5 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.05), count=10),))
        >>> round(by_monitor(10_000, loss, noise, 0.05), 3)
        0.591
    """
    _require(units, failure)
    pure, rho = loss.pure, loss.rho

    def smallest(transfer: float) -> float:
        return math.sqrt(max(12.0, 8 * math.log(1 / transfer)) / units)

    def epsilon(transfer: float) -> float:
        def private(epsilon: float) -> bool:
            delta = min(transfer * epsilon / 4, epsilon / 16)
            return epsilon >= pure or simple_epsilon(rho, delta) <= epsilon

        return smallest_where(private, smallest(transfer), LARGEST_MONITORED)

    def at(share: float) -> float:
        transfer = share * failure
        if smallest(transfer) > LARGEST_MONITORED:
            return math.inf
        return 6 * epsilon(transfer) + error((1 - share) * failure)

    least = smallest(failure)
    floor = 6 * least + error(failure) if least <= LARGEST_MONITORED else math.inf
    return _best_share(at) if floor < below else floor


def by_accuracy(
    units: int, loss: PrivacyLoss, error: Error, failure: float, below: float = math.inf
) -> float:
    """Return the tolerance by Jung et al., pure or at the best delta.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.02 * math.log(5 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.02), count=10),))
        >>> round(by_accuracy(10_000, loss, noise, 0.05), 3)
        0.242
    """
    _require(units, failure)
    pure = _accuracy_pure(loss.pure, error, failure, below)
    return min(pure, _accuracy_approximate(loss, error, failure, below))


def by_mutual_information(
    units: int, loss: PrivacyLoss, error: Error, failure: float, below: float = math.inf
) -> float:
    """Return the tolerance by Rogers et al.: the worst query's mean square, then Chebyshev.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.005 * math.log(5 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.005), count=10),))
        >>> round(by_mutual_information(10_000, loss, noise, 0.05), 3)
        0.191
    """
    _require(units, failure)
    rho = loss.rho
    # The mean square is at least 2I/(4n), of I = rho n nats.
    floor = math.sqrt(rho / 2 / failure) + error(failure)
    if floor >= below:
        return floor
    square = information_mse(rho * units, units)
    return _best_share(
        lambda share: math.sqrt(square / (share * failure)) + error((1 - share) * failure)
    )


class Theorem(Protocol):
    """What the functions above have in common."""

    def __call__(
        self,
        units: int,
        loss: PrivacyLoss,
        error: Error,
        failure: float,
        below: float = math.inf,
    ) -> float:
        """Return a tolerance, or a floor of it that is not ``below``."""
        ...


THEOREMS: dict[str, Theorem] = {
    "pure privacy (Dwork et al. 2015)": by_pure_privacy,
    "max-information (Dwork et al. 2015)": by_max_information,
    "approximate privacy (Bassily et al. 2016)": by_monitor,
    "sample accuracy and privacy (Jung et al. 2020)": by_accuracy,
    "mutual information (Rogers et al. 2020)": by_mutual_information,
}


def best_theorem(
    units: int, loss: PrivacyLoss, error: Error, failure: float, below: float = math.inf
) -> tuple[float, str]:
    """Return the smallest tolerance of these theorems and its name; infinite without noise.

    A result that is not ``below`` the given distance may be too small, but is never below it.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.01 * math.log(1000 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (1e6 * 0.01), count=2000),))
        >>> tolerance, theorem = best_theorem(1_000_000, loss, noise, 0.05)
        >>> theorem
        'mutual information (Rogers et al. 2020)'
    """
    if math.isinf(loss.rho):
        return math.inf, "none: without noise nothing is private"
    tolerances = {name: by(units, loss, error, failure, below) for name, by in THEOREMS.items()}
    name = min(tolerances, key=lambda key: tolerances[key])
    return tolerances[name], name


def _accuracy_pure(epsilon: float, error: Error, failure: float, below: float) -> float:
    def at(log_slack: float) -> float:
        slack = math.exp(log_slack)
        return accuracy_distance(epsilon, error(failure * slack), slack, 0.0)

    floor = accuracy_distance(epsilon, error(failure), 0.0, 0.0)
    return smallest_value(at, *_RANGE) if floor < below else floor


def _accuracy_approximate(loss: PrivacyLoss, error: Error, failure: float, below: float) -> float:
    """Search with a quick epsilon; the exact one is computed once, at the best slack and loss."""
    pure, rho = loss.pure, loss.rho

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
    if floor >= below:
        return floor
    return accuracy_distance(loss.at(failure * share / 2), noise, slack, share)


def _best_share(at: Callable[[float], float]) -> float:
    return smallest_value(lambda logit: at(1 / (1 + math.exp(-logit))), -8.0, 8.0)


def _require(units: int, failure: float) -> None:
    require_units(units)
    require_failure(failure)
