"""A trial on a shared holdout: what its block gets, and how it ends when the budget is gone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch_holdout._shared.checks import require_flag, require_instance
from torch_holdout.errors import BudgetExhaustedError, InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.runs import named_run
from torch_holdout.training.metric import take_problem
from torch_holdout.tuning.optuna.live import SharedTrial, listed_statistics, require_directions
from torch_holdout.tuning.optuna.sealed import sealed_sharing
from torch_holdout.tuning.optuna.studies import (
    end,
    optuna,
    require_trial,
    stop_spent,
    trial_label,
)


@contextmanager
def sharing(
    trial: optuna.Trial,
    holdout: ReusableHoldout,
    statistic: str | Sequence[str] | None = None,
    *,
    display: str | Sequence[str] | None = None,
    every: bool = False,
) -> Iterator[Any]:
    """Run a trial on a holdout that other trials, threads and processes ask too.

    The block gets a ``SharedTrial``, on a sealed holdout a ``SealedTrial``.

    When the budget is gone, here or in another worker, the study stops: a trial that has not
    started is pruned at once, one that runs is pruned with the last value it was answered, and one
    that made the last release ends with it. No trial fails for it. (``study.stop()`` stops this
    process's loop; other workers stop when they find the holdout spent. Outside of
    ``study.optimize``, with ask and tell, there is no loop to stop and ``TrialPruned`` is raised.)
    A trial that is pruned here says why in its user attribute ``torch_holdout:pruned``. A pass that
    is not the whole holdout is not a reason to prune: it raises ``PartialPassError``, so that the
    study stops at its first trial.

    On a sealed holdout the budget counts runs, and a trial makes one: killed, its run stays open
    and counts; tried again by Optuna (``RetryHeartbeatStaleTrialCallback``) it starts over in its
    place, or goes on with it from a checkpoint; one that fails with an error gives it up. A run
    that says nothing is replaced and given up for free, so that a study of N trials fits a budget
    of N. A pruned trial's run ends, and its evaluations count.

    Args:
        trial: The trial.
        holdout: The account; on a ledger that every worker reaches.
        statistic: What the study is about; may be left out if the holdout has only one. With
            several objectives, one for each. On a sealed holdout: which statistic decides what is
            best in the trial's run; None: the first.
        display: On a sealed holdout: what sampler and pruner read, by the name it is logged under;
            one for each objective. Without it only samplers that do not react are taken, and
            trials end as pruned: their values are shown at closing.
        every: On a live holdout: whether a trial may ask more than once. Each question is paid for.

    Example:
        >>> import torch_holdout as th
        >>> from torch_holdout.holdout.results import Answer
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> study = optuna.create_study(direction="maximize")
        >>> with sharing(study.ask(), holdout) as shared:
        ...     shared.report(Answer(0.75, "release", 1, "release", position=1), step=0)
        ...     shared.value
        0.75
    """
    require_trial(trial)
    require_instance("holdout", holdout, ReusableHoldout)
    require_flag("every", every)
    take_problem()  # of another trial
    if not holdout.mechanism.shows_values:
        with sealed_sharing(trial, holdout, statistic, display) as sealed:
            yield sealed
        return
    if display is not None:
        raise InvalidArgumentError(
            f"Expected display= for a sealed holdout only, but {holdout.name!r} answers with "
            f"values, which the study is told. Leave it out, or make the holdout with "
            f"mechanism=th.Sealed(evaluations=...). Nothing was charged."
        )
    names = listed_statistics(holdout, statistic)
    require_directions(trial.study, holdout, names)
    if holdout.exhausted:
        end(trial, holdout)
    shared = SharedTrial(trial, holdout, names, every=every)
    try:
        with named_run(trial_label(trial.study.study_name, trial.number)):
            yield shared
    except BudgetExhaustedError:
        end(trial, holdout)
    if holdout.budget_left == 0:
        stop_spent(trial.study, holdout)
