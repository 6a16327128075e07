"""Before a run: which mechanism, how many releases, and what they will be worth."""

import math
from dataclasses import replace

from torch_holdout._shared.checks import (
    plain_whole,
    require_between,
    require_choice,
    require_failure,
    require_instance,
    require_tolerance,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout._shared.text import up
from torch_holdout.accounting import compose
from torch_holdout.bounds.certificate import SMALLEST_FAILURE, Certificate
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import Mechanism
from torch_holdout.mechanisms.base import LARGEST_EPSILON
from torch_holdout.planning.explanation import explanation
from torch_holdout.planning.setting import LARGEST, PURPOSES, Plan, PlanPurpose, Setting

DEFAULT_BUDGET = 20


@formula
def plan(
    *,
    size: int | None = None,
    queries: int,
    failure: float = 0.05,
    budget: int | None = None,
    tolerance: float | None = None,
    purpose: PlanPurpose = "early-stopping",
    delta: float | None = None,
    statistics: int = 1,
) -> Plan:
    """Choose mechanism, budget and stopping parameters for a holdout.

    Asked the other way round: without ``size`` it finds the smallest holdout for ``tolerance``;
    with ``tolerance`` and without ``budget`` the largest budget that keeps it. Without both the
    budget is 20. Nothing is read and nothing is charged.

    Args:
        size: Holdout examples.
        queries: How many evaluations are expected (epochs, trials; times statistics). More may be
            asked later, at a somewhat worse certificate.
        failure: Probability that the certificate is wrong.
        budget: Releases.
        tolerance: Wanted distance to the population value, normalised.
        purpose: ``"early-stopping"`` (a Ladder: best value so far), ``"search"`` (a Ladder for
            independent trials) or ``"curve"`` (Thresholdout against the last release: the whole
            curve).
        delta: State epsilon at this delta; None for pure.
        statistics: How many the holdout has; they share the budget, and each evaluation is one
            query for each of them.

    Example:
        >>> made = plan(size=10_000, queries=200, budget=20)
        >>> made.mechanism, round(made.certificate.tolerance, 3)
        (Ladder(step=0.0025, sigma=6.95...e-05), 0.087)
        >>> plan(queries=200, budget=20, tolerance=0.05).size
        32788
    """
    setting = _setting(queries, failure, purpose, statistics)
    if tolerance is not None:
        require_tolerance(tolerance)
        tolerance = float(tolerance)
    if delta is not None:
        require_between("delta", delta, 0, 1, ends=False)
        delta = float(delta)
    assumed = budget is None and (size is None or tolerance is None)
    usual = min(DEFAULT_BUDGET, setting.queries)
    if budget is not None:
        budget = _whole("budget", budget)
    if size is None:
        size = _needed_size(setting, tolerance, usual if budget is None else budget)
    setting = replace(setting, size=_whole("size", size))
    if budget is None:
        kept = None if assumed else tolerance
        budget = usual if kept is None else max(1, setting.largest_budget(kept))
    epsilon = compose(setting.mechanism.budget_charges({setting.size}, budget), delta).epsilon
    if epsilon > LARGEST_EPSILON:
        raise InvalidArgumentError(
            f"Expected a `budget` that a holdout can be made with, but {budget} releases with the "
            f"little noise that suits {setting.size} examples cost epsilon {up(epsilon)}, above "
            f"{LARGEST_EPSILON:g}. Use fewer releases or more examples."
        )
    made = Plan(
        mechanism=setting.mechanism,
        budget=budget,
        certificate=setting.certificate(budget),
        epsilon=epsilon,
        min_delta=0.5 / setting.grid,  # less than any published change, more than rounding
        # How many evaluations there are for each release, if they are spread evenly.
        patience=max(3, math.ceil(setting.queries / setting.statistics / budget)),
        explanation="",
        size=setting.size,
        queries=setting.queries,
        purpose=purpose,
        grid=setting.grid,
        delta=delta,
        tolerance=tolerance,
        statistics=setting.statistics,
    )
    return replace(made, explanation=explanation(made, setting, assumed))


@formula
def certificate(
    *,
    size: int,
    queries: int,
    budget: int,
    failure: float = 0.05,
    purpose: PlanPurpose = "early-stopping",
    mechanism: Mechanism | None = None,
    grid: int | None = None,
    statistics: int = 1,
) -> Certificate:
    """Return what all releases will be worth, however the budget is spent in ``queries`` queries.

    Arguments are those of ``plan``; ``mechanism`` takes the place of the one that a plan for the
    purpose has, ``grid`` (answer intervals) that of 4 sqrt(size), rounded up.

    Example:
        >>> round(certificate(size=1000, queries=200, budget=20).tolerance, 2)
        0.26
    """
    setting = _setting(queries, failure, purpose, statistics, size)
    budget = _whole("budget", budget)
    grid = None if grid is None else _whole("grid", grid)
    if mechanism is not None:
        require_instance("mechanism", mechanism, Mechanism)
    return replace(setting, given=mechanism, intervals=grid).certificate(budget)


@formula
def required_holdout_size(
    *,
    tolerance: float,
    queries: int,
    budget: int,
    failure: float = 0.05,
    purpose: PlanPurpose = "early-stopping",
    statistics: int = 1,
) -> int:
    """Return a holdout size whose ``certificate`` is within ``tolerance``; one less is not enough.

    Example:
        >>> size = required_holdout_size(tolerance=0.05, queries=200, budget=20)
        >>> certificate(size=size, queries=200, budget=20).tolerance <= 0.05
        True
        >>> certificate(size=size - 1, queries=200, budget=20).tolerance <= 0.05
        False
    """
    setting = _setting(queries, failure, purpose, statistics)
    budget = _whole("budget", budget)
    require_tolerance(tolerance)
    return _needed_size(setting, tolerance, budget)


@formula
def max_queries(
    *,
    size: int,
    tolerance: float,
    budget: int,
    failure: float = 0.05,
    purpose: PlanPurpose = "early-stopping",
    statistics: int = 1,
) -> int:
    """Return how many queries keep the ``certificate`` of a budget within ``tolerance``; 0 if none.

    Example:
        >>> max_queries(size=10_000, tolerance=0.1, budget=20)
        2141
        >>> max_queries(size=10_000, tolerance=0.01, budget=20)
        0
    """
    setting = _setting(1, failure, purpose, statistics, size)
    budget = _whole("budget", budget)
    require_tolerance(tolerance)
    return setting.most_queries(tolerance, budget)


def _setting(
    queries: int, failure: float, purpose: PlanPurpose, statistics: int, size: int = 1
) -> Setting:
    require_failure(failure, SMALLEST_FAILURE)
    require_choice("purpose", purpose, PURPOSES)
    return Setting(
        queries=_whole("queries", queries),
        failure=float(failure),
        purpose=purpose,
        statistics=_whole("statistics", statistics),
        size=_whole("size", size),
    )


def _needed_size(setting: Setting, tolerance: float | None, budget: int) -> int:
    if tolerance is None:
        raise InvalidArgumentError(
            "Expected `size` (how many holdout examples), or `tolerance` to find the size for."
        )
    size = setting.smallest_size(tolerance, budget)
    if size is None:
        raise InvalidArgumentError(
            f"Expected a `tolerance` that some holdout can reach, but got {tolerance!r}: even "
            f"{LARGEST['size']:g} examples do not suffice."
        )
    return size


def _whole(name: str, value: int) -> int:
    require_whole(name, plain_whole(value), 1, LARGEST[name])
    return int(value)
