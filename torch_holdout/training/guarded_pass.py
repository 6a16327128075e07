"""A pass of a guard: user code runs on the holdout's batches, and is looked at while it does."""

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from torch.nn.parallel import DistributedDataParallel

from torch_holdout._shared.distributed import rank_and_world
from torch_holdout.errors import HoldoutWarning
from torch_holdout.holdout.protocol import Door
from torch_holdout.training.data_check import DataCheck
from torch_holdout.training.evaluation import Evaluation
from torch_holdout.training.first_look.first_batches import FirstBatches
from torch_holdout.training.guesses import guess_batches
from torch_holdout.training.interception import MetricWatch, Step
from torch_holdout.training.logged_steps import LoggedStep, batch_size_of
from torch_holdout.training.requirements import step_of
from torch_holdout.training.runs import GuardedRun, holdout_step_of, own_loader, set_up

if TYPE_CHECKING:
    from torch_holdout.training.guard import Course


class PassHooks:
    """What happens between the start of a pass and its end; the base of ``HoldoutGuardHooks``."""

    holdout: Door
    guess_dataloaders: Any
    unguarded: Literal["raise", "drop"]
    public: tuple[str, ...]
    dataloader_idx: int
    public_dataloaders: tuple[int, ...]
    stage: Literal["validate", "test"]
    version: str
    _course: "Course"
    _data: DataCheck
    _evaluation: Evaluation | None
    _first_batches: FirstBatches
    _warned: set[str]
    _watch: MetricWatch
    step: Callable[..., Any] | None = None
    _inside: LoggedStep | None = None  # while a guarded step runs
    _looks = True  # whether the first batch is shown as marked tensors
    _current: GuardedRun | None = None  # from setup to teardown

    def _check_data(self, trainer: Any) -> None:
        own = own_loader(trainer, self.stage, self.dataloader_idx)
        shown = (own_loader(trainer, self.stage, index) for index in self.public_dataloaders)
        known = [loader for loader in shown if loader is not None]
        self._data.run(own, self.guess_dataloaders, known)

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
            confirmed=self._course.confirmed,
        )
        self._watch = MetricWatch([pl_module, *trainer.callbacks], self.public)

    def _guarded_step(
        self, trainer: Any, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        module, evaluation = trainer.lightning_module, self._evaluation
        if evaluation is None:  # a tuner runs the module without its callbacks: nothing is read
            return
        code, run = self._step_of(module, step, args, kwargs)
        sanity = trainer.sanity_checking
        if not (evaluation.started or sanity):
            evaluation.look_at_weights()
            for batch, counts in guess_batches(trainer, self.holdout, self.guess_dataloaders):
                values = self._run_step(code, run, batch, args[1:], trainer, None)
                if counts:
                    evaluation.add_guess(values)
        self._refuse_metrics()  # those updated in a hook before the step
        rows = evaluation.rows()
        output = self._shown(
            code,
            lambda batch: self._run_step(code, run, batch, args[1:], trainer, rows),
            args[0],
            trainer,
            used=not sanity,
        )
        evaluation.add(output)
        if not sanity:
            evaluation.look_when_complete()

    def _step_of(
        self, module: Any, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, Step]:
        """Return what is run on a batch, and what it is called."""
        if self.step is not None:
            given = self.step
            return "step", lambda batch, number=0, *_: given(module, batch, number)
        own = holdout_step_of(module) if self.stage == "validate" else None
        if own is not None:
            return "holdout_step", own
        return step_of(self.stage), functools.partial(step, **kwargs)

    def _run_step(
        self,
        code: str,
        run: Step,
        batch: Any,
        rest: tuple[Any, ...],
        trainer: Any,
        rows: range | None,
    ) -> Any:
        """Run a step; what it logs as a ``LoggedMean`` joins what it returns."""
        results = trainer.validate_loop._results
        logged = LoggedStep(
            self.holdout.statistics,
            self._watch.metrics,
            rows,
            lambda: batch_size_of(results, batch),
        )
        self._inside = logged
        try:
            with logged:
                output = logged.joined(run(batch, *rest), code)
                others = logged.others()
        finally:
            self._inside = None
        if others:
            drop = self.unguarded == "drop"
            self._watch.refuse(drop=drop, warn=self._warn_once, touched=others)
        return output

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

    def _running(self) -> GuardedRun:
        return set_up(self._current)

    def _warn_once(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(f"HoldoutGuard: {what}.", HoldoutWarning, stacklevel=3)
