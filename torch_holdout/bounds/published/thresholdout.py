r"""Thresholdout as its authors state it (arXiv 1506.02629), with the misprints corrected.

Numbers of lemmas and theorems are those of M. Lee, "Differential Privacy For Adaptive Queries".

Valid, and far from tight: below a million examples Theorem 3.3 certifies nothing. What this library
certifies with is transcript counting.
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
from torch_holdout._shared.numeric_search import smallest_where
from torch_holdout.accounting.compose import compose_advanced


@formula
def thresholdout_epsilon(
    budget: int, sigma: float, units: int, delta: float | None = None
) -> float:
    r"""Return the epsilon of Lemma 3.2.

    Pure: :math:`2B/(\sigma n)`. At delta: :math:`\sqrt{32 B \ln(2/\delta)}/(\sigma n)`, about twice
    what exact composition gives (``accounting.epsilon_cap``). The closed form stands for advanced
    composition of B rounds of :math:`2/(\sigma n)` and is smaller than that when a round costs
    much; there it is not a bound and the pure value is returned.

    Example:
        >>> thresholdout_epsilon(100, 0.01, 10_000)
        2.0
        >>> round(thresholdout_epsilon(1000, 0.01, 10_000, delta=1e-6), 2)
        6.81
    """
    require_whole("budget", budget, 1, 2**62)
    require_between("sigma", sigma, 0, math.inf, ends=False)
    require_units(units)
    pure = 2 * budget / (sigma * units)
    if delta is None:
        return pure
    require_between("delta", delta, 0, 1, ends=False)
    closed = math.sqrt(32 * budget * math.log(2 / delta)) / (sigma * units)
    per_round = 2 / (sigma * units)
    proved = per_round < 700 and compose_advanced(per_round, budget, delta)[0] <= closed
    return closed if proved else pure


@formula
def thresholdout_size_pure(budget: int, sigma: float, tolerance: float, failure: float) -> float:
    r"""Return :math:`n_0 = \max(2B/(\sigma\tau), \ln(6/\beta)/\tau^2)`.

    That many examples keep one query, chosen through B releases, within tau (Lemma 3.2 and
    Corollary 2.3.1).

    Example:
        >>> round(thresholdout_size_pure(20, 0.01, 0.1, 0.05))
        40000
    """
    _require(budget, sigma, tolerance, failure)
    return max(2 * budget / (sigma * tolerance), math.log(6 / failure) / tolerance**2)


@formula
def thresholdout_size_approximate(
    budget: int, sigma: float, tolerance: float, failure: float
) -> float:
    r"""Return :math:`n_1`, the same by approximate privacy (Theorem 2.4, up to 2/3).

    .. math:: n_1 = \max\left(\frac{4}{\sigma\tau}\sqrt{32 B\left(\ln 2 + \frac{4}{\tau}
        \ln\frac{8}{\beta}\right)},\; \frac{48 \ln(8/\beta)}{\tau^2}\right)

    Example:
        >>> round(thresholdout_size_approximate(1000, 0.01, 0.1, 0.05))
        10212465
    """
    require_tolerance(tolerance, 2 / 3)
    _require(budget, sigma, tolerance, failure)
    log_delta = 4 / tolerance * math.log(8 / failure)
    private = 4 / (sigma * tolerance) * math.sqrt(32 * budget * (math.log(2) + log_delta))
    return max(private, 48 * math.log(8 / failure) / tolerance**2)


@final
@dataclass(frozen=True)
class ThresholdoutPlan:
    """The parameters and sizes of Theorem 3.3.

    Example:
        >>> plan = thresholdout_plan(tolerance=0.1, failure=0.05, queries=1000, budget=20)
        >>> isinstance(plan, ThresholdoutPlan), math.ceil(plan.size)
        (True, 34682211)
    """

    threshold: float
    sigma: float
    size_pure: float
    size_approximate: float

    @property
    def size(self) -> float:
        """The smaller of the two sufficient sizes."""
        return min(self.size_pure, self.size_approximate)


@formula
def thresholdout_plan(
    *, tolerance: float, failure: float, queries: int, budget: int
) -> ThresholdoutPlan:
    r"""Return the parameters of Theorem 3.3: m queries, answers within tau while Z < B.

    :math:`T = 3\tau/4`, :math:`\sigma = \tau/(96\ln(4m/\beta))`, and n at least the smaller of
    :math:`n_0` and :math:`n_1` at :math:`(\tau/8, \beta/(2m))`. :math:`Z_i` counts the queries up
    to i whose *training* value is more than :math:`\tau/2` from the population; the theorem speaks
    of every answer before that count reaches B.

    Example:
        >>> plan = thresholdout_plan(tolerance=0.1, failure=0.05, queries=1000, budget=20)
        >>> round(plan.threshold, 3), f"{plan.sigma:.4e}", math.ceil(plan.size_pure)
        (0.075, '9.2266e-05', 34682211)
    """
    require_whole("queries", queries, 1, 2**62)
    require_failure(failure)
    require_tolerance(tolerance)
    sigma = tolerance / (96 * math.log(4 * queries / failure))
    inner = (budget, sigma, tolerance / 8, failure / (2 * queries))
    sizes = thresholdout_size_pure(*inner), thresholdout_size_approximate(*inner)
    return ThresholdoutPlan(0.75 * tolerance, sigma, *sizes)


@formula
def thresholdout_tolerance(units: int, *, failure: float, queries: int, budget: int) -> float:
    """Return the smallest tolerance that Theorem 3.3 gives for a holdout; infinite if none below 1.

    Example:
        >>> round(thresholdout_tolerance(1_000_000, failure=0.05, queries=1000, budget=20), 3)
        0.589
        >>> thresholdout_tolerance(10_000, failure=0.05, queries=1000, budget=20)
        inf
    """
    require_units(units)

    def suffices(tolerance: float) -> bool:
        plan = thresholdout_plan(
            tolerance=tolerance, failure=failure, queries=queries, budget=budget
        )
        return plan.size <= units

    return smallest_where(suffices, 0.0, 1.0)


def _require(budget: int, sigma: float, tolerance: float, failure: float) -> None:
    require_whole("budget", budget, 1, 2**62)
    require_between("sigma", sigma, 0, math.inf, ends=False)
    require_tolerance(tolerance)
    require_failure(failure)
