"""Before a run: which mechanism, how many releases, and what they will be worth."""

from dataclasses import dataclass, field
from numbers import Real
from typing import Any, final

from torch_holdout._shared.checks import (
    plain_whole,
    require_between,
    require_choice,
    require_failure,
    require_instance,
    require_tolerance,
    require_whole,
)
from torch_holdout._shared.numeric_search import largest_whole
from torch_holdout._shared.text import USELESS, up
from torch_holdout.bounds.certificate import SMALLEST_FAILURE, Certificate
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import Mechanism
from torch_holdout.mechanisms.base import LARGEST_EPSILON
from torch_holdout.planning.explanation import Draft
from torch_holdout.planning.setting import (
    LARGEST_BUDGET,
    LARGEST_QUERIES,
    LARGEST_SIZE,
    PURPOSES,
    PlanPurpose,
    Setting,
    needed_size,
)

DEFAULT_BUDGET = 20


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a holdout of ``size`` examples is to be used with, and what that buys.

    ``ReusableHoldout(url, name=..., statistics=..., plan=plan)`` takes it. With as many statistics
    as planned, each a mean over the whole holdout at the default resolution, the account's own
    certificate is never wider than this one until ``queries`` have been asked.

    Attributes:
        mechanism: With its parameters, in normalised units.
        budget: Releases.
        certificate: However they are spent in ``queries`` queries.
        epsilon: What they cost, at ``delta``, replacing one example.
        min_delta: For EarlyStopping, normalised: multiply by the statistic's range.
        patience: For EarlyStopping: evaluations without an improvement.
        explanation: One sentence for each of these, what is not reached and what would help.
        size: Examples.
        queries: Planned; more may be asked.
        purpose: What it is for.
        grid: Number of answer intervals.
        delta: At which delta epsilon is stated, None for pure.
        tolerance: What was asked for, if anything.
        statistics: How many share the budget; each evaluation is one query for each of them.

    Example:
        >>> made = plan(size=10_000, queries=200, budget=20)
        >>> isinstance(made, Plan), type(made.mechanism).__name__, made.useful
        (True, 'Ladder', True)
    """

    mechanism: Mechanism
    budget: int
    certificate: Certificate
    epsilon: float
    min_delta: float
    patience: int
    explanation: str = field(repr=False)
    size: int
    queries: int
    purpose: PlanPurpose
    grid: int
    delta: float | None = None
    tolerance: float | None = None
    statistics: int = 1

    @property
    def useful(self) -> bool:
        """Whether the certificate says something, and as much as was asked for."""
        return self.certificate.tolerance <= (self.tolerance or USELESS)

    def __str__(self) -> str:
        return self.explanation


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
    queries, failure, statistics = _checked(queries, failure, purpose, statistics)
    budget, tolerance, delta = _checked_options(budget, tolerance, delta)
    assumed = budget is None and (size is None or tolerance is None)
    usual = min(DEFAULT_BUDGET, queries)
    if size is None:
        if tolerance is None:
            raise InvalidArgumentError(
                "Expected `size` (how many holdout examples), or `tolerance` to find the size for."
            )
        budget = usual if budget is None else budget
        size = required_holdout_size(
            tolerance=tolerance,
            queries=queries,
            budget=budget,
            failure=failure,
            purpose=purpose,
            statistics=statistics,
        )
    size = _whole("size", size, LARGEST_SIZE)
    setting = Setting(size, queries, purpose, statistics)
    if budget is None:
        budget = usual if tolerance is None else max(1, setting.fitting(failure, tolerance))
    epsilon = setting.epsilon(budget, delta)
    if epsilon > LARGEST_EPSILON:
        raise InvalidArgumentError(
            f"Expected a `budget` that a holdout can be made with, but {budget} releases with the "
            f"little noise that suits {size} examples cost epsilon {up(epsilon)}, above "
            f"{LARGEST_EPSILON:g}. Use fewer releases or more examples."
        )
    claim = setting.certificate(budget, failure)
    draft = Draft(setting, budget, assumed, claim, epsilon, tolerance, delta)
    return Plan(
        mechanism=setting.mechanism,
        budget=budget,
        certificate=claim,
        epsilon=epsilon,
        min_delta=setting.min_delta,
        patience=draft.patience,
        explanation=draft.explanation(),
        size=size,
        queries=queries,
        purpose=purpose,
        grid=setting.grid,
        delta=delta,
        tolerance=tolerance,
        statistics=statistics,
    )


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

    Args:
        size: Holdout examples.
        queries: Evaluations in all.
        budget: Releases.
        failure: Probability that it is wrong.
        purpose: Which mechanism a plan would take; see ``plan``.
        mechanism: Another mechanism, instead.
        grid: Another number of answer intervals; None: from 4 sqrt(size) up.
        statistics: How many the holdout has.

    Example:
        >>> round(certificate(size=1000, queries=200, budget=20).tolerance, 2)
        0.26
    """
    queries, failure, statistics = _checked(queries, failure, purpose, statistics)
    size, budget = _whole("size", size, LARGEST_SIZE), _whole("budget", budget, LARGEST_BUDGET)
    grid = None if grid is None else _whole("grid", grid, 2**31)
    if mechanism is not None:
        require_instance("mechanism", mechanism, Mechanism)
    return Setting(size, queries, purpose, statistics, mechanism, grid).certificate(budget, failure)


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
    queries, failure, statistics = _checked(queries, failure, purpose, statistics)
    budget = _whole("budget", budget, LARGEST_BUDGET)
    require_tolerance(tolerance)
    size = needed_size(tolerance, queries, budget, failure, purpose, statistics)
    if size is None:
        raise InvalidArgumentError(
            f"Expected a `tolerance` that some holdout can reach, but got {tolerance!r}: even "
            f"{LARGEST_SIZE:g} examples do not suffice."
        )
    return size


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
    _, failure, statistics = _checked(1, failure, purpose, statistics)
    size, budget = _whole("size", size, LARGEST_SIZE), _whole("budget", budget, LARGEST_BUDGET)
    require_tolerance(tolerance)

    def holds(queries: int) -> bool:
        setting = Setting(size, queries, purpose, statistics)
        return setting.certificate(budget, failure).tolerance <= tolerance

    return largest_whole(holds, 1, LARGEST_QUERIES) or 0


