"""A trial of a study on a sealed holdout: the study reads a display, the holdout shows nothing."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, final

from torch_holdout._shared.checks import require_instance, require_whole, shown
from torch_holdout._shared.configurations import plain
from torch_holdout._shared.tracebacks import without_frames
from torch_holdout.errors import BudgetExhaustedError, InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.queries import Named
from torch_holdout.holdout.run import Run
from torch_holdout.holdout.run_checks import account_closed
from torch_holdout.holdout.run_results import Evaluation
from torch_holdout.holdout.runs import TrialRun, trial_run
from torch_holdout.training.sealed_checks import sealed_keys
from torch_holdout.tuning.optuna.studies import (
    RUN,
    end,
    optuna,
    prune,
    require_trial,
    run_label,
    stop_spent,
    stored_runs,
    tries,
)
from torch_holdout.tuning.reporting import one_statistic, reporting_callback, require_shared
from torch_holdout.tuning.trial_runs import (
    end_silent,
    ended_runs,
    give_up_free,
    is_closed,
    open_runs,
    warn_if_erased,
)

SEALED = "sealed: its value is shown at closing"  # why a trial without a display tells nothing
_FIXED = (
    optuna.samplers.RandomSampler,
    optuna.samplers.GridSampler,
    optuna.samplers.QMCSampler,
    optuna.samplers.BruteForceSampler,
)


@contextmanager
def sealed_sharing(
    trial: optuna.Trial,
    holdout: ReusableHoldout,
    statistic: str | Sequence[str] | None,
    display: str | Sequence[str] | None,
) -> Iterator["SealedTrial"]:
    """Run a trial whose evaluations of the holdout are sealed: one run, counted once."""
    if is_closed(holdout):
        raise account_closed(holdout.name)
    if statistic is not None and not isinstance(statistic, str):
        raise InvalidArgumentError(
            f"Expected one statistic, which decides what is best in the trial's run, because a "
            f"sealed holdout tells the study none, but got {shown(statistic)}. Name the displays "
            f"of several objectives with display=[...], and their statistics after closing in "
            f"closed_study(study, holdout, [...])."
        )
    shared = SealedTrial(trial, holdout, statistic, display)
    if shared.display is None:
        _require_no_reaction(trial.study)
    warn_if_erased(holdout, stacklevel=6)  # the objective's line, so that it is shown once
    account, own = holdout.account, tries(trial)
    labels = [run_label(trial.study.study_name, each) for each in own]
    ids = [mark for each in own for mark in stored_runs(each, account)]
    earlier = open_runs(holdout, labels=labels, ids=ids)
    before = [mark for each in own[:-1] for mark in stored_runs(each, account)]
    ended = ended_runs(holdout, labels=labels[:-1], ids=before) if own[:-1] else []
    if holdout.exhausted and not earlier and not ended:
        end(trial, holdout)

    def begun(run: str) -> None:
        trial.set_user_attr(f"{RUN}{run}", {"trial": trial.number, "account": account})

    run = TrialRun(
        account, labels[-1], earlier=earlier, ended=ended, best=shared.statistic, begun=begun
    )
    with _settled(trial, holdout, run), trial_run(run):
        shared._made_by(run)
        yield shared
    _stop_if_spent(trial, holdout)
    shared._require_told()


@contextmanager
def _settled(trial: optuna.Trial, holdout: ReusableHoldout, run: TrialRun) -> Iterator[None]:
    """End the runs of a trial when it ends, also when it is pruned; give them up if it fails."""
    try:
        yield
    except BudgetExhaustedError:
        if not holdout.exhausted:
            raise  # of another holdout
        end(trial, holdout)
    except optuna.TrialPruned:
        end_silent(holdout, run.runs)  # what was evaluated counts
        raise
    except Exception as error:
        give_up_free(holdout, run.runs)
        if isinstance(error, KeyError) and any(error.args == (n,) for n in holdout.statistics):
            raise InvalidArgumentError(
                f"Expected nothing to read {error.args[0]!r}, which is sealed until holdout.close()"
                f". Return shared.value, the best that the display has shown, in place of "
                f"trainer.callback_metrics[{error.args[0]!r}]."
            ) from error
        raise
    end_silent(holdout, run.runs)


@final
class SealedTrial:
    """The trial inside ``sharing`` on a sealed holdout: tells the study what the display shows.

    Nothing of the holdout is told: its values wait for ``holdout.close()``.

    Attributes:
        statistic: Which statistic decides what is best in the trial's run.
        display: The names that the study reads; None for none.

    Example:
        >>> import torch, torch_holdout as th
        >>> from torch_holdout.tuning.optuna import sharing
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=20)
        >>> study = optuna.create_study()  # the display is a loss
        >>> with sharing(study.ask(), holdout, display="display_loss") as shared:
        ...     for epoch in range(3):
        ...         sums = holdout.accumulator("val_acc")
        ...         sums.update(torch.tensor([True, True, False, epoch > 1]))
        ...         _ = shared.evaluate({"val_acc": sums}, query=f"epoch {epoch}", step=epoch)
        ...         shared.report(1.0 / (epoch + 1), step=epoch)
        ...     study.tell(0, shared.value).value, isinstance(shared, SealedTrial)
        (0.3333333333333333, True)
    """

    def __init__(
        self,
        trial: optuna.Trial,
        holdout: ReusableHoldout,
        statistic: str | None = None,
        display: str | Sequence[str] | None = None,
    ) -> None:
        require_trial(trial)
        require_instance("holdout", holdout, ReusableHoldout)
        known = next(iter(holdout.statistics)) if statistic is None else statistic
        self.statistic = one_statistic(holdout, known)
        self.display = _checked_display(trial, holdout, display)
        self._trial = trial
        self._holdout = holdout
        self._direction = trial.study.directions[0]
        self._best: list[float] | None = None
        self._step = -1
        self._reason: str | None = None  # why the trial was pruned
        self._own: TrialRun | None = None
        self._run: Run | None = None

    @property
    def value(self) -> float:
        """The best value of the display so far, by the study's direction.

        Without one the trial is pruned, and says why.
        """
        return self.values[0]

    @property
    def values(self) -> list[float]:
        """The displays' values where the first of them was best: those of one model."""
        if self._reason is not None or self._best is None:
            self._end_without_value()
        return list(self._best)

    def pruning(self, guard: Any) -> Any:
        """Return a callback that reports the display after each validation, and prunes by it.

        It reads ``trainer.callback_metrics[display]`` and belongs to the guard's own Lightning
        package. A pruned fit ends in order: the Trainer stops, the run ends, its best weights are
        kept, and ``sharing`` raises ``TrialPruned``. One process per trial: DDP is refused.
        """
        require_shared(guard, self._holdout)
        hidden = sealed_keys(self._holdout, guard.dataloader_idx) & set(self.display or ())
        if hidden:
            raise _not_a_display(min(hidden), self._holdout)

        def tell(trainer: Any) -> None:
            if self.display is None or self._reason is not None:
                return
            step = max(trainer.current_epoch, self._step + 1)
            numbers = [_shown_as(trainer, name, self._holdout) for name in self.display]
            if self._heard(numbers, step):
                trainer.should_stop = True

        return reporting_callback("DisplayPruning", guard, tell)

    @without_frames  # which may hold values
    def evaluate(
        self,
        sums: Mapping[str, Any],
        *,
        query: Named,
        step: int | str | None = None,
    ) -> Evaluation:
        """Evaluate one model in the trial's run, in a plain loop; no value is shown.

        Args:
            sums: Values of the whole holdout by statistic, in any array; or sealed sums.
            query: Text, a weights fingerprint, a module in eval mode, or ``th.digest(model)``.
            step: How far the trial is.
        """
        if self._own is None:
            raise InvalidArgumentError(
                "Expected to be called inside `with sharing(trial, holdout) as shared:`, because "
                "the run ends with the block. Nothing was charged."
            )
        if self._run is None:
            self._run = self._holdout.run()
        told = None if step is None else str(step)
        return self._run.evaluate(sums, query=query, step=told)

    def resume(self) -> bool:
        """Go on with the run of the try that this trial repeats; return whether there is one.

        For a plain loop that goes on from that try's checkpoint, before its first evaluation.
        Otherwise a trial that is tried again starts over: the old run is given up, which is free.
        With Lightning ``fit(ckpt_path=...)`` goes on by itself.
        """
        return self._own is not None and self._own.go_on() is not None

    def report(self, value: float | Sequence[float], step: int) -> None:
        """Tell the study what the display shows, in a plain loop; prune if the pruner says so.

        Args:
            value: The display's number; with several displays, one for each.
            step: How far the trial is, comparable between trials.

        Raises:
            optuna.TrialPruned: If the pruner says so. The run ends, and its evaluations count.
        """
        if self.display is None:
            raise InvalidArgumentError(
                "Expected a display to report, but sharing was called without one. Write "
                "sharing(trial, holdout, display='display_loss'), and report the number that it "
                "shows. Nothing was charged."
            )
        listed = list(value) if isinstance(value, list | tuple) else [value]
        numbers = [_number(each) for each in listed]
        if len(numbers) != len(self.display):
            raise InvalidArgumentError(
                f"Expected a number for each of the displays {list(self.display)}, but got "
                f"{len(numbers)}. Nothing was charged."
            )
        require_whole("step", step, 0, 2**62)
        if self._heard(numbers, int(step)):
            self._require_told()

    def _made_by(self, run: TrialRun) -> None:
        self._own = run

    def _heard(self, numbers: list[float], step: int) -> bool:
        """Tell the study what the displays show; return whether the trial is pruned by it."""
        self._step = step
        maximised = self._direction == optuna.study.StudyDirection.MAXIMIZE
        sign = -1 if maximised else 1
        if not any(map(math.isnan, numbers)) and (
            self._best is None or sign * numbers[0] < sign * self._best[0]
        ):
            self._best = numbers
        if len(self._trial.study.directions) > 1:
            return False  # Optuna prunes by one objective only
        self._trial.report(numbers[0], step)
        if not self._trial.should_prune():
            return False
        name = self.display[0] if self.display else ""
        self._reason = f"Pruned at step {step} by the study's pruner, which read {name!r}."
        return True

    def _require_told(self) -> None:
        """Prune the trial if the pruner said so, or if there is nothing to tell."""
        if self._reason is not None:
            prune(self._trial, self._reason)
        if self.display is None:
            prune(self._trial, SEALED)

    def _end_without_value(self) -> NoReturn:
        self._require_told()
        if self._own is not None and self._own.runs and self._step < 0:
            # So would every other trial, until the budget is gone.
            raise InvalidArgumentError(
                f"Expected the display {list(self.display or ())} to be reported, but this trial "
                f"has evaluated the holdout and told the study nothing. Add shared.pruning(guard) "
                f"to the Trainer's callbacks, or call shared.report(number, step) in a plain loop."
            )
        prune(
            self._trial,
            f"Pruned: the display {list(self.display or ())} has shown no number for this trial: "
            f"it ended before its first validation, or was NaN.",
        )

    def __repr__(self) -> str:
        return (
            f"SealedTrial(trial={self._trial.number}, statistic={self.statistic!r}, "
            f"display={self.display!r})"
        )


