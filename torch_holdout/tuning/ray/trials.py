"""A running trial of Ray Tune: the holdout it shares, its sealed run, and what it tells Tune."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, final

import pyarrow.fs
from ray import tune

from torch_holdout._shared.checks import shown
from torch_holdout.errors import BudgetExhaustedError, InvalidArgumentError, PartialPassError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.runs import TrialRun, named_run, trial_run
from torch_holdout.training.metric import take_problem
from torch_holdout.training.requirements import budget_spent
from torch_holdout.tuning.claims import points_here
from torch_holdout.tuning.ray.results import ACCOUNT, EVALUATION, RUN, run_label
from torch_holdout.tuning.reporting import (
    asked_twice,
    one_statistic,
    require_sanity_check,
    tells_the_value,
    told_value,
)
from torch_holdout.tuning.trial_runs import ended_runs, give_up_free, open_runs

EXHAUSTED = "holdout_exhausted.txt"
PROBLEM = "holdout/problem"
SEALED = "holdout/sealed"

_log = logging.getLogger("torch_holdout")

Told = dict[str, float | int | bool | str]


@final
@dataclass(frozen=True)
class Sweep:
    """What the trials of a sweep share: the account, and what Tune may read besides it."""

    holdout: ReusableHoldout
    display: tuple[str, ...]
    statistic: str | None
    every: bool


@final
class RunningTrial:
    """A trial on a worker, and whether it has reported or withheld answers."""

    def __init__(self, sweep: Sweep) -> None:
        self.holdout = sweep.holdout
        self.display = sweep.display
        self.every = sweep.every
        self._statistic = sweep.statistic
        self.sealed = not sweep.holdout.mechanism.shows_values
        self.account = sweep.holdout.account
        self.reported = False
        self.withheld = False
        self._run: TrialRun | None = None
        self._asked: dict[str, int | None] = {}
        self._released: dict[str, float] = {}

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let the trial ask inside the block; raise if the budget is spent.

        A trial that starts from a checkpoint, be it another trial's, goes on with its own sealed
        run. One that starts without starts over: its new run takes the place of the old one. So
        does one whose run had ended before it was killed. A trial that fails before its first
        checkpoint gives its run up, if that is free.
        """
        tuning = tune.get_context()
        trial = tuning.get_trial_id()
        label = run_label(tuning.get_experiment_name(), trial)
        # Called without a Tuner it is not a trial, and follows none.
        known = self.sealed and trial is not None
        earlier = open_runs(self.holdout, labels={label}) if known else []
        ended = ended_runs(self.holdout, labels={label}) if known else []
        if self.holdout.exhausted and not earlier and not ended:
            end(self.holdout)
        if not self.sealed:
            with named_run(label):
                yield
            return
        run = self._run = TrialRun(
            self.account,
            label,
            earlier=earlier,
            ended=ended,
            goes_on=tune.get_checkpoint() is not None,
            best=self._statistic,
            folder=_weights_folder(tuning.get_storage()),
        )
        try:
            with trial_run(run):
                yield
        except Exception:
            if not run.keeps_open:
                give_up_free(self.holdout, run.runs)
            raise

    def tell(self, values: Mapping[str, Any], checkpoint: Any = None) -> None:
        """Report answers, or a display's numbers, to Tune."""
        told = self._displayed(values) if self.sealed else self._answered(values)
        if told is None:
            self.withheld = True
            return
        evaluated = None if self._run is None else self._run.evaluated()
        if evaluated is not None:
            stamp: Told = {RUN: evaluated[0], EVALUATION: evaluated[1]}
            told |= stamp
            if checkpoint is not None:
                checkpoint.update_metadata(stamp)
        if checkpoint is not None and self._run is not None:
            self._run.keeps_open = True
        self.reported = True
        tune.report(told, checkpoint=checkpoint)

    def tell_nothing(self) -> None:
        """Report NaN: Tune breaks off a sweep when a trial ends without its metric."""
        told: Told = {ACCOUNT: self.account}
        if self.sealed:
            told |= dict.fromkeys(self.display, math.nan)
        else:
            nothing = Answer(math.nan, "exhausted", self.holdout.budget_left)
            for name in self.holdout.statistics:
                told |= _row(name, nothing, nothing.value)
        tune.report(told)

    def _displayed(self, values: Mapping[str, Any]) -> Told:
        unknown = [name for name in values if name not in self.display]
        if unknown:
            raise undeclared(self.holdout, unknown, self.display)
        told: Told = {name: _number(name, value) for name, value in values.items()}
        return {**told, ACCOUNT: self.account, SEALED: sealed_until(self.holdout, self.display)}

    def _answered(self, answers: Mapping[str, Answer | None]) -> Told | None:
        told: Told = {ACCOUNT: self.account}
        for name, answer in answers.items():
            one_statistic(self.holdout, name)
            if answer is None:
                require_sanity_check(name)
                return None
            if answer.kind == "exhausted":
                end(self.holdout)
            here = points_here(answer, self.holdout, name)
            value = told_value(self.holdout, name, answer)
            if value is None:
                return None
            self._require_once(name, answer)
            if not here and answer.is_release:
                answer = replace(answer, position=None)  # of no release here: nothing to claim
            if tells_the_value(self.holdout.mechanism, answer):
                self._released[name] = value
            else:
                value = self._released.get(name, value)  # the trial's own release says more
                told[f"holdout/{name}/no_better"] = True
            told |= _row(name, answer, value)
        return told

    def _require_once(self, name: str, answer: Answer) -> None:
        if not self.every and self._asked.setdefault(name, answer.position) != answer.position:
            raise asked_twice(self.holdout, name, "train")


