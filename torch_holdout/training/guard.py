"""The hooks of ``HoldoutGuard``, without a base class: each Lightning package binds them once."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch_holdout._shared.checks import (
    require_choice,
    require_instance,
    require_text,
    require_whole,
)
from torch_holdout._shared.configurations import plain
from torch_holdout._shared.tracebacks import empty_frames
from torch_holdout.errors import HoldoutClosedError, HoldoutError
from torch_holdout.holdout.protocol import require_door
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.run_results import Outcome
from torch_holdout.holdout.runs import current_run, named_run
from torch_holdout.mechanisms import Patience
from torch_holdout.training.answering import LiveCourse
from torch_holdout.training.data_check import DataCheck
from torch_holdout.training.evaluation import Evaluation
from torch_holdout.training.first_look.first_batches import FirstBatches
from torch_holdout.training.guarded_pass import PassHooks
from torch_holdout.training.guesses import require_guesses
from torch_holdout.training.interception import MetricWatch
from torch_holdout.training.logged_steps import require_whole_names
from torch_holdout.training.publishing import name_of_run
from torch_holdout.training.requirements import (
    checked_indices,
    checked_public,
    require_batches,
    require_loggable,
    require_one_step,
    require_own_examples,
    require_step_function,
    require_whole_loader,
    step_of,
)
from torch_holdout.training.runs import (
    GuardedRun,
    explain_epoch_end,
    require_idle,
    require_sequential,
    require_step,
    set_up,
    unguarded_tests,
)
from torch_holdout.training.sealed_checks import explain_missing_value, require_sealed_arguments
from torch_holdout.training.session import GuardSession
from torch_holdout.training.stopping import SealedCourse
from torch_holdout.training.stopping_advice import say_why_stopped, stopping_advice

if TYPE_CHECKING:  # a command line builds a holdout of this process; code may bring any door
    from torch_holdout.holdout.protocol import Door as Holdout
else:
    from torch_holdout.holdout.door import ReusableHoldout as Holdout

Course = LiveCourse | SealedCourse


class HoldoutGuardHooks(PassHooks):
    """All of ``HoldoutGuard`` but its base class, the ``Callback`` of a Lightning package.

    The bound classes take the docstring of ``__init__``, the text for users, as their own.
    """

    _session: GuardSession | None = None  # from setup to teardown

    def __init__(
        self,
        holdout: Holdout,
        guess_dataloaders: Any = None,
        unguarded: Literal["raise", "drop"] = "raise",
        public: Sequence[str] = (),
        on_exhausted: Literal["stop", "freeze", "raise"] = "stop",
        dataloader_idx: int = 0,
        stage: Literal["validate", "test"] = "validate",
        public_dataloaders: Sequence[int] = (),
        version: str = "",
        prog_bar: bool = True,
        run: str | None = None,
        check_data: bool = True,
        stop: Patience | None = None,
        keep: str | Path | None = None,
        restore: bool = True,
        step: Callable[[Any, Any, int], Mapping[str, Any]] | None = None,
    ) -> None:
        """Route validation through a holdout, so that every decision reads only guarded values.

        The guarded step returns ``{statistic: per-example values}`` and logs nothing; the guard
        accumulates on the device, asks the holdout once per full pass, and logs the answers in
        ``on_validation_epoch_end``, before EarlyStopping, ModelCheckpoint, schedulers, loggers and
        the progress bar read them. It logs each statistic under its own name, and
        ``holdout/budget_left``, ``holdout/releases``, ``holdout/exhausted``,
        ``holdout/<statistic>/is_release`` and ``.../is_stale`` (with several guards
        ``holdout/<holdout>/...``). The progress bar shows the statistics, and the budget left as
        ``left``. A module that defines ``holdout_step(batch, batch_idx)`` has that called instead
        of its ``validation_step``; a module that cannot be edited is guarded by ``step=``, or by
        ``th.LoggedMean`` statistics, which take what its own step logs for each batch.

        Args:
            holdout: The account.
            guess_dataloaders: Training examples for a mechanism that compares with the training
                value, e.g.
                ``DataLoader(th.fixed_subset(train_set, 1000, seed=0), batch_size=500)``.
            unguarded: What happens to any other ``self.log``, and any other metric that is updated,
                during validation: ``"raise"``, or ``"drop"`` it with one warning.
            public: Keys that may be logged as they are (learning rate, ...), and names of
                attributes, metrics and functions that may keep or read what they do.
            on_exhausted: ``"stop"`` the Trainer, ``"freeze"`` (go on; the last answer is repeated,
                marked stale), or ``"raise"``.
            dataloader_idx: Which validation loader is this holdout.
            stage: ``"validate"`` (in ``fit`` and ``validate``) or ``"test"``.
            public_dataloaders: Other loaders, without records of the holdout's, that may be
                evaluated without a guard.
            version: Whatever else decides the values (preprocessing, decoding, ...).
            prog_bar: Whether values and the budget are shown in the progress bar.
            run: What the run is called in the report; None: the logger's folder, or when it
                started.
            check_data: Whether the records of the loaders' datasets are compared with the account,
                once for each dataset, before anything is trained: at most 20,000 in 2 seconds.
            stop: For a sealed holdout: what stops the fit, e.g. ``th.Patience("val_loss", 10)``.
                Nothing is logged but counts and prices; when training ends, the best weights are
                put back into the module and written to ``guard.best_model_path``, for
                ``net.load_state_dict(torch.load(path))``; ``guard.outcome`` says how the run ended.
                Without it the run shows nothing: its best weights wait in a file for
                ``holdout.close().load_best(model)``.
            keep: For a sealed holdout: a folder for files of weights; None: copies in memory, and
                one file below ``default_root_dir``. With ``stop`` the last passes are kept there,
                so that the best weights survive a crash.
            restore: Whether the best weights are put back when training ends.
            step: ``fn(module, batch, batch_idx)`` that returns ``{statistic: per-example values}``;
                called instead of the module's own step. The module's ``on_validation_batch_end``
                and ``on_validation_epoch_end``, which may read what its own step made, are not run
                then, and a line in the log says so; hooks of callbacks are.

        Example:
            >>> import torch_holdout as th
            >>> from torch_holdout.lightning import HoldoutGuard  # or .pytorch_lightning
            >>> holdout = th.ReusableHoldout(
            ...     "memory://", name="val", size=500, statistics={"val_acc": th.ZeroOne()},
            ...     mechanism=th.Ladder(step=0.01), budget=20)
            >>> guard = HoldoutGuard(holdout, public=("lr",))  # for Trainer(callbacks=[guard, ...])
            >>> guard.on_exhausted, guard.holdout.budget_left
            ('stop', 20)
            >>> sealed = th.ReusableHoldout(
            ...     "memory://", name="val", size=500, statistics={"val_acc": th.ZeroOne()},
            ...     mechanism=th.Sealed(evaluations=200), budget=1)
            >>> guard = HoldoutGuard(sealed, stop=th.Patience("val_acc", patience=10))
            >>> guard.outcome, guard.best_model_path  # until a fit has ended
            (None, None)
        """
        super().__init__()
        guess_dataloaders, stop = plain(guess_dataloaders), plain(stop)
        require_door("holdout", holdout)
        require_choice("unguarded", unguarded, ("raise", "drop"))
        require_choice("on_exhausted", on_exhausted, ("stop", "freeze", "raise"))
        require_choice("stage", stage, ("validate", "test"))
        require_whole("dataloader_idx", dataloader_idx, 0, 10**6)
        require_instance("version", version, str)
        require_instance("check_data", check_data, bool)
        require_loggable(holdout.statistics)
        require_sealed_arguments(
            holdout, stop=stop, keep=keep, restore=restore, stage=stage, on_exhausted=on_exhausted
        )
        if run is not None:
            require_text("run", run)
        if step is not None:
            require_step_function(step)
        self.holdout = holdout
        self.guess_dataloaders = guess_dataloaders
        self.unguarded = unguarded
        self.public = checked_public(public, holdout.statistics)
        self.on_exhausted = on_exhausted
        self.dataloader_idx = dataloader_idx
        self.stage = stage
        self.public_dataloaders = checked_indices(public_dataloaders)
        self.version = version
        self.prog_bar = prog_bar
        self.run = run
        self._started_as = ""
        self.answers: dict[str, Answer] = {}
        self.stop = stop
        self.restore = restore
        self.step = step
        live = holdout.mechanism.shows_values
        self._course: Course = LiveCourse() if live else SealedCourse(stop, keep, restore=restore)
        self._warned: set[str] = set()
        self._evaluation: Evaluation | None = None
        self._watch = MetricWatch([])
        self._first_batches = FirstBatches()
        self._data = DataCheck(holdout, check_data=check_data)

    # ---- what Lightning calls

    @property
    def state_key(self) -> str:
        """The guard's key in a checkpoint, different for each guard of a Trainer."""
        return f"HoldoutGuard[{self.holdout.name}, {self.stage}, {self.dataloader_idx}]"

    @property
    def outcome(self) -> Outcome | None:
        """How the sealed run of the last fit ended; None while it is open."""
        return self._course.outcome

    @property
    def best_model_path(self) -> str | None:
        """The file of the best weights of the last fit, a ``state_dict``, once a run named them."""
        return self._course.best_model_path

    def state_dict(self) -> dict[str, Any]:
        """Return the last published values, or a sealed run's id. The ledger does not rewind."""
        return self._course.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the last published values, or the sealed run, of the fit that is resumed."""
        self._course.load(self, state_dict)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Check the Trainer and the holdout before anything runs, then intercept the module."""
        if not self._applies(stage):
            return
        require_idle(self._current, self.holdout)
        require_whole_loader(trainer, self.stage)
        require_own_examples(trainer)
        guards = [
            callback
            for callback in trainer.callbacks
            if isinstance(callback, HoldoutGuardHooks) and callback.stage == self.stage
        ]
        step = step_of(self.stage)
        if self.step is None:
            require_step(pl_module, step)
            require_batches(getattr(pl_module, step))
        elif self.stage == "validate":
            require_one_step(pl_module)
        require_guesses(self.holdout, self.guess_dataloaders)
        require_whole_names(trainer, self.holdout.statistics)
        self._started_as = name_of_run(trainer)
        self._course.set_up(self, trainer, fits=stage == "fit")
        self._warned = set()
        self._first_batches = self._first_batches.for_run(pl_module, fits=stage == "fit")
        self._current = GuardedRun(trainer, self.holdout, self.stage, self.dataloader_idx)
        if guards[0] is self:
            self._session = GuardSession(guards, trainer, pl_module, step)
        else:
            self._session = guards[0]._session
        for advice in stopping_advice(trainer, self.holdout) if stage == "fit" else ():
            self._warn_once(advice)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Put the module and the callbacks back as they were."""
        self._end_session(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Put everything back also when the run fails: Lightning calls no teardown then."""
        explain_epoch_end(pl_module, exception)
        explain_missing_value(exception, self.holdout, self.dataloader_idx)
        if isinstance(exception, HoldoutError):
            empty_frames(exception)  # Lightning's own hold the batch too
        elif isinstance(self._course, SealedCourse):
            self._course.refuse_ranks(trainer)  # spawned ones fail before setup, when pickled
        own = self._current is not None and trainer is self._current.trainer
        if own and not isinstance(exception, HoldoutClosedError):  # then nothing is open
            self._course.broken_off(self, trainer)
        self._end_session(trainer)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Check the schedulers, which are known now, and whether a sealed run can begin."""
        if self._current is not None:
            self._course.fit_starts(self, trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check the loader, and show a resumed run its last values."""
        if self._current is not None:
            if reason := self._current.training_starts():
                self._warn_once(reason)
            self._course.training_starts(self, trainer)
        if self.stage == "validate":
            self._check_data(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that every loader is guarded or declared public."""
        if self.stage == "validate":
            sanity = trainer.sanity_checking
            batches = trainer.num_sanity_val_batches if sanity else trainer.num_val_batches
            require_sequential(trainer, self.stage)
            self._joined().require_guarded(len(batches), self.stage)
            self._joined().wrap_new_hooks(trainer)
            self._running().check_loader()

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that every loader is guarded or declared public, or has other records."""
        if self.stage == "validate":
            self._data.refuse_tested(unguarded_tests(trainer, HoldoutGuardHooks))
        else:
            require_sequential(trainer, self.stage)
            self._joined().require_guarded(len(trainer.num_test_batches), self.stage)
            self._joined().wrap_new_hooks(trainer)
            self._running().check_loader()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End a sealed run, and put its best weights back."""
        if self._current is not None:
            self._course.training_ends(self, trainer, pl_module)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Say so if a fit that trained has never asked the holdout, and why it was stopped."""
        if self._current is not None and (reason := self._current.fit_ends()):
            self._warn_once(reason)
        say_why_stopped(trainer, self.holdout)

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start a pass."""
        if trainer.testing == (self.stage == "test"):
            self._check_data(trainer)
            self._start(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Ask the holdout and publish its answers."""
        if trainer.testing == (self.stage == "test"):
            self._finish(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Look once more for metrics: the module's own epoch end comes after the guard's."""
        self._refuse_metrics()

    on_test_epoch_start = on_validation_epoch_start
    on_test_epoch_end = on_validation_epoch_end
    on_test_end = on_validation_end

    # ---- after a pass

    def _finish(self, trainer: Any) -> None:
        evaluation, self._evaluation = self._evaluation, None
        if evaluation is None:
            return
        self._refuse_metrics()  # also those updated in a hook after the last step
        if trainer.sanity_checking:
            return
        self._running().asked = True
        with named_run(self._label()):
            self._course.finish(self, trainer, evaluation)

    # ---- helpers

    def _applies(self, stage: str) -> bool:
        return stage in (("fit", "validate") if self.stage == "validate" else ("test",))

    @property
    def _fitting(self) -> bool:
        return self._current is not None and self._current.trainer.state.fn == "fit"

    def _label(self) -> str:
        """Return what the run is called in the report."""
        return self.run or current_run() or self._started_as

    def _joined(self) -> GuardSession:
        return set_up(self._session)

    def _end_session(self, trainer: Any) -> None:
        if self._current is None or trainer is not self._current.trainer:
            return  # another run, refused while this one goes on
        self._evaluation, self._watch, self._current = None, MetricWatch([]), None
        self._course.leave()
        if self._session is not None:
            self._session.restore()
            self._session = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy made during a run is not part of it.
        parts = ("_session", "_current", "_evaluation", "_inside")
        return {**vars(self), **dict.fromkeys(parts), "_watch": MetricWatch([])}
