"""What may be claimed of a Ray sweep: its winner, its ranking, and results with closed values."""

from collections.abc import Sequence
from typing import Any

from ray import tune

from torch_holdout._shared.checks import require_instance
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.closing import Closing
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.tuning.claims import Claim, best_claim
from torch_holdout.tuning.ray.results import (
    closed_grid,
    closed_sweep,
    pointers_of,
    require_grid,
    results_of,
    runs_of_results,
)
from torch_holdout.tuning.reporting import one_statistic
from torch_holdout.tuning.sealed_claims import FrontPoint, closing_of_sweep, no_evaluation


def claim(
    results: Any, holdout: ReusableHoldout, statistic: str | None = None, *, failure: float = 0.05
) -> Claim:
    """Return the best value of all trials, and its interval from the ledger.

    Of a live holdout it is the best release. Every report of every trial counts: a release stands,
    whatever became of the trial. The results only say which trial asked for which query of the
    ledger; whether that was a release, and its value, is read there. ``step`` is Ray's
    ``training_iteration``. ``reask`` asks for the winner once more.

    Of a sealed holdout, which must have been closed, it is the best evaluation of all runs of all
    trials, with the place of its weights: ``ranking(...)[0]``.

    Args:
        results: What ``tuner.fit()`` returned.
        holdout: The account the trials shared.
        statistic: Of what; may be left out if the holdout has only one, and on a sealed one: then
            it is the one that decided what is best in the trials' runs.
        failure: Probability that any interval is wrong.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> claim([], holdout)  # the results of tuner.fit(): here no trial was answered
        Traceback (most recent call last):
            ...
        torch_holdout.errors.HoldoutError: Expected a release of 'val_acc' by one of the trials on
        this account, but there is none, so nothing can be claimed: ...
    """
    require_instance("holdout", holdout, ReusableHoldout)
    if not holdout.mechanism.shows_values:
        return ranking(results, holdout, statistic, failure=failure)[0]
    name = one_statistic(holdout, statistic)
    account = holdout.account
    pointers = [
        pointer for result in results_of(results) for pointer in pointers_of(result, name, account)
    ]
    return best_claim(pointers, holdout, name, failure)


def ranking(
    results: Any, holdout: ReusableHoldout, statistic: str | None = None, *, failure: float = 0.05
) -> list[Claim]:
    """Return each trial's best evaluation on a closed sealed holdout, the winner first.

    All intervals hold at once with probability ``1 - failure``, however the trials were chosen.
    Trials whose claim is not ``apart`` from the winner's cannot be told from it by this holdout.
    ``weights`` is the folder of Ray's checkpoint of that evaluation, or the guard's file.

    Args:
        results: What ``tuner.fit()`` returned.
        holdout: The account the trials shared.
        statistic: As for ``claim``.
        failure: Probability that any interval is wrong.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=2)
        >>> ranking([], holdout)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.HoldoutError: Expected a closed holdout, because 'val' is sealed: ...
    """
    closing = _closing(holdout, failure)
    name = _decides(results, holdout, closing) if statistic is None else statistic
    ranked = closed_sweep(results, closing, holdout.account).ranking(one_statistic(holdout, name))
    if not ranked:
        raise no_evaluation(name)
    return ranked


def front(
    results: Any,
    holdout: ReusableHoldout,
    statistics: Sequence[str] | None = None,
    *,
    failure: float = 0.05,
) -> list[FrontPoint]:
    """Return the evaluations of all trials that no other beats in every statistic.

    It is the Pareto front on a closed sealed holdout, in the order of the first statistic; the
    ``claims`` of a point have its intervals, which hold for all evaluations at once.

    Args:
        results: What ``tuner.fit()`` returned.
        holdout: The account the trials shared.
        statistics: Which statistics; None: all of the holdout.
        failure: Probability that any interval is wrong.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=2)
        >>> _ = holdout.close()
        >>> front([], holdout)
        []
    """
    closing = _closing(holdout, failure)
    if statistics is not None and not (isinstance(statistics, list | tuple) and statistics):
        raise InvalidArgumentError(
            f"Expected `statistics` to list some of {list(holdout.statistics)}, or None for all."
        )
    names = [one_statistic(holdout, name) for name in statistics or holdout.statistics]
    maximised = [closing.modes[name] == "max" for name in names]
    sweep = closed_sweep(results, closing, holdout.account)
    return sweep.front(names, told={}, maximised=maximised)


def closed_results(
    results: Any, holdout: ReusableHoldout, statistic: str | None = None, *, failure: float = 0.05
) -> tune.ResultGrid:
    """Return the results with closed values, as an ordinary ``ResultGrid``.

    Each trial's ``metrics_dataframe`` has the closed values of all statistics beside what was
    reported, and ``holdout/<statistic>/low`` and ``.../high``. A trial's ``metrics`` and
    ``checkpoint`` are those of its best evaluation by ``statistic`` (not of its last report), so
    ``get_best_result(metric, mode)`` returns the winner of ``claim``; ``holdout/weights`` among
    them is the place of its weights.

    Args:
        results: The ``ResultGrid`` of ``tuner.fit()``; it stays as it is.
        holdout: The account the trials shared; sealed, and closed.
        statistic: What is best; as for ``claim``.
        failure: Probability that any interval is wrong.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=2)
        >>> closed_results([], holdout)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected the ResultGrid that tuner.fit()
        returned, but got []. ...
    """
    grid = require_grid(results)
    closing = _closing(holdout, failure)
    name = _decides(grid, holdout, closing) if statistic is None else statistic
    return closed_grid(grid, closing, holdout.account, one_statistic(holdout, name))


def _closing(holdout: ReusableHoldout, failure: float) -> Closing:
    require_instance("holdout", holdout, ReusableHoldout)
    if holdout.mechanism.shows_values:
        raise InvalidArgumentError(
            f"Expected a sealed holdout, but {holdout.name!r} answers with values, which Tune has "
            f"been told: claim(results, holdout) returns the best release."
        )
    return closing_of_sweep(holdout, failure)


def _decides(results: Any, holdout: ReusableHoldout, closing: Closing) -> str:
    """Return the statistic that decided what is best in the trials' runs."""
    runs = runs_of_results(results, closing, holdout.account)
    own = {mark for marks in runs.values() for mark in marks}
    decided = (run.statistic for run in closing.runs if run.id in own)
    return next(decided, next(iter(closing.modes)))
