"""An Optuna study whose trials share one holdout.

::

    def objective(trial):
        with sharing(trial, holdout, "val_acc") as shared:
            net = Net(lr=trial.suggest_float("lr", 1e-4, 1e-1, log=True))
            guard = HoldoutGuard(holdout)
            L.Trainer(callbacks=[guard, shared.pruning(guard)]).fit(net, train_loader, val_loader)
            return shared.value

    study.optimize(objective, n_trials=100)
    print(claim(study, holdout))

The study, its samplers and pruners read what the holdout published and nothing else. A released
value is reported as it is. So is a guess that is near the holdout's value (Thresholdout and its
kin): it is off by up to the threshold and its noise, good enough to prune by and not good enough to
claim. A Ladder's guess is not reported: it is the best of any trial. A stale value, repeated after
the budget is gone, is never reported. ``study.best_value`` may therefore be a guess; ``claim``
never is.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, final

from torch_holdout._shared.checks import require_instance, require_whole
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutWarning,
    InvalidArgumentError,
    PartialPassError,
)
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
    import optuna
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "torch_holdout.tuning.optuna needs Optuna: pip install 'torch-holdout[optuna]'"
    ) from error

__all__ = ["Claim", "SharedTrial", "claim", "reask", "sharing"]

PRUNED = "torch_holdout:pruned"  # the user attribute that says why a trial was pruned


@contextmanager
def sharing(
    trial: optuna.Trial, holdout: ReusableHoldout, statistic: str | None = None
) -> Iterator["SharedTrial"]:
    """Run a trial on a holdout that other trials, threads and processes ask too.

    When the budget is gone, here or in another worker, the study stops: a trial that has not
    started is pruned at once, one that runs is pruned with the last value it was answered, and one
    that made the last release ends with it. No trial fails for it. (``study.stop()`` stops this
    process's loop; other workers stop when they find the holdout spent. Outside of
    ``study.optimize``, with ask and tell, there is no loop to stop and ``TrialPruned`` is raised.)
    A trial that is pruned here says why in its user attribute ``torch_holdout:pruned``. A pass that
    is not the whole holdout is no reason to prune: it raises ``PartialPassError``, so that the
    study stops at its first trial.

    Args:
        trial: The trial.
        holdout: The account; on a ledger that every worker reaches.
        statistic: What the study is about; may be left out if the holdout has only one.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> study = optuna.create_study(direction="maximize")
        >>> with sharing(study.ask(), holdout) as shared:
        ...     shared.report(Answer(0.75, "release", 1, "release", position=1), step=0)
        ...     shared.value
        0.75
    """
    name = one_statistic(holdout, statistic)
    _require_trial(trial)
    _require_direction(trial.study, holdout, name)
    if holdout.exhausted:
        _end(trial, holdout)
    take_problem()  # of another trial
    shared = SharedTrial(trial, holdout, name)
    try:
        with named_run(_run_name(trial)):
            yield shared
    except BudgetExhaustedError:
        _end(trial, holdout)
    if holdout.budget_left == 0:
        _stop(trial.study)


def _run_name(trial: optuna.Trial) -> str:
    study = trial.study.study_name
    prefix = "" if study.startswith("no-name-") else f"{study} "
    return as_run_name(f"{prefix}trial {trial.number}")


@final
class SharedTrial:
    """The trial inside ``sharing``: tells the study the trial's answers.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> with sharing(optuna.create_study(direction="maximize").ask(), holdout) as shared:
        ...     shared
        SharedTrial(trial=0, statistic='val_acc')
    """

    def __init__(self, trial: optuna.Trial, holdout: ReusableHoldout, statistic: str) -> None:
        _require_trial(trial)
        require_instance("holdout", holdout, ReusableHoldout)
        self._trial = trial
        self._holdout = holdout
        self._statistic = statistic
        self._account = holdout.account
        self._value: float | None = None
        self._withheld = False  # an answer that does not tell this trial's value
        self._step = -1

    @property
    def value(self) -> float:
        """The value the trial was last answered; without one the trial is pruned, and says why.

        Never a stale one. It is what the sampler learns from; what may be claimed of the study is
        ``claim(study, holdout)``. If a pass of the trial was not the whole holdout, that is raised.
        """
        if self._value is None:
            self._end_without_value()
        return self._value

    def pruning(self, guard: Any) -> Any:
        """Return a callback that reports each answer of a ``HoldoutGuard`` and prunes by it.

        It belongs to the guard's own Lightning package and takes the place of Optuna's
        ``PyTorchLightningPruningCallback``. One process per trial: DDP is refused.
        """
        require_shared(guard, self._holdout)

        def tell(trainer: Any) -> None:
            # The epoch, unless there are several validations in one.
            step = max(trainer.current_epoch, self._step + 1)
            self.report(guard.answers[self._statistic], step)

        return reporting_callback("HoldoutPruning", guard, tell)

    def report(self, answer: Answer | None, step: int) -> None:
        """Tell the study an answer, e.g. ``metric.answer`` in a plain loop; prune if it says so.

        Args:
            answer: From ``ReusableHoldoutMetric`` or ``holdout.release``. None is ignored in a
                Trainer's sanity check only.
            step: How far the trial is, comparable between trials.

        Raises:
            optuna.TrialPruned: If the pruner says so, or the answer is stale.
            PartialPassError: If there is no answer, with the reason.
        """
        if answer is None:
            require_sanity_check(self._statistic)
            return
        require_instance("answer", answer, Answer)
        require_whole("step", step, 0, 2**62)
        self._step = step = int(step)
        if points_here(answer, self._holdout, self._statistic):
            # A pointer only: the value is read from the ledger.
            key = f"torch_holdout:{self._statistic}:{answer.position}"
            mark = {"trial": self._trial.number, "step": step, "account": self._account}
            self._trial.set_user_attr(key, mark)
        if answer.kind == "exhausted":
            _end(self._trial, self._holdout, f" Its value at step {step} is stale: not reported.")
        if answer.budget_left == 0:
            _stop(self._trial.study)
        if not tells_the_value(self._holdout.mechanism, answer):
            self._withheld = True
            return
        self._value = answer.value
        self._trial.report(answer.value, step)
        if self._trial.should_prune():
            kind = "released value" if answer.is_release else "guess near the holdout's value"
            _prune(
                self._trial, f"Pruned at step {step} by the study's pruner, which read a {kind}."
            )

    def _end_without_value(self) -> NoReturn:
        if self._withheld:
            _prune(self._trial, "Pruned: its answers were guesses, which say it is no better.")
        if problem := take_problem():
            raise PartialPassError(problem)
        reason = (
            "The holdout published no value for this trial: it ended before its first validation, "
            "or nothing was reported (shared.pruning(guard), or shared.report(metric.answer, step))"
        )
        warnings.warn(f"Trial {self._trial.number}: {reason}.", HoldoutWarning, stacklevel=3)
        _prune(self._trial, f"Pruned: {reason}.")

    def __repr__(self) -> str:
        return f"SharedTrial(trial={self._trial.number}, statistic={self._statistic!r})"


def claim(
    study: optuna.Study,
    holdout: ReusableHoldout,
    statistic: str | None = None,
    *,
    failure: float = 0.05,
) -> Claim:
    """Return the best released value of a study's trials, and its interval from the ledger.

    Complete and pruned trials count alike: a release stands, whatever became of the trial. The
    study only says which trial asked for which query of the ledger; whether that was a release, and
    its value, is read there. ``reask`` asks for the winner once more.

    Args:
        study: The study.
        holdout: The account its trials shared.
        statistic: What the study was about; may be left out if the holdout has only one.
        failure: Probability that any interval of a release is wrong.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> study = optuna.create_study(direction="maximize")
        >>> sums = holdout.accumulator("val_acc")
        >>> sums.update(torch.tensor([True, True, False, True]))
        >>> def objective(trial):
        ...     with sharing(trial, holdout) as shared:
        ...         shared.report(holdout.release("val_acc", sums, query="trial 0"), step=0)
        ...         return shared.value
        >>> study.optimize(objective, n_trials=1)
        >>> claim(study, holdout).value
        0.75
    """
    name = one_statistic(holdout, statistic)
    require_instance("study", study, optuna.Study)
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    account = holdout.account
    pointers = [
        pointer
        for trial in study.get_trials(deepcopy=False, states=states)
        for pointer in _pointers(trial, name, account)
    ]
    return best_claim(pointers, holdout, name, failure)


def _require_trial(trial: optuna.Trial) -> None:
    """Raise unless it is a trial of a study; Optuna wraps some, e.g. for several ranks."""
    if not isinstance(trial, optuna.trial.BaseTrial) or not hasattr(trial, "study"):
        raise InvalidArgumentError(
            f"Expected `trial` to be the trial of a study, but got {type(trial).__name__}."
        )


def _require_direction(study: optuna.Study, holdout: ReusableHoldout, name: str) -> None:
    wanted = f"{holdout.statistics[name].mode}imize"
    directions = [direction.name.lower() for direction in study.directions]
    if directions != [wanted]:
        raise InvalidArgumentError(
            f"Expected a study with direction {wanted!r}, because better is "
            f"{holdout.statistics[name].mode} for {name!r}, but it has {directions}. Use "
            f"optuna.create_study(direction={wanted!r})."
        )


def _pointers(trial: optuna.trial.FrozenTrial, name: str, account: str) -> Iterator[Pointer]:
    for key, mark in trial.user_attrs.items():
        prefix, _, position = key.rpartition(":")
        ours = prefix == f"torch_holdout:{name}" and isinstance(mark, dict)
        # A retried trial inherits the attributes of the failed one, which is not it; and a study
        # may have been begun on another account, whose positions mean other queries.
        if ours and (mark.get("trial"), mark.get("account")) == (trial.number, account):
            yield Pointer(str(trial.number), int(mark["step"]), int(position), account, name)


def _end(trial: optuna.Trial, holdout: ReusableHoldout, stale: str = "") -> NoReturn:
    _stop(trial.study)
    _prune(
        trial,
        f"{budget_spent(holdout)}: the study stops.{stale} claim(study, holdout) returns its best "
        f"release; more trials need a fresh holdout.",
    )


def _prune(trial: optuna.Trial, reason: str) -> NoReturn:
    trial.set_user_attr(PRUNED, reason)
    raise optuna.TrialPruned(reason)


def _stop(study: optuna.Study) -> None:
    with suppress(RuntimeError):  # raised outside of optimize(), where there is nothing to stop
        study.stop()
