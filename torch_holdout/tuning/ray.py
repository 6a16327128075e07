"""Ray Tune trials that share one holdout.

::

    def train(config, holdout):
        guard = HoldoutGuard(holdout)
        callbacks = [guard, reporting(guard, ["val_acc"])]
        L.Trainer(callbacks=callbacks).fit(Net(config["lr"]), train_loader, val_loader)

    tuner = tune.Tuner(sharing(train, holdout), param_space={"lr": tune.loguniform(1e-4, 1e-1)},
        tune_config=tune.TuneConfig(metric="val_acc", mode="max", scheduler=ASHAScheduler()))
    print(claim(tuner.fit(), holdout, "val_acc"))

Schedulers and searchers (ASHA, PBT, ...) read what the holdout published and nothing else. A
released value is reported as it is. So is a guess that is near the holdout's value (Thresholdout
and its kin): it is off by up to the threshold and its noise, good enough to schedule by and not
good enough to claim. A Ladder's guess is not reported: it is the best of any trial. A stale value
is never reported: when the budget is gone a trial ends, with what it has reported so far, and
trials that come later end before they train.

The holdout goes to the workers as a handle to the same account, whose ledger is addressed by an
absolute path (Ray gives each trial a working directory of its own). Workers on other machines need
a ledger that they reach: SQLite is for one machine.
"""

import logging
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from torch_holdout._shared.checks import require_instance
from torch_holdout.errors import BudgetExhaustedError, InvalidArgumentError, PartialPassError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.runs import as_run_name, named_run
from torch_holdout.training.metric import take_problem
from torch_holdout.training.requirements import budget_spent
from torch_holdout.tuning.claims import Claim, Pointer, best_claim, points_here, reask
from torch_holdout.tuning.reporting import (
    one_statistic,
    reporting_callback,
    require_sanity_check,
    require_shared,
    tells_the_value,
)

try:
    from ray import tune
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "torch_holdout.tuning.ray needs Ray Tune: pip install 'torch-holdout[ray]'"
    ) from error

__all__ = ["Claim", "claim", "reask", "report", "reporting", "sharing"]

CHECKPOINT = "checkpoint"  # the file's name in a checkpoint's folder, as in Ray's own callback
EXHAUSTED = "holdout_exhausted.txt"
PROBLEM = "holdout/problem"

_log = logging.getLogger("torch_holdout")


class _Trial:
    """A running trial: the holdout it shares, and whether it has reported or withheld answers."""

    def __init__(self, holdout: ReusableHoldout) -> None:
        self.holdout = holdout
        self.account = holdout.account
        self.reported = False
        self.withheld = False


_running: ContextVar[_Trial | None] = ContextVar("running_trial", default=None)


def sharing(
    train: Callable[[dict[str, Any], ReusableHoldout], None], holdout: ReusableHoldout
) -> Callable[[dict[str, Any]], None]:
    """Return a Tune trainable of ``train(config, holdout)`` whose trials ask one account.

    A trial on a spent holdout ends, whether it has started or not: its status is TERMINATED, its
    folder has a file ``holdout_exhausted.txt`` that says so, and what it reported before stands.
    One that has nothing to report (also when all it got were guesses of a Ladder) reports NaN
    once, because Tune breaks off the whole sweep if a trial ends without its metric.

    A pass that is not the whole holdout (a wrong loader, ``size`` or ``drop_last``) does break off
    the sweep: the trial fails with a ``PartialPassError``, and Tune's error quotes it under
    ``holdout/problem``. (Without a metric in ``TuneConfig`` Tune goes on, and each trial fails so
    before it trains.)

    Args:
        train: Trains one configuration and reports through ``reporting`` or ``report``.
        holdout: The account, on a ledger that every worker reaches.

    Example:
        >>> import torch_holdout as th
        >>> ledger = f"sqlite:///{tempfile.mkdtemp()}/holdout.db"
        >>> holdout = th.ReusableHoldout(
        ...     ledger, name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> def train(config, holdout):
        ...     "Train with config, asking the holdout."
        >>> trainable = sharing(train, holdout)  # for tune.Tuner(trainable, ...)
        >>> trainable.__name__
        'train'
    """
    require_instance("holdout", holdout, ReusableHoldout)
    address = holdout.address
    if address.startswith("memory://"):
        raise InvalidArgumentError(
            "Expected a ledger that other processes reach, but a memory:// ledger stays in its "
            "process and Ray's trials run in others. Use sqlite:///file.db (it is sent to the "
            "workers as an absolute path)."
        )

    def trial(config: dict[str, Any]) -> None:
        _run(train, config, holdout)

    trial.__name__ = getattr(train, "__name__", "train")  # Tune names the experiment by it
    return trial


