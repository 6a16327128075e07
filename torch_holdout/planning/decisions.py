"""Plans for sealed runs: what closing will certify if nothing but decisions is shown before."""

import math

from torch_holdout.bounds.brackets import hoeffding_tolerance
from torch_holdout.bounds.certificate import ASSUMPTIONS, COVERS, Certificate
from torch_holdout.bounds.sealed_runs import evaluation_bracket, stop_price
from torch_holdout.mechanisms.base import DEFAULT_RESOLUTION

SEALED = "sealed runs: one share for each run and evaluation, nothing said before closing"
_QUANTISATION = 0.5 / DEFAULT_RESOLUTION


def sealed_tolerance(
    size: int, evaluations: int, failure: float, *, runs: int, statistics: int, stops: int = 0
) -> float:
    """Return how far the last planned evaluation of the last planned run may be off.

    All evaluations before it are within that too. ``stops`` is the number of earlier runs whose
    stop epoch was shown; each is charged at its highest price.

    Example:
        >>> facts = {"size": 10_000, "evaluations": 200, "failure": 0.05, "statistics": 1}
        >>> [round(sealed_tolerance(runs=runs, **facts), 4) for runs in (1, 20)]
        [0.0214, 0.0247]
        >>> round(sealed_tolerance(runs=20, stops=19, **facts), 3)
        0.08
    """
    bracket = _bracket(evaluations, failure, runs, statistics, stops)
    return hoeffding_tolerance(bracket, size) + _QUANTISATION


def sealed_size(
    tolerance: float, evaluations: int, failure: float, *, runs: int, statistics: int
) -> int | None:
    """Return the smallest holdout whose ``sealed_tolerance`` is within ``tolerance``; None: none.

    Example:
        >>> facts = {"evaluations": 200, "failure": 0.05, "runs": 1, "statistics": 1}
        >>> size = sealed_size(0.05, **facts)
        >>> size, sealed_tolerance(size, **facts) <= 0.05 < sealed_tolerance(size - 1, **facts)
        (1830, True)
    """
    room = tolerance - _QUANTISATION
    if room <= 0:
        return None
    return math.ceil(_bracket(evaluations, failure, runs, statistics) / (2 * room**2))


def sealed_certificate(
    size: int, evaluations: int, failure: float, *, runs: int, statistics: int
) -> Certificate:
    """Return what closing will certify of every evaluation of the planned runs.

    Example:
        >>> claim = sealed_certificate(10_000, 200, 0.05, runs=1, statistics=2)
        >>> round(claim.tolerance, 4), claim.guess_tolerance
        (0.0222, None)
    """
    tolerance = sealed_tolerance(size, evaluations, failure, runs=runs, statistics=statistics)
    return Certificate(
        tolerance=tolerance,
        guess_tolerance=None,
        user_tolerance={f"statistic {k + 1}": tolerance for k in range(statistics)},
        user_guess_tolerance={},
        failure=failure,
        releases=runs * evaluations,
        theorem=SEALED,
        covers=COVERS,
        assumptions=ASSUMPTIONS,
    )


def _bracket(evaluations: int, failure: float, runs: int, statistics: int, stops: int = 0) -> float:
    return evaluation_bracket(
        failure=failure,
        run=runs,
        runs=runs,
        evaluation=evaluations,
        evaluations=evaluations,
        statistics=statistics,
        others=stops * stop_price(evaluations, evaluations) if stops else 0.0,
    )
