r"""What the transfer theorems certify for noisy answers, with every share chosen in advance.

Each theorem turns the privacy of all answers together (a sparse vector with a = 1/(u sigma) and a
budget B: 2B mechanisms of a each) into a distance between holdout and population; the noise of the
answer comes on top. The failure probability is divided so that the sum is smallest, from registered
parameters alone, and every division is valid.
"""

import math
from collections.abc import Callable

from torch_holdout._shared.checks import (
    require_failure,
    require_units,
)
from torch_holdout._shared.numeric_search import best_argument, smallest_value, smallest_where
from torch_holdout.accounting.loss import PrivacyLoss
from torch_holdout.bounds.max_information import information_of_pure_iid, information_tolerance
from torch_holdout.bounds.transfer import (
    accuracy_transfer,
    information_mse,
    monitor_tolerance,
    pure_tolerance,
)

Error = Callable[[float], float]


def by_pure_privacy(units: int, loss: PrivacyLoss, error: Error, failure: float) -> float:
    """Return the tolerance by Corollary 2.3.1 and ``error(beta)``, the noise of all answers.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.002 * math.log(5 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.002), count=10),))
        >>> round(by_pure_privacy(10_000, loss, noise, 0.05), 3)
        0.509
    """
    _require(units, failure)
    return _best_share(
        lambda share: (
            pure_tolerance(loss.pure, units, share * failure) + error((1 - share) * failure)
        )
    )


def by_max_information(units: int, loss: PrivacyLoss, error: Error, failure: float) -> float:
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
        bits = information_of_pure_iid(epsilon, units, share * failure / 2)
        sampling = information_tolerance(units, bits, share * failure / 2)
        return sampling + error((1 - share) * failure)

    return _best_share(at)


def by_monitor(units: int, loss: PrivacyLoss, error: Error, failure: float) -> float:
    """Return the tolerance by Bassily et al. (Theorem 1.2); infinite outside its range.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.05 * math.log(5 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.05), count=10),))
        >>> round(by_monitor(10_000, loss, noise, 0.05), 3)
        0.591
    """
    _require(units, failure)
    pure = loss.pure

    def at(share: float) -> float:
        transfer = share * failure
        smallest = math.sqrt(max(12.0, 8 * math.log(1 / transfer)) / units)

        def private(epsilon: float) -> bool:
            delta = min(transfer * epsilon / 4, epsilon / 16)
            return epsilon >= pure or loss.roughly_at(delta) <= epsilon

        epsilon = smallest_where(private, smallest, 1 / 8) if smallest <= 1 / 8 else math.inf
        distance, _ = monitor_tolerance(epsilon, 0.0, units)
        return distance + error((1 - share) * failure)

    return _best_share(at)


def by_accuracy(units: int, loss: PrivacyLoss, error: Error, failure: float) -> float:
    """Return the tolerance by Jung et al., pure or at the best delta.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.02 * math.log(5 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.02), count=10),))
        >>> round(by_accuracy(10_000, loss, noise, 0.05), 3)
        0.242
    """
    _require(units, failure)

    def pure(log_slack: float) -> float:
        slack = math.exp(log_slack)
        distance, _ = accuracy_transfer(
            loss.pure, 0.0, error=error(failure * slack), error_failure=0, slack=slack, loss=0
        )
        return distance

    def approximate(log_slack: float, log_loss: float, exact: bool = False) -> float:
        slack, share = math.exp(log_slack), math.exp(log_loss)
        delta = failure * share / 2
        epsilon = loss.at(delta) if exact else loss.roughly_at(delta)
        distance, _ = accuracy_transfer(
            epsilon, 0.0, error=error(failure * slack / 2), error_failure=0, slack=slack, loss=share
        )
        return distance

    def best_slack(log_loss: float) -> float:
        return best_argument(lambda log_slack: approximate(log_slack, log_loss), -20.0, -0.1, 20)

    best = best_argument(
        lambda log_loss: approximate(best_slack(log_loss), log_loss), -20.0, -0.1, 20
    )
    return min(smallest_value(pure, -20.0, -0.1), approximate(best_slack(best), best, exact=True))


def by_mutual_information(units: int, loss: PrivacyLoss, error: Error, failure: float) -> float:
    """Return the tolerance by Rogers et al.: the worst query's mean square, then Chebyshev.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> noise = lambda beta: 0.005 * math.log(5 / beta)
        >>> loss = PrivacyLoss((Pure(1 / (10_000 * 0.005), count=10),))
        >>> round(by_mutual_information(10_000, loss, noise, 0.05), 3)
        0.191
    """
    _require(units, failure)
    square = information_mse(loss.rho * units, units)
    return _best_share(
        lambda share: math.sqrt(square / (share * failure)) + error((1 - share) * failure)
    )


THEOREMS: dict[str, Callable[[int, PrivacyLoss, Error, float], float]] = {
    "pure privacy (Dwork et al. 2015)": by_pure_privacy,
    "max-information (Dwork et al. 2015)": by_max_information,
    "approximate privacy (Bassily et al. 2016)": by_monitor,
    "sample accuracy and privacy (Jung et al. 2020)": by_accuracy,
    "mutual information (Rogers et al. 2020)": by_mutual_information,
}


def best_theorem(units: int, loss: PrivacyLoss, error: Error, failure: float) -> tuple[float, str]:
    """Return the smallest tolerance of these theorems and its name; infinite without noise.

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
    found = {name: by(units, loss, error, failure) for name, by in THEOREMS.items()}
    name = min(found, key=lambda key: found[key])
    return found[name], name


def _best_share(at: Callable[[float], float]) -> float:
    return smallest_value(lambda logit: at(1 / (1 + math.exp(-logit))), -8.0, 8.0)


def _require(units: int, failure: float) -> None:
    require_units(units)
    require_failure(failure)
