r"""The Ladder's own theorem (Blum and Hardt 2015, arXiv 1502.04585)."""

import math

from torch_holdout._shared.checks import (
    require_between,
    require_failure,
    require_units,
    require_whole,
)
from torch_holdout._shared.numeric_search import best_argument


def ladder_error(units: int, queries: int, step: float, failure: float) -> float:
    r"""Return the largest distance between the Ladder's best and the best true value.

    .. math:: P\left(\exists t: |\min_{i \le t} P_i - R_t| > e + \eta\right)
        \le \exp\left(-2e^2 n + (1/\eta + 2)\ln(4m/\eta) + 1\right)

    for step eta and m queries, solved for :math:`e + \eta`. It speaks of the best value so far
    only, and it does not grow with the number of releases. It is about a Ladder that rounds to
    multiples of its step, without noise; ``th.Ladder`` is certified by counting. Vacuous when 1 or
    more.

    Example:
        >>> round(ladder_error(10_000, 50, step=0.02, failure=0.05), 3)
        0.175
    """
    require_units(units)
    require_whole("queries", queries, 1, 2**62)
    require_between("step", step, 0, 1, ends=False)
    require_failure(failure)
    paths = (1 / step + 2) * math.log(4 * queries / step) + 1
    return math.sqrt((paths + math.log(1 / failure)) / (2 * units)) + step


def ladder_best_step(units: int, queries: int, failure: float) -> float:
    """Return the step with the smallest ``ladder_error``; fix it before the first query.

    Example:
        >>> step = ladder_best_step(10_000, 50, 0.05)
        >>> round(ladder_error(10_000, 50, step, 0.05), 3)
        0.147
    """
    ladder_error(units, queries, 0.5, failure)
    return math.exp(
        best_argument(lambda x: ladder_error(units, queries, math.exp(x), failure), -16.0, -0.05)
    )
