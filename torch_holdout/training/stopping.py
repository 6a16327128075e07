"""What a guard does with a sealed holdout: one run a fit, which says when to stop, or nothing."""

import logging
from pathlib import Path
from typing import Any, final

from torch_holdout._fingerprints.weights import is_sharded
from torch_holdout._shared.distributed import on_any_rank, on_first_rank, rank_and_world
from torch_holdout._shared.text import counted
from torch_holdout.errors import BudgetExhaustedError
from torch_holdout.holdout.run import Run
from torch_holdout.holdout.run_results import Evaluation as Said
from torch_holdout.holdout.run_results import Outcome
from torch_holdout.holdout.runs import current_trial
from torch_holdout.mechanisms import Patience
from torch_holdout.mechanisms.sealed import Sealed
from torch_holdout.training.best_weights import (
    KeptWeights,
    Ring,
    TwoBuffers,
    Weights,
    lent,
    whole_state,
    written,
)
from torch_holdout.training.evaluation import Evaluation
from torch_holdout.training.guarding import Guarding
from torch_holdout.training.publishing import SealedCounts, publish_sealed
from torch_holdout.training.requirements import in_this_process, require_one_process
from torch_holdout.training.runs import planned_validations
from torch_holdout.training.sealed_checks import (
    LIGHTNING,
    Words,
    ended_with,
    ending,
    no_run_to_validate,
    require_no_averaging,
    require_no_plateaus,
    require_no_tuners,
    require_no_watchers,
    require_one_restorer,
    require_stoppable,
)

_FOLDER = "holdout_runs"
_log = logging.getLogger("torch_holdout")


