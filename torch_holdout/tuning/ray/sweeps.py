"""A trainable whose trials ask one account, and what they report to Tune."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import tune

from torch_holdout._shared.checks import require_flag, require_instance
from torch_holdout._shared.configurations import plain
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.tuning.ray.trials import Sweep, run_trial, running_trial, undeclared
from torch_holdout.tuning.reporting import one_statistic, reporting_callback, require_shared
from torch_holdout.tuning.trial_runs import warn_if_erased

CHECKPOINT = "checkpoint"  # the file's name in a checkpoint's folder, as in Ray's own callback


def sharing(
    train: Callable[[dict[str, Any], ReusableHoldout], None],
    holdout: ReusableHoldout,
    *,
    display: str | Sequence[str] | None = None,
    statistic: str | None = None,
    every: bool = False,
) -> Callable[[dict[str, Any]], None]:
    """Return a Tune trainable of ``train(config, holdout)`` whose trials ask one account.

    A trial on a spent holdout ends, whether it has started or not: its status is TERMINATED, its
    folder has a file ``holdout_exhausted.txt`` that says so, and what it reported before stands.
    One that has nothing to report reports NaN once, because Tune breaks off the whole sweep if a
    trial ends without its metric.

    A pass that is not the whole holdout (a wrong loader, ``size`` or ``drop_last``) does break off
    the sweep: the trial fails with a ``PartialPassError``, and Tune's error quotes it under
    ``holdout/problem``. (Without a metric in ``TuneConfig`` Tune goes on, and each trial fails so
    before it trains.)

    Args:
        train: Trains one configuration and reports through ``reporting`` or ``report``.
        holdout: The account, on a ledger that every worker reaches. If it is sealed, its budget is
            the number of trials.
        display: For a sealed holdout: what is reported to Tune, e.g. ``"display_loss"``, which the
            module logs for a public loader. None: nothing is; TuneConfig then takes no metric.
        statistic: For a sealed holdout: which statistic decides what is best in a trial's run, so
            which weights a guard keeps; None: the first.
        every: For a live holdout: whether a trial may ask more than one question.

    Example:
        >>> import torch_holdout as th
        >>> ledger = f"sqlite:///{tempfile.mkdtemp()}/holdout.db"
        >>> holdout = th.ReusableHoldout(
        ...     ledger, name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=20)
        >>> def train(config, holdout):
        ...     "Train with config, evaluating on the holdout."
        >>> trainable = sharing(train, holdout, display="display_acc")  # for tune.Tuner
        >>> trainable.__name__
        'train'
    """
    require_instance("holdout", holdout, ReusableHoldout)
    require_flag("every", every)
    if holdout.address.startswith("memory://"):
        raise InvalidArgumentError(
            "Expected a ledger that other processes reach, but a memory:// ledger stays in its "
            "process and Ray's trials run in others. Use sqlite:///file.db (it is sent to the "
            "workers as an absolute path)."
        )
    best = None if statistic is None else one_statistic(holdout, statistic)
    sweep = Sweep(holdout, _display(holdout, display), best, every)
    if not holdout.mechanism.shows_values:
        warn_if_erased(holdout, stacklevel=3)

    def trial(config: dict[str, Any]) -> None:
        run_trial(train, config, sweep)

    trial.__name__ = getattr(train, "__name__", "train")  # Tune names the experiment by it
    return trial


def reporting(
    guard: Any, metrics: Sequence[str] | None = None, *, save_checkpoints: bool = True
) -> Any:
    """Return a callback that reports to Tune after each validation that a ``HoldoutGuard`` guards.

    Of a live holdout the guard's answers are reported, of a sealed one the display's metrics, as
    the module logged them, with the run's id and the evaluation's number. The callback belongs to
    the guard's own Lightning package and takes the place of Ray's ``TuneReportCheckpointCallback``,
    whose checkpoints it writes too (``checkpoint`` in ``tune.get_checkpoint()``'s folder): start
    with ``trainer.fit(..., ckpt_path=...)`` from it, and a trial that was stopped goes on. One
    process per trial: DDP is refused.

    Args:
        guard: The guard of this trial, on the holdout that ``sharing`` handed over.
        metrics: Which statistics are reported; of a sealed holdout, which metrics of the display
            (None: all of them). Nothing else is, whatever the module logs.
        save_checkpoints: Whether a checkpoint goes with each report. PBT needs them, and the
            weights of a trial that a scheduler has stopped are nowhere else.

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
    trial = running_trial()
    require_shared(guard, trial.holdout)
    names = list(trial.display) if trial.sealed and metrics is None else _listed(metrics)
    if trial.sealed and (unknown := [name for name in names if name not in trial.display]):
        raise undeclared(trial.holdout, unknown, trial.display)
    if not trial.sealed:
        names = [one_statistic(guard.holdout, name) for name in names]

    def tell(trainer: Any) -> None:
        if trial.sealed:
            values = {name: _logged(trainer, name) for name in names}
        else:
            values = {name: guard.answers[name] for name in names}
        with tempfile.TemporaryDirectory() as folder:
            if save_checkpoints:
                trainer.save_checkpoint(Path(folder) / CHECKPOINT)
            trial.tell(values, tune.Checkpoint.from_directory(folder) if save_checkpoints else None)

    return reporting_callback("HoldoutReport", guard, tell, every=trial.every)


def report(answers: Mapping[str, Answer | float | None], checkpoint: Any = None) -> None:
    """Report to Tune in a plain loop: ``{"val_acc": metric.answer}``, or a display's numbers.

    Args:
        answers: Of a live holdout, by statistic. Nothing is reported in a Trainer's sanity
            check, where they are None. Of a sealed one, the numbers of the display, ``{}`` without
            one; the report goes with the evaluation made since the last report.
        checkpoint: A ``ray.tune.Checkpoint``; of a sealed holdout, of the evaluated weights.

    Raises:
        BudgetExhaustedError: If an answer is stale; ``sharing`` ends the trial then.
        PartialPassError: If one is missing, with the reason; ``sharing`` breaks off the sweep.

    Example:
        >>> report({"val_acc": Answer(0.75, "release", 1, "release", position=1)})
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected to be called in a trial of
        tune.Tuner(sharing(train, holdout)), ...
    """
    running_trial().tell(answers, checkpoint)


def _display(holdout: ReusableHoldout, display: str | Sequence[str] | None) -> tuple[str, ...]:
    if display is None:
        return ()
    if holdout.mechanism.shows_values:
        raise InvalidArgumentError(
            f"Expected no `display`, because holdout {holdout.name!r} answers with values, which "
            f"is what Tune reads. A display goes with mechanism=th.Sealed(evaluations=...)."
        )
    names = tuple(_listed([display] if isinstance(display, str) else display))
    for name in names:
        if not isinstance(name, str) or name in holdout.statistics:
            raise InvalidArgumentError(
                f"Expected `display` to name metrics of a set that may be watched, but {name!r} is "
                f"no such name: the statistics {list(holdout.statistics)} are sealed until "
                f"closing. Log the display's metrics under names of their own, e.g. 'display_acc'."
            )
    return names


def _listed(metrics: Any) -> list[str]:
    metrics = plain(metrics)
    if isinstance(metrics, str):
        return [metrics]
    if not isinstance(metrics, list | tuple) or not metrics:
        raise InvalidArgumentError(
            "Expected `metrics` to name the statistics to report, e.g. ['val_acc'], or metrics of "
            "the display."
        )
    return list(metrics)


def _logged(trainer: Any, name: str) -> Any:
    known = trainer.callback_metrics
    if name not in known:
        raise InvalidArgumentError(
            f"Expected the module to have logged the display's {name!r} when validation ends, but "
            f"it has logged {sorted(known)}. Give the guard public_dataloaders=(1,), and write "
            f"self.log({name!r}, ..., add_dataloader_idx=False) in the step where "
            f"dataloader_idx == 1."
        )
    return known[name]