def reporting(guard: Any, metrics: Sequence[str], *, save_checkpoints: bool = True) -> Any:
    """Return a callback that reports a ``HoldoutGuard``'s answers to Tune after each validation.

    It belongs to the guard's own Lightning package and takes the place of Ray's
    ``TuneReportCheckpointCallback``, whose checkpoints it writes too (``checkpoint`` in
    ``tune.get_checkpoint()``'s folder). One process per trial: DDP is refused.

    Args:
        guard: The guard of this trial, on the holdout that ``sharing`` handed over.
        metrics: Which statistics are reported. Nothing else is, whatever the module logs.
        save_checkpoints: Whether a checkpoint goes with each report; PBT needs them.

    Example:
        >>> import warnings, torch_holdout as th
        >>> from torch_holdout.lightning import HoldoutGuard
        >>> warnings.simplefilter("ignore")  # of Ray: here no Tuner runs the trial
        >>> ledger = f"sqlite:///{tempfile.mkdtemp()}/holdout.db"
        >>> holdout = th.ReusableHoldout(
        ...     ledger, name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> def train(config, holdout):
        ...     guard = HoldoutGuard(holdout)
        ...     callbacks = [guard, reporting(guard, ["val_acc"])]  # for L.Trainer
        ...     print(type(callbacks[1]).__name__)
        >>> sharing(train, holdout)({})
        HoldoutReport
    """
    require_shared(guard, _trial().holdout)
    names = [one_statistic(guard.holdout, name) for name in _listed(metrics)]

    def tell(trainer: Any) -> None:
        answers = {name: guard.answers[name] for name in names}
        with tempfile.TemporaryDirectory() as folder:
            if save_checkpoints:
                trainer.save_checkpoint(Path(folder) / CHECKPOINT)
            report(answers, tune.Checkpoint.from_directory(folder) if save_checkpoints else None)

    return reporting_callback("HoldoutReport", guard, tell)


def report(answers: Mapping[str, Answer | None], checkpoint: Any = None) -> None:
    """Report answers to Tune, e.g. ``{"val_acc": metric.answer}`` in a plain loop.

    Args:
        answers: By statistic. Nothing is reported if one of them does not describe its trial: a
            Ladder's guess, or None in a Trainer's sanity check.
        checkpoint: A ``ray.tune.Checkpoint``.

    Raises:
        BudgetExhaustedError: If one is stale; ``sharing`` ends the trial then.
        PartialPassError: If one is missing, with the reason; ``sharing`` breaks off the sweep.

    Example:
        >>> report({"val_acc": Answer(0.75, "release", 1, "release", position=1)})
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected to be called in a trial of
        tune.Tuner(sharing(train, holdout)), ...
    """
    trial = _trial()
    holdout = trial.holdout
    told: dict[str, float | int | bool | str] = {}
    for name, answer in answers.items():
        one_statistic(holdout, name)
        if answer is not None and answer.kind == "exhausted":
            _end(holdout)
        if answer is None:
            require_sanity_check(name)
        if answer is None or not tells_the_value(holdout.mechanism, answer):
            trial.withheld = True
            return
        if not points_here(answer, holdout, name) and answer.is_release:
            answer = replace(answer, position=None)  # no release of this ledger: nothing to claim
        told |= _reported(name, answer, trial.account)
    trial.reported = True
    tune.report(told, checkpoint=checkpoint)


