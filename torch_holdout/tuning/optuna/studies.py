"""Optuna's studies and trials: how they are named, linked to earlier tries, pruned and stopped."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.runs import as_run_name
from torch_holdout.training.requirements import budget_spent

try:
    import optuna as optuna  # for the other modules, so that its absence is explained once
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "torch_holdout.tuning.optuna needs Optuna: pip install 'torch-holdout[optuna]'"
    ) from error

PRUNED = "torch_holdout:pruned"  # the user attribute that says why a trial was pruned
GUESSED = "torch_holdout:guess"  # the one that says that its value is a Ladder's guess
_log = optuna.logging.get_logger("optuna.torch_holdout")
RUN = "torch_holdout:run:"  # the start of those that hold the id of a sealed run


def require_trial(trial: optuna.Trial) -> None:
    """Raise unless it is a trial of a study; Optuna wraps some, e.g. for several ranks."""
    if not isinstance(trial, optuna.trial.BaseTrial) or not hasattr(trial, "study"):
        raise InvalidArgumentError(
            f"Expected `trial` to be the trial of a study, but got {type(trial).__name__}."
        )


def trial_label(study: str, number: int) -> str:
    """Return what a trial is called in the report; a study's made-up name is left out."""
    prefix = "" if study.startswith("no-name-") else f"{study} "
    return as_run_name(f"{prefix}trial {number}")


def run_label(study: str, trial: optuna.trial.FrozenTrial) -> str:
    """Return the label of a trial's sealed runs, which no trial of another study has.

    A study that is created again under an old name starts its trials at other times.
    """
    start = None if trial.datetime_start is None else trial.datetime_start.isoformat()
    mark = hashlib.sha256(f"{study}/{trial.number}/{start}".encode()).hexdigest()[:8]
    return as_run_name(f"{trial_label(study, trial.number)} ({mark})")


def tries(trial: optuna.Trial) -> list[optuna.trial.FrozenTrial]:
    """Return a trial and, before it, the stale ones that Optuna tries again with it."""
    trials = {each.number: each for each in trial.study.get_trials(deepcopy=False)}
    own = trials[trial.number]
    return [*(trials[n] for n in own.system_attrs.get("retry_history", ()) if n in trials), own]


def stored_runs(trial: optuna.trial.FrozenTrial, account: str) -> Iterator[str]:
    """Return the ids of sealed runs that a trial has made on an account."""
    for key, mark in trial.user_attrs.items():
        ours = key.startswith(RUN) and isinstance(mark, dict)
        # A trial that is tried again inherits the attributes of the stale one, which is not it.
        if ours and (mark.get("trial"), mark.get("account")) == (trial.number, account):
            yield key.removeprefix(RUN)


def prune(trial: optuna.Trial, reason: str) -> NoReturn:
    """Prune a trial, and say why in its attributes."""
    trial.set_user_attr(PRUNED, reason)
    raise optuna.TrialPruned(reason)


def stop(study: optuna.Study) -> None:
    """Stop the loop of this process, if there is one."""
    with suppress(RuntimeError):  # raised outside of optimize(), where there is nothing to stop
        study.stop()


def stop_spent(study: optuna.Study, holdout: ReusableHoldout) -> None:
    """Stop the loop after the trial that spent the budget, and say so in Optuna's log."""
    stop(study)
    _log.info(_spent(holdout))


def end(trial: optuna.Trial, holdout: ReusableHoldout, stale: str = "") -> NoReturn:
    """Prune a trial and stop its study, because the budget is spent."""
    stop(trial.study)
    prune(trial, _spent(holdout, stale))


def _spent(holdout: ReusableHoldout, stale: str = "") -> str:
    shows = (
        "claim(study, holdout) returns its best release"
        if holdout.mechanism.shows_values
        else "holdout.close() shows what its trials were worth"
    )
    return (
        f"{budget_spent(holdout)}: the study stops.{stale} {shows}; more trials need a fresh "
        f"holdout."
    )
