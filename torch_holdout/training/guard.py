"""The hooks of ``HoldoutGuard``, without a base class: each Lightning package binds them once."""

import functools
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.nn.parallel import DistributedDataParallel

from torch_holdout._shared.checks import (
    require_choice,
    require_instance,
    require_text,
    require_whole,
)
from torch_holdout._shared.distributed import rank_and_world
from torch_holdout._shared.tracebacks import empty_frames
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutError,
    HoldoutWarning,
)
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.runs import current_run, named_run
from torch_holdout.training.data_check import DataCheck
from torch_holdout.training.evaluation import Evaluation
from torch_holdout.training.first_look.first_batches import FirstBatches
from torch_holdout.training.guesses import guess_batches, require_guesses
from torch_holdout.training.interception import MetricWatch, Step
from torch_holdout.training.publishing import name_of_run, publish, stop_if_spent
from torch_holdout.training.requirements import (
    budget_spent,
    checked_indices,
    checked_public,
    require_batches,
    require_loggable,
    require_own_examples,
    require_releases_left,
    require_whole_loader,
    step_of,
)
from torch_holdout.training.runs import (
    GuardedRun,
    explain_epoch_end,
    holdout_step_of,
    own_loader,
    require_idle,
    require_step,
    set_up,
)
from torch_holdout.training.session import GuardSession