def claim(
    results: Any, holdout: ReusableHoldout, statistic: str | None = None, *, failure: float = 0.05
) -> Claim:
    """Return the best released value of all trials, and its interval from the ledger.

    Every report of every trial counts: a release stands, whatever became of the trial. The results
    only say which trial asked for which query of the ledger; whether that was a release, and its
    value, is read there. ``step`` is Ray's ``training_iteration``. ``reask`` asks for the winner
    once more.

    Args:
        results: What ``tuner.fit()`` returned.
        holdout: The account the trials shared.
        statistic: Of what; may be left out if the holdout has only one.
        failure: Probability that any interval of a release is wrong.

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
    name = one_statistic(holdout, statistic)
    account = holdout.account
    pointers = [
        pointer for result in _results(results) for pointer in _pointers(result, name, account)
    ]
    return best_claim(pointers, holdout, name, failure)


def _run(
    train: Callable[[dict[str, Any], ReusableHoldout], None],
    config: dict[str, Any],
    holdout: ReusableHoldout,
) -> None:
    trial = _Trial(holdout)
    take_problem()  # of another trial
    token = _running.set(trial)
    try:
        if holdout.exhausted:
            _end(holdout)
        with named_run(as_run_name(f"trial {tune.get_context().get_trial_name()}")):
            train(config, holdout)
    except BudgetExhaustedError as error:
        _log.warning(str(error))
        note = Path(tune.get_context().get_trial_dir()) / EXHAUSTED
        note.write_text(f"{error}\n")
        trial.withheld = True
    except PartialPassError as error:
        # All trials have this loader. Tune ends the sweep over a result without its metric.
        tune.report({PROBLEM: str(error), "holdout/name": holdout.name})
        raise
    finally:
        _running.reset(token)
    if trial.withheld and not trial.reported:
        # Tune breaks off the sweep when a trial ends without its metric: report NaN.
        nothing = Answer(math.nan, "exhausted", holdout.budget_left)
        parts = [_reported(name, nothing, trial.account) for name in holdout.statistics]
        tune.report({key: value for part in parts for key, value in part.items()})


def _reported(name: str, answer: Answer, account: str) -> dict[str, float | int | bool | str]:
    return {
        name: answer.value,
        f"holdout/{name}/is_release": answer.is_release,
        f"holdout/{name}/position": -1 if answer.position is None else answer.position,
        "holdout/budget_left": answer.budget_left,
        "holdout/account": account,
    }


def _trial() -> _Trial:
    trial = _running.get()
    if trial is None:
        raise InvalidArgumentError(
            "Expected to be called in a trial of tune.Tuner(sharing(train, holdout)), so that all "
            "trials ask one account."
        )
    return trial


def _listed(metrics: Sequence[str]) -> Sequence[str]:
    if isinstance(metrics, str):
        return [metrics]
    if not isinstance(metrics, list | tuple) or not metrics:
        raise InvalidArgumentError(
            "Expected `metrics` to name the statistics to report, e.g. ['val_acc']."
        )
    return metrics


def _results(results: Any) -> Iterator[Any]:
    """Return Ray's results one by one; they need not be a list."""
    try:
        return iter(results)
    except TypeError:
        kind = type(results).__name__
    raise InvalidArgumentError(f"Expected the results of tuner.fit(), but got {kind}.")


def _pointers(result: Any, name: str, account: str) -> Iterator[Pointer]:
    if not hasattr(result, "metrics_dataframe"):
        raise InvalidArgumentError(
            f"Expected the results of tuner.fit(), but got {type(result).__name__} among them."
        )
    table = result.metrics_dataframe
    column = f"holdout/{name}/position"
    if table is None or column not in table:
        return
    table = table[table["holdout/account"] == account]  # positions of another mean other queries
    trial = str(result.metrics.get("trial_id"))
    for step, position in zip(table["training_iteration"], table[column], strict=True):
        if position == position:  # not NaN
            yield Pointer(trial, int(step), int(position), account, name)


def _end(holdout: ReusableHoldout) -> NoReturn:
    raise BudgetExhaustedError(f"{budget_spent(holdout)}: the trial ends.")
