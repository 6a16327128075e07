"""Before a run: which mechanism, how many runs or releases, and what they will be worth."""

import math
from dataclasses import replace
from typing import Any

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
from torch_holdout.accounting import compose
from torch_holdout.bounds.certificate import SMALLEST_FAILURE, Certificate
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import Mechanism, Sealed
from torch_holdout.planning.decisions import sealed_certificate
from torch_holdout.planning.explanation import explain_runs, explain_values, not_lasting
from torch_holdout.planning.setting import LARGEST, PURPOSES, Plan, PlanPurpose, Setting


@formula
def plan(
    *,
    size: int | None = None,
    queries: int,
    failure: float = 0.05,
    runs: int | None = None,
    budget: int | None = None,
    tolerance: float | None = None,
    purpose: PlanPurpose = "early-stopping",
    delta: float | None = None,
    statistics: int = 1,
) -> Plan:
    """Choose mechanism, budget and stopping parameters for a holdout.

    ``runs`` plans decisions: sealed runs, which show when they stop and no value before closing;
    without any of ``runs``, ``budget`` and ``tolerance`` it is one run. ``budget`` or ``tolerance``
    plans values that are shown while training goes on: with ``tolerance`` alone the largest budget
    that keeps it, unless a steep start would spend that; without ``size`` the smallest holdout for
    ``tolerance``. Nothing is read and nothing is charged.

    Args:
        size: Holdout examples.
        queries: For decisions the evaluations of a run. For values how many queries are expected
            (epochs, trials; times statistics); more may be asked later, at a somewhat worse
            certificate.
        failure: Probability that the certificate is wrong.
        runs: Sealed runs.
        budget: Releases of values.
        tolerance: Wanted distance to the population value, normalised.
        purpose: What values are for: ``"early-stopping"`` (a Ladder: best value so far),
            ``"search"`` (a Ladder for independent trials) or ``"curve"`` (Thresholdout against the
            last release: the whole curve).
        delta: State epsilon at this delta; None for pure.
        statistics: How many the holdout has; they share the budget, and each evaluation is one
            query for each of them.

    Example:
        >>> made = plan(size=10_000, queries=200)
        >>> made.mechanism, made.budget, round(made.certificate.tolerance, 3)
        (Sealed(evaluations=200, epsilon=None), 1, 0.021)
        >>> made = plan(size=10_000, queries=200, budget=20)
        >>> made.mechanism, round(made.certificate.tolerance, 3)
        (Ladder(step=0.005, sigma=0.0), 0.082)
        >>> plan(queries=200, budget=20, tolerance=0.05).size
        29327
    """
    setting = _setting(queries, failure, purpose, statistics)
    if tolerance is not None:
        require_tolerance(tolerance)
        tolerance = float(tolerance)
    if delta is not None:
        require_between("delta", delta, 0, 1, ends=False)
        delta = float(delta)
    given = {"size": size, "runs": runs, "budget": budget}
    whole = {name: None if n is None else _whole(name, n) for name, n in given.items()}
    arguments = whole | {
        "queries": setting.queries,
        "failure": setting.failure,
        "tolerance": tolerance,
        "purpose": purpose,
        "statistics": setting.statistics,
    }
    setting = replace(setting, delta=delta)
    if budget is None and tolerance is None:
        return _plan_of_runs(setting, whole["size"], whole["runs"], arguments)
    if runs is not None:
        raise InvalidArgumentError(
            "Expected `runs` (decisions) or `budget` and `tolerance` (values), but got both. A "
            "sealed run shows no values: give runs= alone, or leave it out."
        )
    return _plan_of_values(setting, whole["size"], whole["budget"], tolerance, arguments)


def _plan_of_runs(
    setting: Setting, size: int | None, runs: int | None, arguments: dict[str, Any]
) -> Plan:
    if size is None:
        raise InvalidArgumentError(
            "Expected `size` (how many holdout examples), or `tolerance` to find the size for."
        )
    setting, evaluations = replace(setting, size=size), setting.queries
    facts = {"runs": runs or 1, "statistics": setting.statistics}
    made = Plan(
        mechanism=Sealed(evaluations=evaluations),
        budget=runs or 1,
        certificate=sealed_certificate(size, evaluations, setting.failure, **facts),
        epsilon=math.inf,
        min_delta=0.0,
        patience=max(3, math.ceil(evaluations / 20)),
        explanation="",
        size=size,
        queries=evaluations,
        purpose=setting.purpose,
        grid=setting.grid,
        delta=setting.delta,
        statistics=setting.statistics,
        arguments=arguments,
    )
    return replace(made, explanation=explain_runs(made, setting))


def _plan_of_values(
    setting: Setting,
    size: int | None,
    budget: int | None,
    tolerance: float | None,
    arguments: dict[str, Any],
) -> Plan:
    setting = replace(setting, size=size or _needed_size(setting, tolerance, budget))
    lasting, refusal = setting.lasting_budget, None
    if budget is None and tolerance is not None:
        kept = setting.largest_budget(tolerance)
        budget = max(kept, lasting)
        if kept < lasting:
            refusal = not_lasting(setting, tolerance, kept)
    budget = budget or lasting
    mechanism = setting.mechanism(budget)
    made = Plan(
        mechanism=mechanism,
        budget=budget,
        certificate=setting.certificate(budget),
        epsilon=compose(mechanism.budget_charges({setting.size}, budget), setting.delta).epsilon,
        min_delta=0.5 / setting.grid,  # less than any published change, more than rounding
        # A released value is better by a step: waiting for one takes longer than for any change.
        patience=max(3, math.ceil(setting.evaluations / 4)),
        explanation="",
        size=setting.size,
        queries=setting.queries,
        purpose=setting.purpose,
        grid=setting.grid,
        delta=setting.delta,
        tolerance=tolerance,
        statistics=setting.statistics,
        arguments=arguments,
        refusal=refusal,
    )
    return replace(made, explanation=explain_values(made, setting))


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
    purpose has, on a grid of 4 sqrt(size) intervals, rounded up, unless ``grid`` is given.

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
        4347
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


def _needed_size(setting: Setting, tolerance: float | None, budget: int | None) -> int:
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
