"""Checks of a sealed run's arguments, and its errors: they depend on public facts only."""

from collections.abc import Sequence
from typing import Any

from torch_holdout._shared.checks import require_flag, require_instance
from torch_holdout._shared.text import counted
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutClosedError,
    HoldoutError,
    InvalidArgumentError,
)
from torch_holdout.holdout.registration import Registration
from torch_holdout.holdout.run_results import Outcome
from torch_holdout.ledger.run_events import StoredRun, run_mark
from torch_holdout.mechanisms import Mechanism
from torch_holdout.mechanisms.patience import Patience
from torch_holdout.mechanisms.sealed import Sealed


def sealed_mechanism(registration: Registration) -> Sealed:
    """Return the mechanism of a sealed holdout; raise if it shows values."""
    if not isinstance(registration.mechanism, Sealed):
        raise InvalidArgumentError(
            f"Expected a sealed holdout, but {registration.name!r} answers with values. Make it "
            f"with mechanism=th.Sealed(evaluations=...), and budget= the number of runs. One "
            f"account cannot do both."
        )
    return registration.mechanism


def checked_rule(
    registration: Registration, stop: Patience | None, best: str | None
) -> dict[str, Any]:
    """Return what stops a run, and which statistic says what is best in it, as it is stored."""
    if stop is not None:
        require_instance("stop", stop, Patience)
        statistic = registration.statistic(stop.statistic)
        if stop.min_delta >= statistic.high - statistic.low:
            raise InvalidArgumentError(
                f"Expected `min_delta` below the range of {stop.statistic!r}, "
                f"{statistic.high - statistic.low:g}, but got {stop.min_delta:g}: nothing could "
                f"ever be an improvement."
            )
        if best not in (None, stop.statistic):
            raise InvalidArgumentError(
                f"Expected `best` to be the statistic that stops the run, {stop.statistic!r}, but "
                f"got {best!r}. Leave it out."
            )
        return {"stop": stop.identity(), "best": stop.statistic}
    best = next(iter(registration.statistics)) if best is None else best
    registration.statistic(best)
    return {"stop": None, "best": best}


def no_runs_left(registration: Registration, runs: Sequence[StoredRun], account: str) -> Exception:
    """Return the error for a run beyond the budget, with what can be done about open ones."""
    still_open = [run for run in runs if run.state == "open" and run.share is not None]
    remedy = "Close the holdout to see what the runs were worth, or bring a fresh one"
    if still_open:
        ids = ", ".join(repr(run_mark(account, run.run)) for run in still_open[:3])
        remedy = (
            f"{counted(len(still_open), 'run')} of it {'is' if len(still_open) == 1 else 'are'} "
            f"still open ({ids}): go on with holdout.run(resume=...), or free one that could not "
            f"have stopped yet, if nothing was said since it began, with "
            f"holdout.run(resume=...).give_up()"
        )
    return BudgetExhaustedError(
        f"The budget of holdout {registration.name!r} ({counted(registration.budget, 'run')}) is "
        f"spent; no run was begun. {remedy}."
    )


def unknown_run(why: str) -> HoldoutError:
    """Return the error for a run that cannot be resumed."""
    return InvalidArgumentError(
        f"Expected to resume a run of this holdout, but it was begun {why}. Resume it where it was "
        f"begun, or begin a new one without resume=. Nothing was charged."
    )


def ended_run(outcome: Outcome | None, *, by_text: bool = False) -> HoldoutError:
    """Return the error for an evaluation in a run that has ended.

    ``by_text``: it is of a statistic that may come late, but not under a text.
    """
    how = "was ended" if outcome is None else _ENDS[outcome.reason]
    remedy = "begin a new run for more evaluations"
    if by_text:
        remedy += (
            "; or, for another statistic of weights that it has evaluated, give both statistics in "
            "one call of run.evaluate, or let the weights name the query: query=net, in metrics "
            "model=net"
        )
    return HoldoutError(
        f"Expected an open run, but this one {how}; an ended run is never resumed. Its outcome is "
        f"run.outcome; {remedy}. Nothing was charged."
    )


def unknown_weights() -> HoldoutError:
    """Return the error for weights that no pass of the run has evaluated."""
    return HoldoutError(
        "Expected weights that this run has evaluated, but got others: a sealed holdout evaluates "
        "new ones in a run only. Evaluate them in a fit, or in a loop with `holdout.run()`; values "
        "are shown by holdout.close(). Nothing was charged."
    )


def account_closed(name: str) -> HoldoutError:
    """Return the error for a question to a closed holdout."""
    return HoldoutClosedError(
        f"Expected holdout {name!r} to be open, but it was closed, for good: its values are public "
        f"now, so nothing more can be asked. holdout.close() shows them again. Nothing was charged."
    )


def shows_exactly(mechanism: Mechanism, exact: bool | None) -> bool:
    """Return whether closing publishes the values; raise where that cannot be."""
    if exact is not None:
        require_flag("exact", exact)
    if not mechanism.is_private():
        if exact is False:
            raise InvalidArgumentError(
                "Expected exact=None, because this holdout has no noise that hiding the values "
                "would protect. Nothing was closed."
            )
        return True
    if exact and mechanism.shows_values:
        raise InvalidArgumentError(
            "Expected exact=None, because this holdout answers with noise and has kept no sums: "
            "there is nothing exact to show. Nothing was closed."
        )
    return bool(exact)


def sums_are_gone() -> HoldoutError:
    """Return the error for exact values of an account that was closed without them."""
    return HoldoutClosedError(
        "Expected the sums of the holdout, but it was closed without exact=True, which has erased "
        "them for good. holdout.close() shows what was published."
    )


_ENDS = {
    "patience": "was stopped by its patience",
    "ended": "was ended",
    "given up": "was given up",
}