_running: ContextVar[RunningTrial | None] = ContextVar("running_trial", default=None)


def running_trial() -> RunningTrial:
    """Return the trial that this thread runs."""
    trial = _running.get()
    if trial is None:
        raise InvalidArgumentError(
            "Expected to be called in a trial of tune.Tuner(sharing(train, holdout)), so that all "
            "trials ask one account."
        )
    return trial


def run_trial(
    train: Callable[[dict[str, Any], ReusableHoldout], None], config: dict[str, Any], sweep: Sweep
) -> None:
    """Run one trial; a spent budget ends it in order."""
    trial = RunningTrial(sweep)
    take_problem()  # of another trial
    token = _running.set(trial)
    try:
        with trial.asking():
            train(config, sweep.holdout)
    except BudgetExhaustedError as error:
        _log.warning(str(error))
        note = Path(tune.get_context().get_trial_dir()) / EXHAUSTED
        note.write_text(f"{error}\n")
        trial.withheld = True
    except PartialPassError as error:
        # All trials have this loader. Tune ends the sweep over a result without its metric.
        tune.report({PROBLEM: str(error), "holdout/name": sweep.holdout.name})
        raise
    finally:
        _running.reset(token)
    # A trial with a checkpoint has reported before.
    if trial.withheld and not trial.reported and tune.get_checkpoint() is None:
        trial.tell_nothing()


def end(holdout: ReusableHoldout) -> NoReturn:
    """End the trial, because the budget is spent."""
    raise BudgetExhaustedError(f"{budget_spent(holdout)}: the trial ends.")


def sealed_until(holdout: ReusableHoldout, display: tuple[str, ...]) -> str:
    """Return the sentence that goes with every report: Tune quotes it if a metric is missing."""
    readable = (
        f"may name {', '.join(map(repr, display))}"
        if display
        else "names nothing: a searcher or scheduler that reacts needs sharing(..., display=...)"
    )
    sealed = ", ".join(map(repr, holdout.statistics))
    return f"{sealed} sealed until holdout.close(); TuneConfig(metric=...) {readable}"


def undeclared(
    holdout: ReusableHoldout, names: list[str], display: tuple[str, ...]
) -> InvalidArgumentError:
    """Return the error for metrics that were not declared as the display."""
    sealed = [name for name in names if name in holdout.statistics]
    advice = (
        f"Leave out {sealed[0]!r}: closed_results(results, holdout) has it after closing"
        if sealed
        else f"Name what searchers and schedulers read: sharing(train, holdout, "
        f"display={names[0]!r})"
    )
    return InvalidArgumentError(
        f"Expected to report metrics of the display {list(display)}, because the statistics of "
        f"holdout {holdout.name!r} are sealed, but got {shown(names)}. {advice}. Nothing was "
        f"reported."
    )


def _row(name: str, answer: Answer, value: float) -> Told:
    return {
        name: value,
        f"holdout/{name}/is_release": answer.is_release,
        f"holdout/{name}/position": -1 if answer.position is None else answer.position,
        "holdout/budget_left": answer.budget_left,
    }


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"Expected the display's {name!r} to be a number, but got {type(value).__name__}. A "
            f"sealed evaluation has no value to report. Nothing was reported."
        ) from None


def _weights_folder(storage: Any) -> Path | None:
    """Return where a guard keeps weights: the working directory goes with Ray's session."""
    local = storage is not None and isinstance(
        storage.storage_filesystem, pyarrow.fs.LocalFileSystem
    )
    return Path(storage.trial_fs_path) / "holdout_runs" if local else None