def planned_arguments(given: Plan | None, **arguments: Any) -> dict[str, Any]:
    """Fill a holdout's arguments from a plan; what is given twice must agree."""
    if given is None:
        missing = [name for name in ("size", "mechanism", "budget") if arguments[name] is None]
        if missing:
            raise InvalidArgumentError(
                f"Expected {', '.join(f'`{name}`' for name in missing)}, or plan=th.plan(...)."
            )
        return arguments
    require_instance("plan", given, Plan)
    for name, value in arguments.items():
        usable = isinstance(value, Real | Mechanism) and not isinstance(value, bool)
        if value is not None and not (usable and value == getattr(given, name)):
            raise InvalidArgumentError(
                f"Expected `{name}` to come from the plan ({getattr(given, name)!r}), but also got "
                f"{value!r}. Give one of them; a plan for other numbers is another plan."
            )
    return {name: getattr(given, name) for name in arguments} | {"planned": given.queries}


def _checked(queries: int, failure: float, purpose: str, statistics: int) -> tuple[int, float, int]:
    require_failure(failure, SMALLEST_FAILURE)
    require_choice("purpose", purpose, PURPOSES)
    return (
        _whole("queries", queries, LARGEST_QUERIES),
        float(failure),
        _whole("statistics", statistics, 1000),
    )


def _checked_options(
    budget: int | None, tolerance: float | None, delta: float | None
) -> tuple[int | None, float | None, float | None]:
    if tolerance is not None:
        require_tolerance(tolerance)
        tolerance = float(tolerance)
    if delta is not None:
        require_between("delta", delta, 0, 1, ends=False)
        delta = float(delta)
    return None if budget is None else _whole("budget", budget, LARGEST_BUDGET), tolerance, delta


def _whole(name: str, value: int, largest: int) -> int:
    plain = plain_whole(value)
    require_whole(name, plain, 1, largest)
    return int(value)
