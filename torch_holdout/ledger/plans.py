"""Accounts made from plans: each keeps what its plan chose, whatever a later planner would."""

import math
from typing import Any

from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import Ladder, Mechanism, Thresholdout

_CHOSEN = ("mechanism", "budget", "planned")
_DEFAULT_0_1_0 = 20  # releases, where neither budget nor size and tolerance were given


def as_planned(stored: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return what is given, with the stored choices if both come from the same plan arguments.

    What a plan chooses: mechanism, budget, grid, and the size if a tolerance was to find it. All
    else is compared as it is given. The arguments stand under ``"plan"``; accounts of version 0.1.0
    have none, and are known by what its planner chose. An account that was made by hand with the
    parameters of a plan is that plan's too.

    Example:
        >>> plan = {"size": 50, "queries": 10, "runs": 1}
        >>> stored = {"size": 50, "budget": 1, "statistics": {}, "plan": plan}
        >>> as_planned(stored, {"size": 50, "budget": 2, "statistics": {}, "plan": plan})["budget"]
        1
        >>> other = {"size": 50, "budget": 2, "statistics": {}, "plan": plan | {"runs": 2}}
        >>> as_planned(stored, other)["budget"]
        2
    """
    own = {name: value for name, value in given.items() if name != "plan"}
    arguments = given.get("plan")
    if arguments is not None and _comes_from(arguments, stored):
        own = {name: value for name, value in own.items() if name not in _CHOSEN}
        own |= {name: stored[name] for name in _CHOSEN if name in stored}
        own["size"] = stored["size"]
        own["statistics"] = {
            name: statistic | _chosen_parts(stored["statistics"], name, arguments)
            for name, statistic in given["statistics"].items()
        }
    return own | ({"plan": stored["plan"]} if "plan" in stored else {})


def _chosen_parts(stored: dict[str, Any], name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the grid, and the units of a size that was found; a new statistic has the others'."""
    own = stored.get(name)
    if own is None:
        grids = {statistic["grid"] for statistic in stored.values()}
        return {"grid": grids.pop()} if len(grids) == 1 else {}
    return {key: own[key] for key in (("grid",) if arguments["size"] else ("grid", "units"))}


def _comes_from(arguments: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Whether an account was created from a plan with these arguments."""
    if "plan" in stored:
        return bool(stored["plan"] == arguments)
    size, queries = stored["size"], arguments["queries"]
    if arguments["runs"] is not None or arguments["size"] not in (None, size):
        return False
    if stored.get("planned") != queries or stored["budget"] not in _budgets(arguments, stored):
        return False
    grid = math.ceil(4 * math.sqrt(size))
    fitted = mechanism_0_1_0(size, queries, arguments["purpose"]).identity()
    same_grid = all(statistic["grid"] == grid for statistic in stored["statistics"].values())
    return same_grid and bool(stored["mechanism"] == fitted)


def _budgets(arguments: dict[str, Any], stored: dict[str, Any]) -> tuple[int, ...]:
    """Return the budgets that version 0.1.0 may have chosen for plan arguments."""
    if arguments["budget"] is not None:
        return (arguments["budget"],)
    if arguments["size"] is not None and arguments["tolerance"] is not None:
        return (stored["budget"],)  # the largest that kept the tolerance
    return (min(_DEFAULT_0_1_0, arguments["queries"]),)


def mechanism_0_1_0(size: int, queries: int, purpose: str) -> Mechanism:
    """Return the mechanism that the planner of version 0.1.0 chose; its noise followed the queries.

    Example:
        >>> mechanism_0_1_0(10_000, 200, "early-stopping")
        Ladder(step=0.0025, sigma=6.95...e-05)
    """
    error = 1 / (2 * math.sqrt(size))
    threshold = min(0.5, error / 2 if purpose == "early-stopping" else error)
    sigma = threshold / (6 * math.log(2 * max(queries, 20)))
    if purpose == "curve":
        return Thresholdout(threshold=threshold, sigma=sigma, guess="last")
    return Ladder(step=threshold, sigma=sigma)


def require_makeable(refusal: str | None) -> None:
    """Raise if no account may be created from a plan, for the reason it gives.

    Example:
        >>> require_makeable("The wanted tolerance of 0.05 is not reached with values.")
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected a plan that reaches what it was made
        for. The wanted tolerance of 0.05 is not reached with values. Nothing was charged.
    """
    if refusal is not None:
        raise InvalidArgumentError(
            f"Expected a plan that reaches what it was made for. {refusal} Nothing was charged."
        )