@final
class SealedCourse:
    """The course of a guard's runs on a sealed holdout.

    Every pass has the same work, whatever it was worth: its weights are copied, its sums are
    recorded, its number is logged. Which pass is the best so far stays in here.

    Attributes:
        outcome: How the run of the last fit ended; None while it is open.
        best_model_path: The file of its best weights, if the run has named them.
    """

    _in_trial = False  # whether it was sent here by a trial of a sweep

    def __init__(
        self,
        stop: Patience | None,
        keep: str | Path | None,
        *,
        restore: bool,
        words: Words = LIGHTNING,
    ) -> None:
        self._stop = stop
        self._words = words
        self._keep = None if keep is None else Path(keep)
        self._restore = restore
        self._due = False  # whether a fit has yet to take up its run
        self._resumed: str | None = None
        self._weights: KeptWeights | None = None
        self._begin(None)

    def _begin(self, run: Run | None) -> None:
        self._run = run
        self.outcome: Outcome | None = None
        self.best_model_path: str | None = None
        self._counts = (0, 0)  # evaluations and passes

    def state(self) -> dict[str, Any]:
        """Return the run's id, and nothing of its values."""
        return {"last": {}, "run": None if self._run is None or self._due else self._run.id}

    def load(self, guard: Guarding, state: dict[str, Any]) -> None:
        """Take over the run of a checkpoint that is resumed; an evaluation leaves its own."""
        if guard._fitting:
            self._resumed = state.get("run")

    def set_up(self, guard: Guarding, trainer: Any, *, fits: bool) -> None:
        """Refuse what would read a value, or go on after the stop; before anything runs."""
        if not fits:
            if self._run is None or self._run.id is None:
                raise no_run_to_validate(guard.holdout, self._words)
            return
        self.refuse_ranks(trainer)
        others = [callback for callback in trainer.callbacks if callback is not guard]
        require_no_watchers(others, guard.holdout, guard.dataloader_idx)
        require_no_tuners(others)
        if self._stop is not None:
            require_stoppable(trainer, self._stop)
            if self._restore:
                require_no_averaging(others)
                require_one_restorer([guard, *(o for o in others if isinstance(o, type(guard)))])
        self._due, self._resumed = True, None
        if guard.public_dataloaders and trainer.is_global_zero:
            _log.info(
                "Holdout %r shows nothing; loaders %s may be watched. What the step logs for "
                "loader i is monitored as '<name>/dataloader_idx_i', or as '<name>' when it is "
                "logged with add_dataloader_idx=False.",
                guard.holdout.name,
                list(guard.public_dataloaders),
            )

    def refuse_ranks(self, trainer: Any) -> None:
        """Raise if a trial of a sweep has several ranks, which do not know its run."""
        if self._in_trial or current_trial() is not None:
            require_one_process(trainer)

    def fit_starts(self, guard: Guarding, trainer: Any) -> None:
        """Refuse schedulers that read a value, which are known now, and runs beyond the budget."""
        require_no_plateaus(trainer, guard.holdout, guard.dataloader_idx)
        if not trainer.strategy.restore_checkpoint_after_setup:
            self._take_up(guard, trainer)

    def training_starts(self, guard: Guarding, trainer: Any) -> None:
        """Take up the run; say so if its patience or its plan does not suit this fit."""
        self._take_up(guard, trainer)
        planned, stop = planned_validations(trainer), self._stop
        mechanism = guard.holdout.mechanism
        if planned is not None and isinstance(mechanism, Sealed) and trainer.is_global_zero:
            possible = self._counts[1] + planned
            if mechanism.epsilon is None and possible > mechanism.evaluations:
                _log.warning(
                    "Holdout %r was made with Sealed(evaluations=%d), but this run may have %s: "
                    "those beyond the plan get wider intervals. Validate less often, or plan for "
                    "more with the next holdout.",
                    guard.holdout.name,
                    mechanism.evaluations,
                    counted(possible, "validation"),
                )
        if planned is not None and stop is not None and trainer.is_global_zero:
            possible = self._counts[1] + planned
            if self._resumed is None and possible < stop.earliest_stop:
                _log.warning(
                    "Holdout %r: this fit has %s, and %s cannot stop it before pass %d. It runs to "
                    "its end, and the best is named then.",
                    guard.holdout.name,
                    counted(planned, "validation"),
                    stop,
                    stop.earliest_stop,
                )

    def confirmed(self, module: Any) -> None:
        """Copy the weights of a pass: in every pass, and where they were evaluated."""
        if self._weights is not None:
            self._weights.copy(module)

    def finish(self, guard: Guarding, trainer: Any, evaluation: Evaluation) -> None:
        """Make a pass of the run; stop the Trainer if it says so."""
        if self._run is None or self._weights is None or trainer.state.fn != "fit":
            self._repeat(guard, evaluation)
            return
        passed = evaluation.passed(self._run, _step(trainer))
        self._weights.judge(passed, str(self._run.id))
        said = passed.evaluation
        del passed
        self.outcome = self._run.outcome if said.stop else None
        self._publish(guard, trainer, said)
        if said.stop:
            trainer.should_stop = True
            if self.outcome is not None and trainer.is_global_zero:
                _log.warning(
                    "Holdout %r: %s; the best is %s.",
                    guard.holdout.name,
                    ending(self.outcome),
                    self.outcome.best_evaluation,
                )

    def training_ends(self, guard: Guarding, trainer: Any, module: Any) -> None:
        """End the run, put its best weights back, and write them to a file."""
        run, kept = self._run, self._weights
        if run is None or run.id is None or kept is None:
            return
        _, world = rank_and_world()
        self.outcome = on_first_rank(world, run.end)
        best = None if self.outcome is None else kept.best(self.outcome.best_evaluation)
        if on_any_rank(best is None):
            self._miss(guard)
        elif best is not None:
            self._hand_over(guard, trainer, module, best, run)
        self._weights = None
        kept.forget()

    def broken_off(self, guard: Guarding, trainer: Any) -> None:
        """Leave the run open, and say how to go on with it."""
        run, passes = self._run, self._counts[1]
        if run is None or run.id is None:
            return
        if self.outcome is not None:
            if rank_and_world()[1] == 1:  # other ranks may not have failed: none waits for them
                self.training_ends(guard, trainer, trainer.lightning_module)
            return
        if trainer.state.fn == "fit" and trainer.is_global_zero:
            free = self._stop is None or passes < self._stop.earliest_stop
            trial = current_trial(guard.holdout.account)
            given_up = trial is not None and not trial.keeps_open
            _log.warning(
                "Holdout %r: %sthe run stays open after %s. %s goes on with it; "
                "holdout.run(resume=%r).%s.",
                guard.holdout.name,
                "unless this trial fails, which gives its run up, " if given_up else "",
                counted(passes, "pass"),
                self._words.resume,
                run.id,
                "give_up() gives it up, for free unless another run has said something since"
                if free
                else "end() ends it",
            )

    def leave(self) -> None:
        """Free the copies of a fit that was broken off; files stay for the run that goes on."""
        self._weights = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy made during a run is not part of it. Where it is sent to another process, only it
        # can tell that it was in a trial.
        in_trial = self._in_trial or current_trial() is not None
        return {**vars(self), "_run": None, "_weights": None, "_in_trial": in_trial}

    def __repr__(self) -> str:
        return "<course of a sealed run>"

    def _take_up(self, guard: Guarding, trainer: Any) -> None:
        """Make the run of this fit, or go on with that of the checkpoint; begun with a pass."""
        if not self._due:
            return
        holdout, stop, name = in_this_process(guard.holdout), self._stop, guard._label()
        best = next(iter(holdout.statistics)) if stop is None else None
        if (trial := current_trial(holdout.account)) is not None:
            best = trial.best if stop is None and trial.best is not None else best
            # A checkpoint may come from another trial, whose run this is not.
            self._resumed = trial.own(self._resumed)
        try:
            run = holdout.run(stop=stop, best=best, name=name, resume=self._resumed)
        except BudgetExhaustedError as error:
            raise BudgetExhaustedError(
                f"{error} In a Trainer, {self._words.resume.removeprefix('trainer.')} goes on with "
                f"the open run of a checkpoint."
            ) from None
        if run.outcome is not None:
            raise ended_with(run.outcome, run._weights_path, self._words)
        self._due, self._resumed = False, run.id
        self._begin(run)
        self._weights = self._keeping(guard, trainer.lightning_module)

    def _keeping(self, guard: Guarding, module: Any) -> KeptWeights:
        mechanism = guard.holdout.mechanism
        noisy = isinstance(mechanism, Sealed) and mechanism.epsilon is not None
        if self._keep is None or self._stop is None or noisy:
            if self._resumed is not None and self._stop is None:
                guard._warn_once(
                    "the best weights of this run will not be kept: it is silent, and was resumed, "
                    "so the best may lie before the checkpoint"
                )
            # With noise the best of a silent run would leave in the file, and nobody has paid.
            unpaid = noisy and self._stop is None
            return TwoBuffers(whole=self._resumed is None and not unpaid)
        rank, _ = rank_and_world()
        sharded = is_sharded(module)
        ring = Ring(
            self._keep,
            self._stop.patience + 1,
            rank=rank if sharded else None,
            writes=sharded or rank == 0,
            resume=self._words.resume,
        )
        if self._resumed is not None:
            ring.of_run(self._resumed)
        return ring

    def _repeat(self, guard: Guarding, evaluation: Evaluation) -> None:
        """Take known weights again, which says and records nothing."""
        if self._run is None or self._run.id is None:
            raise no_run_to_validate(guard.holdout, self._words)
        evaluation.recall(self._run)

    def _publish(self, guard: Guarding, trainer: Any, said: Said) -> None:
        holdout = guard.holdout
        mechanism = holdout.mechanism
        self._counts = (max(self._counts[0], said.number), max(self._counts[1], said.passes))
        evaluations, passes = self._counts
        price = 0.0 if self.outcome is None else self.outcome.price
        if self.outcome is None and isinstance(mechanism, Sealed):
            price = mechanism.price(state="open", passes=passes, patience=self._stop, best=None)
        _, world = rank_and_world()
        left = on_first_rank(world, lambda: holdout.budget_left)
        counts = SealedCounts(evaluations, passes, price, left)
        publish_sealed(trainer, guard._joined(), holdout, counts, guard.prog_bar)

    def _hand_over(
        self, guard: Guarding, trainer: Any, module: Any, best: Weights, run: Run
    ) -> None:
        """Write the best weights; a silent run leaves the module as it is, which would tell."""
        silent = self.outcome is None or self.outcome.best_evaluation is None
        if self._restore and not silent:
            best.put_back(module)
            state = whole_state(module)
        else:
            with lent(module, best):
                state = whole_state(module)
        trial = current_trial(guard.holdout.account)
        folder = self._keep or (trial and trial.folder)
        folder = folder or _local(trainer.default_root_dir) / _FOLDER
        path = str((folder / f"{run.id}.pt").absolute())

        def write() -> bool:
            there = written(Path(path), state)
            if there:
                run._keep_weights(path)
            return there

        _, world = rank_and_world()
        if not on_first_rank(world, write):
            guard._warn_once(f"the best weights could not be written to {path}")
        elif not silent:
            self.best_model_path = path

    def _miss(self, guard: Guarding) -> None:
        """Say why the best weights are not there."""
        if self.outcome is None or self.outcome.best_evaluation is None:
            return  # a silent run was told when it was resumed
        guard._warn_once(
            f"the weights of the best evaluation ({self.outcome.best_evaluation}) are not "
            f"available, because it lies before the checkpoint that was resumed, and copies in "
            f"memory ended with that process; the module keeps its last weights. Another time "
            f"write {self._words.keep}: the last passes are kept in files then"
        )


def _step(trainer: Any) -> str:
    """Return which pass of the training loop this is, also after resuming."""
    # Not the global step alone: with accumulated gradients it stays while batches go on.
    return f"epoch {trainer.current_epoch}, batch {trainer.fit_loop.epoch_loop.total_batch_idx}"


def _local(root: str) -> Path:
    """Return a folder of this machine."""
    return Path.cwd() if "://" in str(root) else Path(root)