def _checked_display(
    trial: optuna.Trial, holdout: ReusableHoldout, display: str | Sequence[str] | None
) -> tuple[str, ...] | None:
    if display is None:
        return None
    names = (display,) if isinstance(display, str) else plain(display)
    if (
        not isinstance(names, list | tuple)
        or not names
        or not all(isinstance(name, str) and name for name in names)
    ):
        raise InvalidArgumentError(
            f"Expected `display` to name what the study reads, e.g. 'display_loss', or a list of "
            f"such names for several objectives, but got {shown(display)}."
        )
    for name in names:
        if name in holdout.statistics:
            raise _not_a_display(name, holdout)
    objectives = len(trial.study.directions)
    if len(names) > objectives:
        raise InvalidArgumentError(
            f"Expected at most one display for each of the study's {objectives} objectives, but "
            f"got {list(names)}. Use optuna.create_study(directions=[...]) for several."
        )
    return tuple(names)


def _not_a_display(name: str, holdout: ReusableHoldout) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Expected `display` to name what may be watched, but {name!r} is a statistic of holdout "
        f"{holdout.name!r}, which is sealed. Cut a display from the training data "
        f"(display, rest = th.split(train_set, display=0.1, seed=0)), validate it as a public "
        f"loader (HoldoutGuard(..., public_dataloaders=(1,))) and log it under a name of its own, "
        f"e.g. 'display_loss'. Nothing was charged."
    )


