"""The hooks of ``HoldoutGuard``, without a base class: each Lightning package binds them once."""

import contextlib
import functools
import inspect
import logging
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
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
from torch_holdout._shared.text import counted
from torch_holdout.errors import (
    BudgetExhaustedError,
    HoldoutWarning,
    InvalidArgumentError,
    UnguardedLogError,
)
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.runs import as_run_name, current_run, named_run
from torch_holdout.training.evaluation import DIFF, Evaluation
from torch_holdout.training.interception import Interception, Step
from torch_holdout.training.metric import ReusableHoldoutMetric
from torch_holdout.training.metric_watch import MetricWatch
from torch_holdout.training.publishing import Published
from torch_holdout.training.requirements import (
    BUDGET_IN_BAR,
    checked_indices,
    checked_public,
    listed,
    require_batches,
    require_distinct,
    require_in_order,
    require_loaders,
    require_loggable,
    require_own_examples,
    require_whole_loader,
)

_log = logging.getLogger("torch_holdout")


class HoldoutGuardHooks:
    """Route validation through a holdout, so that every decision reads only guarded values.

    The guarded step returns ``{statistic: per-example values}`` and logs nothing; the guard
    accumulates on the device, asks the holdout once per full pass, and logs the answers in
    ``on_validation_epoch_end``, before EarlyStopping, ModelCheckpoint, schedulers, loggers and the
    progress bar read them. It logs each statistic under its own name, and ``holdout/budget_left``,
    ``holdout/releases``, ``holdout/exhausted``, ``holdout/<statistic>/is_release`` and
    ``.../is_stale`` (with several guards ``holdout/<holdout>/...``). The progress bar shows the
    statistics, and the budget left as ``left``. A module that defines
    ``holdout_step(batch, batch_idx)`` has that called instead of its ``validation_step``.

    Args:
        holdout: The account.
        guess_dataloaders: Training examples for a mechanism that compares with the training value,
            e.g. ``DataLoader(th.fixed_subset(train_set, 1000, seed=0), batch_size=500)``.
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
        run: What the run is called in the report; None: the logger's folder, or when it started.
    """

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
    ) -> None:
        super().__init__()
        require_instance("holdout", holdout, ReusableHoldout)
        require_choice("unguarded", unguarded, ("raise", "drop"))
        require_choice("on_exhausted", on_exhausted, ("stop", "freeze", "raise"))
        require_choice("stage", stage, ("validate", "test"))
        require_whole("dataloader_idx", dataloader_idx, 0, 10**6)
        require_instance("version", version, str)
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
        self._interception: Interception | None = None
        # The guards of one stage share one interception, the first one's. Kept from setup, because
        # a tuner takes the callbacks away while it runs the module.
        self._team: list[HoldoutGuardHooks] = []

    # ---- what Lightning calls

    @property
    def state_key(self) -> str:
        """Tell several guards of one Trainer apart in a checkpoint."""
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
        guards = self._team = [
            callback
            for callback in trainer.callbacks
            if isinstance(callback, HoldoutGuardHooks) and callback.stage == self.stage
        ]
        require_whole_loader(trainer, self.stage)
        require_own_examples(trainer)
        require_distinct(
            [guard.dataloader_idx for guard in guards],
            [guard.holdout.name for guard in guards],
            [name for guard in guards for name in guard.holdout.statistics],
        )
        require_batches(getattr(pl_module, self._step_name()))
        self._require_guesses()
        if self.holdout.exhausted and stage == "fit":
            raise BudgetExhaustedError(
                f"Expected holdout {self.holdout.name!r} to have releases left for a new fit, but "
                f"its budget ({counted(self.holdout.budget, 'release')}) is spent. Bring a fresh "
                f"holdout, or train without one."
            )
        self._started_as = _name_of(trainer)
        self._last = {}  # a resumed run gets its own back from the checkpoint, after this
        self._warned = set()
        if guards[0] is self:
            self._interception = Interception(
                pl_module,
                [callback for callback in trainer.callbacks if callback not in guards],
                step=self._step_name(),
                on_step=lambda step, args, kwargs: self._route(trainer, step, args, kwargs),
                on_log=lambda name, value: self._may_log(trainer, name, value),
            )

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Put the module and the callbacks back as they were."""
        self._release_module()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Put everything back also when the run fails: Lightning calls no teardown then."""
        self._release_module()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Show a resumed run its last values (not through ``log``: a stale one would win)."""
        for name, value in self._last.items():
            trainer.callback_metrics[name] = torch.tensor(value)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that every loader is guarded or declared public."""
        if self.stage == "validate":
            sanity = trainer.sanity_checking
            self._require_guarded(
                trainer.num_sanity_val_batches if sanity else trainer.num_val_batches
            )

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Check that every loader is guarded or declared public."""
        if self.stage == "test":
            self._require_guarded(trainer.num_test_batches)

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start a pass."""
        if self.stage == "validate":
            self._start(trainer, pl_module)

    def on_test_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start a pass."""
        if self.stage == "test":
            self._start(trainer, pl_module)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Look once more for metrics: the module's own epoch end comes after the guard's."""
        self._refuse_metrics()

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Look once more for metrics: the module's own epoch end comes after the guard's."""
        self._refuse_metrics()

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Ask the holdout and publish its answers."""
        if self.stage == "validate":
            self._finish(trainer)

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Ask the holdout and publish its answers."""
        if self.stage == "test":
            self._finish(trainer)

    # ---- during a pass

    def _start(self, trainer: Any, pl_module: Any) -> None:
        validating = self.stage == "validate"
        loaders = trainer.val_dataloaders if validating else trainer.test_dataloaders
        own = [*listed(loaders)][self.dataloader_idx : self.dataloader_idx + 1]
        for loader in own:
            require_in_order(loader, self.holdout.statistics)
        if isinstance(trainer.strategy.model, DistributedDataParallel):
            # DDP shares buffers before the next step. Inside an accumulation it would not, and the
            # ranks would evaluate with a BatchNorm of their own each.
            trainer.strategy.model.require_forward_param_sync = True
        rank, world = rank_and_world()
        self._evaluation = Evaluation(
            self.holdout, pl_module, version=self.version, rank=rank, world=world
        )
        self._watch = MetricWatch([pl_module, *trainer.callbacks])

    def _route(
        self, trainer: Any, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Hand a batch to the guard of its loader, or to the module if the loader is public."""
        if not _evaluating(trainer):
            return step(*args, **kwargs)  # the module calls its own step on training data
        index = self._loader_of(args, kwargs)
        for guard in self._team:
            if guard.dataloader_idx == index:
                guard._guarded_step(trainer, step, args, kwargs)
                return None  # outputs would carry raw values to every callback
        with self._shared_interception().opened():
            output = step(*args, **kwargs)
        for guard in self._team:
            guard._watch.count()
        return output

    def _loader_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Return which loader a batch is from; never guess between a public and a guarded one."""
        if "dataloader_idx" in kwargs or len(args) > 2:
            return int(kwargs.get("dataloader_idx", args[2] if len(args) > 2 else 0))
        if {guard.dataloader_idx for guard in self._team} != {0} or self._public_loaders():
            raise InvalidArgumentError(
                "Expected to be told which loader each batch is from, but the step got no "
                "dataloader_idx. Give the loaders as a list (sequential), and the step a "
                "`dataloader_idx` argument."
            )
        return 0

    def _public_loaders(self) -> set[int]:
        return {index for guard in self._team for index in guard.public_dataloaders}

    def _guarded_step(
        self, trainer: Any, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        module, evaluation = trainer.lightning_module, self._evaluation
        if evaluation is None:  # a tuner runs the module without its callbacks: nothing is read
            return
        run = self._holdout_step(module) or functools.partial(step, **kwargs)
        sanity = trainer.sanity_checking
        if not (evaluation.started or sanity):
            evaluation.look_at_weights()
            for batch in self._guess_batches(trainer):
                evaluation.add_guess(run(batch, *args[1:]))
        output = run(*args)
        self._refuse_metrics()
        evaluation.add(output)
        if not sanity:
            evaluation.look_when_complete()

    def _guess_batches(self, trainer: Any) -> Iterator[Any]:
        """Yield this rank's batches of training examples, as Lightning would hand them over."""
        if self.guess_dataloaders is None or not self.holdout.mechanism.wants_guess():
            return
        rank, world = rank_and_world()
        module = trainer.lightning_module
        loaders = list(listed(self.guess_dataloaders))
        if self.holdout.mechanism.estimation_sets is not None:
            loaders = [loaders[self.holdout.estimation_set()]]
        for index, batch in enumerate(chain.from_iterable(loaders)):
            if index % world == rank:
                batch = trainer.precision_plugin.convert_input(batch)
                batch = module._on_before_batch_transfer(batch, dataloader_idx=0)
                yield trainer.strategy.batch_to_device(batch, dataloader_idx=0)

    def _refuse_metrics(self) -> None:
        """Refuse the module's own metrics: it could read them raw."""
        touched = self._watch.touched()
        if not touched:
            return
        if self.unguarded == "raise":
            raise UnguardedLogError(
                f"Expected no other metric to be updated on the holdout, but these were: "
                f"{touched}. Register them as statistics of the holdout, define a `holdout_step` "
                f"that leaves them alone (it is used instead), or pass unguarded='drop'."
            )
        self._watch.reset(touched)
        self._warn_once(f"metrics {touched} were reset after each batch of the holdout")

    def _may_log(self, trainer: Any, name: str, value: Any) -> bool:
        guards = self._team
        public = any(name in guard.public for guard in guards)
        if not _evaluating(trainer) or public or isinstance(value, ReusableHoldoutMetric):
            return True
        if all(guard.unguarded == "drop" for guard in guards):
            self._warn_once(f"self.log({name!r}, ...) was dropped during validation")
            return False
        registered = any(name in guard.holdout.statistics for guard in guards)
        advice = f" If it does not depend on the holdout, pass public=({name!r},)."
        raise UnguardedLogError(
            f"Expected nothing but guarded values during validation, but {name!r} was logged; its "
            f"value is not shown here.{'' if registered else advice} {DIFF}"
        )

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
        refused = [name for name, answer in self.answers.items() if answer.kind == "exhausted"]
        if refused:
            self._meet_exhaustion(refused)
        self._publish()
        left = min(answer.budget_left for answer in self.answers.values())
        if left == 0 and self.on_exhausted == "stop" and trainer.state.fn == "fit":
            if not trainer.should_stop and trainer.is_global_zero:
                _log.warning(
                    "Holdout %r has no releases left: the Trainer stops (on_exhausted='stop').",
                    self.holdout.name,
                )
            trainer.should_stop = True

    def _meet_exhaustion(self, refused: list[str]) -> None:
        releases = counted(self.holdout.budget, "release")
        problem = f"The budget of holdout {self.holdout.name!r} ({releases}) is spent"
        if self.on_exhausted == "raise":
            raise BudgetExhaustedError(
                f"{problem}; {refused} got no answer. Stop here and report, or bring a fresh "
                f"holdout."
            )
        self._warn_once(f"{problem}; {refused} repeat the run's last answers, which are stale")

    def _publish(self) -> None:
        prefix, short = "holdout", BUDGET_IN_BAR
        if len(self._team) > 1:
            prefix, short = f"holdout/{self.holdout.name}", f"{short}/{self.holdout.name}"
        left = min(answer.budget_left for answer in self.answers.values())
        # First and short: bars cut what does not fit in a line. Loggers get the long key instead.
        self._send(short, left, show=True, logger=False)
        for name, answer in self.answers.items():
            if answer.kind != "exhausted":
                self._last[name] = answer.value
            self._send(name, self._last.get(name, math.nan), show=True)
            self._send(f"{prefix}/{name}/is_release", answer.is_release)
            self._send(f"{prefix}/{name}/is_stale", answer.kind == "exhausted")
        self._send(f"{prefix}/budget_left", left)
        self._send(f"{prefix}/releases", self.holdout.budget - left)
        self._send(f"{prefix}/exhausted", left == 0)

    def _send(
        self, name: str, value: float, *, show: bool = False, logger: bool | None = None
    ) -> None:
        self._shared_interception().log(
            name,
            Published(value),
            prog_bar=show and self.prog_bar,
            logger=logger,  # None: if there is one
            on_step=False,
            on_epoch=True,
            batch_size=1,
            metric_attribute=name,  # so that Lightning does not look for it in the module
        )

    # ---- helpers

    def _step_name(self) -> str:
        return "validation_step" if self.stage == "validate" else "test_step"

    def _holdout_step(self, module: Any) -> Step | None:
        """Return the module's ``holdout_step``, given as many arguments as it names."""
        step = getattr(module, "holdout_step", None)
        if step is None or self.stage != "validate":
            return None
        wanted = len(inspect.signature(step).parameters)
        return lambda *args: step(*args[:wanted])

    def _applies(self, stage: str) -> bool:
        return stage in (("fit", "validate") if self.stage == "validate" else ("test",))

    def _shared_interception(self) -> Interception:
        found = self._team[0]._interception if self._team else None
        if found is None:
            raise InvalidArgumentError("Expected the guard to be set up by a Trainer.")
        return found

    def _release_module(self) -> None:
        self._evaluation, self._watch, self._team = None, MetricWatch([]), []
        if self._interception is not None:
            self._interception.restore()
            self._interception = None

    def _require_guesses(self) -> None:
        """Refuse a mechanism that compares with training values without loaders for them."""
        require_loaders(self.guess_dataloaders)
        if self.holdout.mechanism.wants_guess() and self.guess_dataloaders is None:
            raise InvalidArgumentError(
                f"Expected `guess_dataloaders` for holdout {self.holdout.name!r}, because its "
                f"mechanism compares with the training value. Pass e.g. guess_dataloaders="
                f"DataLoader(th.fixed_subset(train_set, 1000, seed=0), batch_size=500)."
            )
        sets = self.holdout.mechanism.estimation_sets
        given = len(list(listed(self.guess_dataloaders)))
        if sets is not None and given != sets:
            raise InvalidArgumentError(
                f"Expected one guess loader for each of {sets} estimation sets, but got {given}."
            )

    def _require_guarded(self, batches: Sequence[Any]) -> None:
        guards = self._team
        guarded = {guard.dataloader_idx for guard in guards}
        public = self._public_loaders()
        loaders = set(range(len(batches)))
        if loaders - guarded - public or guarded - loaders:
            raise InvalidArgumentError(
                f"Expected every {self.stage} loader to have a guard or to be declared public, but "
                f"there are loaders {sorted(loaders)}, guards for {sorted(guarded)} and public "
                f"{sorted(public)}. Add HoldoutGuard(..., dataloader_idx=i), or "
                f"public_dataloaders=(i,) if loader i holds no holdout data."
            )

    def _warn_once(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(f"HoldoutGuard: {what}.", HoldoutWarning, stacklevel=3)


def _name_of(trainer: Any) -> str:
    """Name a run by its logger's folder (loggers without one are not asked), or by the time."""
    folder = None
    if trainer.is_global_zero:
        with contextlib.suppress(Exception):  # whatever a logger does, a label stops no run
            folder = Path(trainer.logger.log_dir)
    if folder is None:
        start = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{trainer.state.fn.value} of {start}, process {os.getpid()}"
    return as_run_name("/".join(folder.parts[-2:]))


def _evaluating(trainer: Any) -> bool:
    return bool(trainer.sanity_checking or trainer.validating or trainer.testing)