class HoldoutGuardHooks:
    """All of ``HoldoutGuard`` but its base class, the ``Callback`` of a Lightning package.

    The bound classes take the docstring of ``__init__``, the text for users, as their own.
    """

    _session: GuardSession | None = None  # from setup to teardown
    _looks = True  # whether the first batch is shown as marked tensors
    _current: GuardedRun | None = None  # likewise

    def __init__(
        self,
        holdout: ReusableHoldout,
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
        of its ``validation_step``.

        Args:
            holdout: The account.
            guess_dataloaders: Training examples for a mechanism that compares with the training
                value, e.g.
                ``DataLoader(th.fixed_subset(train_set, 1000, seed=0), batch_size=500)``.
            unguarded: What happens to any other ``self.log``, and any other metric that is updated,
                during validation: ``"raise"``, or ``"drop"`` it with one warning.
            public: Keys that may be logged as they are (learning rate, ...).
            on_exhausted: ``"stop"`` the Trainer, ``"freeze"`` (go on; the last answer is repeated,
                marked stale), or ``"raise"``.
            dataloader_idx: Which validation loader is this holdout.
            stage: ``"validate"`` (in ``fit`` and ``validate``) or ``"test"``.
            public_dataloaders: Other loaders that may be evaluated without a guard.
            version: Whatever else decides the values (preprocessing, decoding, ...).
            prog_bar: Whether values and the budget are shown in the progress bar.
            run: What the run is called in the report; None: the logger's folder, or when it
                started.
            check_data: Whether the records of the loaders' datasets are compared with the account,
                once for each dataset, before anything is trained: at most 20,000 in 2 seconds.

        Example:
            >>> import torch_holdout as th
            >>> from torch_holdout.lightning import HoldoutGuard  # or .pytorch_lightning
            >>> holdout = th.ReusableHoldout(
            ...     "memory://", name="val", size=500, statistics={"val_acc": th.ZeroOne()},
            ...     mechanism=th.Ladder(step=0.01), budget=20)
            >>> guard = HoldoutGuard(holdout, public=("lr",))  # for Trainer(callbacks=[guard, ...])
            >>> guard.on_exhausted, guard.holdout.budget_left
            ('stop', 20)
        """
        super().__init__()
        require_instance("holdout", holdout, ReusableHoldout)
        require_choice("unguarded", unguarded, ("raise", "drop"))
        require_choice("on_exhausted", on_exhausted, ("stop", "freeze", "raise"))
        require_choice("stage", stage, ("validate", "test"))
        require_whole("dataloader_idx", dataloader_idx, 0, 10**6)
        require_instance("version", version, str)
        require_instance("check_data", check_data, bool)
        require_loggable(holdout.statistics)
        if run is not None:
            require_text("run", run)
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
        self._last: dict[str, float] = {}
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

    def state_dict(self) -> dict[str, Any]:
        """Return the last published values. Never the budget: the ledger does not rewind."""
        return {"last": dict(self._last)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the last published values of the run that is resumed."""
        self._last = {
            name: float(value)
            for name, value in state_dict.get("last", {}).items()
            if name in self.holdout.statistics
        }

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
        require_step(pl_module, step)
        require_batches(getattr(pl_module, step))
        require_guesses(self.holdout, self.guess_dataloaders)
        if stage == "fit":
            require_releases_left(self.holdout)
        self._started_as = name_of_run(trainer)
        self._last = {}  # a resumed run gets its own back from the checkpoint, after this
        self._warned = set()
        self._first_batches = self._first_batches.for_run(pl_module, fits=stage == "fit")
        self._current = GuardedRun(trainer, self.holdout, self.stage, self.dataloader_idx)
        if guards[0] is self:
            self._session = GuardSession(guards, trainer, pl_module, step)
        else:
            self._session = guards[0]._session

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Put the module and the callbacks back as they were."""
        self._end_session(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Put everything back also when the run fails: Lightning calls no teardown then."""
        explain_epoch_end(pl_module, exception)
        if isinstance(exception, HoldoutError):
            empty_frames(exception)  # Lightning's own hold the batch too
        self._end_session(trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Check the loader, and show a resumed run its last values.

        Not through ``log``: a stale one would win.
        """
        if self._current is not None and (reason := self._current.training_starts()):
            self._warn_once(reason)
        for name, value in self._last.items():
            trainer.callback_metrics[name] = torch.tensor(value)
        if self.stage == "validate":
            self._check_data(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that every loader is guarded or declared public."""
        if self.stage == "validate":
            sanity = trainer.sanity_checking
            batches = trainer.num_sanity_val_batches if sanity else trainer.num_val_batches
            self._joined().require_guarded(len(batches), self.stage)
            self._joined().wrap_new_hooks(trainer)
            self._running().check_loader()

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that every loader is guarded or declared public."""
        if self.stage == "test":
            self._joined().require_guarded(len(trainer.num_test_batches), self.stage)
            self._joined().wrap_new_hooks(trainer)
            self._running().check_loader()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Say so if a fit that trained has never asked the holdout."""
        if self._current is not None and (reason := self._current.fit_ends()):
            self._warn_once(reason)

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

    # ---- during a pass

    def _check_data(self, trainer: Any) -> None:
        self._data.run(own_loader(trainer, self.stage, self.dataloader_idx), self.guess_dataloaders)

    def _start(self, trainer: Any, pl_module: Any) -> None:
        if isinstance(trainer.strategy.model, DistributedDataParallel):
            # DDP shares buffers before the next step. Inside an accumulation it would not, and the
            # ranks would evaluate with a BatchNorm of their own each.
            trainer.strategy.model.require_forward_param_sync = True
        rank, world = rank_and_world()
        self._evaluation = Evaluation(
            self.holdout,
            pl_module,
            version=self.version,
            rank=rank,
            world=world,
            loader=self._running().loader,
        )
        self._watch = MetricWatch([pl_module, *trainer.callbacks])

    def _guarded_step(
        self, trainer: Any, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        module, evaluation = trainer.lightning_module, self._evaluation
        if evaluation is None:  # a tuner runs the module without its callbacks: nothing is read
            return
        own = holdout_step_of(module) if self.stage == "validate" else None
        run = own or functools.partial(step, **kwargs)
        sanity = trainer.sanity_checking
        if not (evaluation.started or sanity):
            evaluation.look_at_weights()
            for batch, counts in guess_batches(trainer, self.holdout, self.guess_dataloaders):
                values = run(batch, *args[1:])
                if counts:
                    evaluation.add_guess(values)
        self._refuse_metrics()  # those updated in a hook before the step
        output = self._shown(
            "holdout_step" if own else step_of(self.stage),
            lambda batch: run(batch, *args[1:]),
            args[0],
            trainer,
            used=not sanity,
        )
        evaluation.add(output)
        if not sanity:
            evaluation.look_when_complete()

    def _guarded_hook(
        self, trainer: Any, hook: Step, args: tuple[Any, ...], place: int, what: str, *, used: bool
    ) -> Any:
        return self._shown(
            what,
            lambda batch: hook(*args[:place], batch, *args[place + 1 :]),
            args[place],
            trainer,
            owner=id(getattr(hook, "func", hook)),
            used=used,
        )

    def _shown(
        self, name: str, run: Step, batch: Any, trainer: Any, *, owner: int = 0, used: bool
    ) -> Any:
        """Run code of the user's; the first time in a stage, look at what it does to its batch."""

        def run_once(batch: Any) -> Any:
            result = run(batch)
            self._refuse_metrics()  # it names them better than a look does
            return result

        if not self._looks:
            return run_once(batch)
        return self._first_batches.show(
            self, name, run_once, batch, trainer, owner=owner, used=used
        )

    def _refuse_metrics(self) -> None:
        self._watch.refuse(drop=self.unguarded == "drop", warn=self._warn_once)

    # ---- after a pass

    def _finish(self, trainer: Any) -> None:
        evaluation, self._evaluation = self._evaluation, None
        if evaluation is None:
            return
        self._refuse_metrics()  # also those updated in a hook after the last step
        if trainer.sanity_checking:
            return
        with named_run(self.run or current_run() or self._started_as):
            self.answers = evaluation.ask()
        self._running().asked = True
        refused = [name for name, answer in self.answers.items() if answer.kind == "exhausted"]
        if refused:
            self._meet_exhaustion(refused)
        self._last |= {n: answer.value for n, answer in self.answers.items() if n not in refused}
        publish(
            trainer, self._joined(), self.holdout, self.answers, self._last, prog_bar=self.prog_bar
        )
        if self.on_exhausted == "stop":
            stop_if_spent(trainer, self.holdout, self.answers)

    def _meet_exhaustion(self, refused: list[str]) -> None:
        problem = budget_spent(self.holdout)
        if self.on_exhausted == "raise":
            raise BudgetExhaustedError(
                f"{problem}; {refused} got no answer. Stop and report, or use a fresh holdout."
            )
        self._warn_once(f"{problem}; {refused} repeat the run's last answers, which are stale")

    # ---- helpers

    def _applies(self, stage: str) -> bool:
        return stage in (("fit", "validate") if self.stage == "validate" else ("test",))

    def _joined(self) -> GuardSession:
        return set_up(self._session)

    def _running(self) -> GuardedRun:
        return set_up(self._current)

    def _end_session(self, trainer: Any) -> None:
        if self._current is None or trainer is not self._current.trainer:
            return  # another run, refused while this one goes on
        self._evaluation, self._watch, self._current = None, MetricWatch([]), None
        if self._session is not None:
            self._session.restore()
            self._session = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy made during a run is not part of it.
        parts = ("_session", "_current", "_evaluation")
        return {**vars(self), **dict.fromkeys(parts), "_watch": MetricWatch([])}

    def _warn_once(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(f"HoldoutGuard: {what}.", HoldoutWarning, stacklevel=3)