def _shown_as(trainer: Any, name: str, holdout: ReusableHoldout) -> float:
    """Return what a display has shown in this validation."""
    value = trainer.callback_metrics.get(name)
    if value is None:
        known = sorted(key for key in trainer.callback_metrics if not key.startswith("holdout/"))
        raise InvalidArgumentError(
            f"Expected the display {name!r} to be logged in the validation, but there is only "
            f"{known}. Log it for a public loader, self.log({name!r}, ..., "
            f"add_dataloader_idx=False) with HoldoutGuard(..., public_dataloaders=(1,)), or name "
            f"one of these in sharing(..., display=...)."
        )
    return float(value)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        kind = type(value).__name__
    raise InvalidArgumentError(
        f"Expected the number that a display shows, but got {kind}. A sealed holdout has no answer "
        f"to report: evaluate it with shared.evaluate({{name: sums}}, query=...). Nothing was "
        f"charged."
    )


def _require_no_reaction(study: optuna.Study) -> None:
    """Raise unless the sampler proposes without values: a sealed holdout tells it none."""
    sampler = study.sampler
    while isinstance(sampler, optuna.samplers.PartialFixedSampler):
        sampler = sampler._base_sampler
    if not isinstance(sampler, _FIXED):
        raise InvalidArgumentError(
            f"Expected a display, or a sampler that does not react to values, because a sealed "
            f"holdout tells the study none, but got {type(sampler).__name__}. Write sharing(trial, "
            f"holdout, display='display_loss'), or optuna.create_study(sampler="
            f"optuna.samplers.RandomSampler(seed=0)); GridSampler, QMCSampler and "
            f"BruteForceSampler will do as well. Nothing was charged."
        )


def _stop_if_spent(trial: optuna.Trial, holdout: ReusableHoldout) -> None:
    """Stop the study when the budget is spent, unless another trial may yet be tried again."""
    if holdout.budget_left:
        return
    waiting = (optuna.trial.TrialState.RUNNING, optuna.trial.TrialState.WAITING)
    others = trial.study.get_trials(deepcopy=False, states=waiting)
    if all(each.number == trial.number for each in others):
        stop_spent(trial.study, holdout)
