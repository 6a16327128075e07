"""The guard of a ``HoldoutTrainer``: which data goes where, and when a run begins and ends."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, final

from transformers.trainer_utils import IntervalStrategy

from torch_holdout._shared.checks import require_choice, require_instance, require_text
from torch_holdout._shared.tracebacks import empty_frames
from torch_holdout.errors import HoldoutError, HoldoutWarning, InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.run_results import Outcome
from torch_holdout.holdout.runs import current_run
from torch_holdout.mechanisms import Patience
from torch_holdout.training.answering import LiveCourse
from torch_holdout.training.first_look.first_batches import FirstBatches
from torch_holdout.training.publishing import name_of_run
from torch_holdout.training.requirements import checked_public
from torch_holdout.training.runs import GuardedRun
from torch_holdout.training.sealed_checks import require_sealed_arguments
from torch_holdout.training.stopping import SealedCourse
from torch_holdout.training.stopping_advice import stopping_advice
from torch_holdout.transformers.closed_loader import closed
from torch_holdout.transformers.datasets import HoldoutData
from torch_holdout.transformers.default_values import require_known
from torch_holdout.transformers.face import WORDS, TrainerFace
from torch_holdout.transformers.loaders import require_guess_sets
from torch_holdout.transformers.logs import LogTrap
from torch_holdout.transformers.passes import look_ahead
from torch_holdout.transformers.requirements import (
    holdout_key,
    require_evaluations,
    require_examples,
    require_free_names,
    require_no_metrics,
    require_own_loss,
    require_readable_names,
    require_size,
    require_supported,
)
from torch_holdout.transformers.run_state import add_state_callback

Route = Literal["holdout", "other"]


@final
class TrainerGuard:
    """What a ``HoldoutTrainer`` adds to a ``Trainer``; ``HoldoutTrainer`` describes the arguments.

    The courses of ``training/`` and the first look treat it as they treat a Lightning guard.
    """

    prog_bar = False
    dataloader_idx = 0
    public_dataloaders: tuple[int, ...] = ()

    def __init__(
        self,
        holdout: ReusableHoldout,
        *,
        values: Callable[[Any], Any] | None,
        stop: Patience | None,
        keep: str | Path | None,
        restore: bool,
        on_exhausted: Literal["stop", "freeze", "raise"],
        unguarded: Literal["raise", "drop"],
        public: Sequence[str],
        version: str,
        run: str | None,
        check_data: bool,
    ) -> None:
        require_instance("holdout", holdout, ReusableHoldout)
        require_choice("unguarded", unguarded, ("raise", "drop"))
        require_choice("on_exhausted", on_exhausted, ("stop", "freeze", "raise"))
        require_instance("version", version, str)
        require_instance("check_data", check_data, bool)
        if run is not None:
            require_text("run", run)
        require_free_names(holdout.statistics)
        require_examples(holdout.statistics)
        require_sealed_arguments(
            holdout,
            stop=stop,
            keep=keep,
            restore=restore,
            stage="validate",
            on_exhausted=on_exhausted,
        )
        if values is None:
            require_known(holdout.statistics)
        elif not callable(values):
            raise InvalidArgumentError("Expected `values` to be a function of an EvalPrediction.")
        self.holdout = holdout
        self.values = values
        self.stop = stop
        self.restore = restore
        self.on_exhausted = on_exhausted
        self.unguarded = unguarded
        self.public = checked_public(public, holdout.statistics)
        self.version = version
        self.run = run
        self.answers: dict[str, Answer] = {}
        self.published: dict[str, float] = {}
        self.first_batches = FirstBatches()
        self._check_data = check_data
        self._started_as = ""
        self._route: Route | None = None
        self._warned: set[str] = set()
        live = holdout.mechanism.shows_values
        self.course: LiveCourse | SealedCourse = (
            LiveCourse() if live else SealedCourse(stop, keep, restore=restore, words=WORDS)
        )

    def bind(
        self, trainer: Any, given: Any, public_eval: Sequence[str], guess_dataset: Any
    ) -> None:
        """Check a trainer that has been made, and guard its evaluations."""
        self.trainer = trainer
        several = trainer.eval_dataset
        self._key = key = holdout_key(several, public_eval)
        self._public_eval = tuple(public_eval)
        own = several if key is None else several[key]
        require_size(own, self.holdout)
        require_no_metrics(trainer, bool(public_eval))
        require_supported(trainer, self.holdout)
        require_evaluations(trainer, self.stop)
        if self.values is None:
            require_own_loss(trainer)
        self.guess_sets = require_guess_sets(self.holdout, guess_dataset)
        self._require_names()
        original = given.get(key) if isinstance(given, dict) else given
        self.data = HoldoutData(
            self.holdout,
            trainer,
            [own] if original is None else [own, original],
            public={name: several[name] for name in public_eval},
            guesses=self.guess_sets,
            check_data=self._check_data,
        )
        others = [] if self.values is None else [getattr(self.values, "__self__", self.values)]
        self.face = TrainerFace(trainer, others)
        self.trap = LogTrap(
            trainer,
            self.public,
            self.unguarded,
            self._warn_once,
            lambda: self.first_batches.looking,
        )
        add_state_callback(trainer, self.course.state, self._begins, self._ends)

    # ---- what the Trainer is asked to do

    @contextmanager
    def training(self) -> Iterator[None]:
        """Begin a run before training, and leave it open if training fails."""
        face, course = self.face, self.course
        if face.training:
            raise InvalidArgumentError(
                "Expected one training at a time, but trainer.train() is still running. Nothing "
                "was charged."
            )
        self._require_names()  # callbacks may have been added
        self.data.check()
        self._warned = set()
        self._started_as = name_of_run(face)
        self.first_batches = FirstBatches()  # not of a model: a search frees it between trials
        course.set_up(self, face, fits=True)
        face.training = True
        try:
            yield
        except BaseException as error:
            if isinstance(error, HoldoutError):
                empty_frames(error)  # the Trainer's own hold the batch too
            course.broken_off(self, face)
            raise
        finally:
            face.training = False
            course.leave()

    @contextmanager
    def routed(self, eval_dataset: Any) -> Iterator[None]:
        """Decide for the block whether an evaluation is the holdout's."""
        if self.trap.armed:
            raise closed("evaluate() was called while it is evaluated")
        dataset = self.trainer.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(dataset, dict):  # each of them comes here by itself
            yield
            return
        with self._on_route(self._route_of(dataset)):
            yield

    @contextmanager
    def predicted(self, dataset: Any) -> Iterator[None]:
        """Raise if a dataset has records of the holdout's; predict it inside the block."""
        self.data.require_apart(dataset, "predict()")
        with self._on_route("other"):
            yield

    def require_readable(self, eval_dataset: Any) -> None:
        """Raise if the holdout's loader is asked for by other code than its evaluation."""
        dataset = self.trainer.eval_dataset if eval_dataset is None else eval_dataset
        own = dataset == self._key if isinstance(dataset, str) else self.data.is_own(dataset)
        if own and (self._route != "holdout" or self.trap.armed):
            raise closed("get_eval_dataloader() was called for it")

    def own_loader(self) -> Any:
        """Return the loader of the holdout, made as for its evaluation."""
        dataset = self.trainer.eval_dataset if self._key is None else self._key
        with self._on_route("holdout"):
            return self.trainer.get_eval_dataloader(dataset)

    def takes(self, loader: Any) -> bool:
        """Whether a loader is the holdout's; raise if it is, and the caller expects another."""
        if self._route == "holdout":
            self._route = None  # callbacks come before the evaluation ends
            return True
        dataset = getattr(loader, "dataset", None)
        if self._route is None or self.data.has_own(dataset):
            self.data.require_apart(dataset, "evaluation_loop()")
        return False

    def require_values(self, what: str) -> None:
        """Raise if a sealed holdout has no values for something that compares them."""
        if not self.holdout.mechanism.shows_values:
            raise InvalidArgumentError(
                f"Expected a holdout that answers with values for {what}, but "
                f"{self.holdout.name!r} is sealed. Run a study of sealed runs instead "
                f"(torch_holdout.tuning.optuna), or give every trial its own trainer. Nothing was "
                f"charged."
            )

    # ---- what the courses and the first look ask a guard

    @property
    def outcome(self) -> Outcome | None:
        """How the sealed run of the last training ended."""
        return self.course.outcome

    @property
    def best_model_path(self) -> str | None:
        """The file of the best weights."""
        return self.course.best_model_path

    @property
    def _fitting(self) -> bool:
        return self.face.training

    def label(self) -> str:
        """Return what the run is called in the report."""
        return self.run or current_run() or self._started_as or name_of_run(self.face)

    _label = label

    def _joined(self) -> "TrainerGuard":
        return self

    has_several_guards = False

    def log(self, name: str, value: Any, **_: Any) -> None:
        """Take a public number that is to be published."""
        self.published[name] = value.compute().item()

    def _warn_once(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(f"HoldoutTrainer: {what}.", HoldoutWarning, stacklevel=3)

    # ---- helpers

    def _begins(self, stored: dict[str, Any]) -> None:
        if not self.face.training:
            return
        args = self.trainer.args
        if args.eval_strategy != IntervalStrategy.NO and not args.eval_on_start:
            look_ahead(self)
        self.course.load(self, stored)
        self.course.training_starts(self, self.face)
        GuardedRun(self.face, self.holdout, "validate", 0).warn_of_a_short_budget()
        for advice in stopping_advice(self.face.stoppers, self.holdout):
            self._warn_once(advice)

    def _ends(self) -> None:
        if self.face.training:
            face = self.face
            self.course.training_ends(self, face, face.lightning_module)

    def _require_names(self) -> None:
        prefix = "eval_" if self._key is None else f"eval_{self._key}_"
        require_readable_names(self.trainer, self.holdout, self.stop, prefix)

    def _route_of(self, dataset: Any) -> Route:
        if isinstance(dataset, str):
            if dataset not in (self._key, *self._public_eval):
                raise InvalidArgumentError(
                    f"Expected one of the evaluation sets, but got {dataset!r}. Nothing was "
                    f"charged."
                )
            self.data.check()
            return "holdout" if dataset == self._key else "other"
        if self.data.is_own(dataset):
            return "holdout"
        self.data.require_apart(dataset, "evaluate()")
        return "other"

    @contextmanager
    def _on_route(self, route: Route) -> Iterator[None]:
        before, self._route = self._route, route
        try:
            yield
        finally:
            self._route = before
