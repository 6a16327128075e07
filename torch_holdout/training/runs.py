"""One run of a Trainer with a guard: its loader, its module's step, and whether it ever asked."""

import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeVar, final

from torch_holdout._shared.text import counted
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.protocol import Door
from torch_holdout.training.loaders import HoldoutLoader

_Part = TypeVar("_Part")
_log = logging.getLogger("torch_holdout")


@final
class GuardedRun:
    """What a guard keeps from setup to teardown about the Trainer that runs it.

    Args:
        trainer: The Trainer.
        holdout: The guard's account.
        stage: ``"validate"`` or ``"test"``.
        index: Which of the stage's loaders is the holdout.
    """

    def __init__(self, trainer: Any, holdout: Door, stage: str, index: int) -> None:
        self.trainer = trainer
        self.loader: HoldoutLoader | None = None
        self.asked = False
        self.asks_later = False  # in trainer.validate(), when the fit has ended
        self._holdout = holdout
        self._stage = stage
        self._index = index
        self._first_step: int | None = None

    def check_loader(self) -> None:
        """Check the holdout's loader, once for each loader object."""
        loader = own_loader(self.trainer, self._stage, self._index)
        if loader is not None and (self.loader is None or self.loader.loader is not loader):
            self.loader = HoldoutLoader(loader, self._holdout)

    def training_starts(self) -> str | None:
        """Check the loader before the first step; return why the fit will not ask, or None."""
        if self._stage != "validate":
            return None
        self.check_loader()
        self._first_step = self.trainer.global_step
        self.warn_of_a_short_budget()
        reason = self._why_never_asked()
        return reason and f"holdout {self._holdout.name!r} will not be asked: {reason}"

    def fit_ends(self) -> str | None:
        """Return why a fit that trained has never asked; None if it has, or did not train."""
        if self._first_step in (None, self.trainer.global_step) or self.asked or self.asks_later:
            return None
        reason = self._why_never_asked() or "it ended before the first validation"
        return (
            f"the fit ended and holdout {self._holdout.name!r} was never asked: {reason}. No value "
            f"of this run is guarded; nothing was charged"
        )

    def warn_of_a_short_budget(self) -> None:
        """Log it if the budget ends before the fit, whatever the answers are."""
        trainer, holdout = self.trainer, self._holdout
        planned, mechanism = planned_validations(trainer), holdout.mechanism
        spends = mechanism.shows_values and mechanism.guess_rule is None  # guesses are free
        if planned is None or not trainer.is_global_zero:
            return
        self._warn_of_few_questions(planned)
        if not spends:
            return
        left = holdout.budget_left
        if planned * len(holdout.statistics) > left:
            _log.warning(
                "Holdout %r has %s left, but this fit plans %s, and each spends one for each of "
                "its statistics (%s): the budget ends early. Validate less often, or plan for "
                "more releases.",
                holdout.name,
                counted(left, "release"),
                counted(planned, "validation"),
                ", ".join(holdout.statistics),
            )

    def _warn_of_few_questions(self, planned: int) -> None:
        """Log it if a board takes fewer submissions than a fit has validations."""
        left = self._holdout.questions_left
        if left is not None and planned > left:
            _log.warning(
                "Board %r takes %s more from this team, but this fit plans %s, each of which is "
                "one unless its predictions were submitted before. Validate less often.",
                self._holdout.name,
                counted(left, "submission"),
                counted(planned, "validation"),
            )

    def _why_never_asked(self) -> str | None:
        """Return why the fit does not ask, as far as the Trainer tells."""
        if self.asks_later:
            return None
        every, epochs = self.trainer.check_val_every_n_epoch, self.trainer.max_epochs
        if self.loader is None:
            return "the Trainer has no validation loader for it; pass one to fit()"
        if every is not None and epochs is not None and 0 <= epochs < every:
            return (
                f"check_val_every_n_epoch={every}, but the fit ends after "
                f"{counted(epochs, 'epoch')}; make it smaller"
            )
        return None


def planned_validations(trainer: Any) -> int | None:
    """Return how many validations a fit plans; None if the Trainer does not tell."""
    every, batches = trainer.check_val_every_n_epoch, trainer.val_check_batch
    limits = (every, trainer.max_epochs, batches, trainer.num_training_batches)
    if not all(isinstance(limit, int) and limit > 0 for limit in limits):
        return None
    epochs = (trainer.max_epochs - trainer.current_epoch) // every
    return int(epochs * max(1, trainer.num_training_batches // batches))


def set_up(part: _Part | None) -> _Part:
    """Return what a Trainer's setup has made; raise if it has not."""
    if part is None:
        raise InvalidArgumentError("Expected the guard to be set up by a Trainer.")
    return part


def require_idle(current: GuardedRun | None, holdout: Door) -> None:
    """Raise if a guard is still in another run."""
    if current is not None:
        raise InvalidArgumentError(
            f"Expected the guard of holdout {holdout.name!r} in one run at a time, but its Trainer "
            f"is still running. Start the other run when this one has ended, or give it a module "
            f"and a HoldoutGuard of its own. Nothing was charged."
        )


def own_loader(trainer: Any, stage: str, index: int) -> Any:
    """Return the loader that a guard is for, or None; before a fit's first step too."""
    loop = _loop_of(trainer, stage)
    # Not trainer.val_dataloaders: after a fit, and in validate(), that is still the fit's loader.
    if loop._combined_loader is None and trainer.training and trainer.enable_validation:
        # As Lightning does before training if the first epoch validates.
        trainer.validating = True
        try:
            loop.setup_data()
        finally:
            trainer.training = True
    require_sequential(trainer, stage)
    loaders = [] if loop._combined_loader is None else loop._combined_loader.flattened
    return loaders[index] if index < len(loaders) else None


def unguarded_tests(trainer: Any, guard: type[Any]) -> list[Any]:
    """Return the loaders of a test that no guard of that stage is for."""
    combined = _loop_of(trainer, "test")._combined_loader
    guarded = {
        callback.dataloader_idx
        for callback in trainer.callbacks
        if isinstance(callback, guard) and callback.stage == "test"
    }
    loaders = [] if combined is None else combined.flattened
    return [loader for index, loader in enumerate(loaders) if index not in guarded]


def _loop_of(trainer: Any, stage: str) -> Any:
    if stage == "test":
        return trainer.test_loop
    fits = trainer.state.fn == "fit"
    return trainer.fit_loop.epoch_loop.val_loop if fits else trainer.validate_loop


def require_sequential(trainer: Any, stage: str) -> None:
    """Raise if batches of several loaders come together: no guard would know whose they are."""
    combined = _loop_of(trainer, stage)._combined_loader
    mode = getattr(combined, "_mode", "sequential")
    if mode != "sequential" and len(combined.flattened) > 1:
        raise InvalidArgumentError(
            f"Expected {stage} loaders that are read one after the other, but CombinedLoader(..., "
            f"{mode!r}) puts batches of {len(combined.flattened)} loaders together: it may leave "
            f"examples out or repeat them, and nothing tells the holdout's from the others. Give "
            f"the loaders as a list, or use CombinedLoader(..., 'sequential'), with a guard or "
            f"public_dataloaders= for each. Nothing was charged."
        )


def require_step(module: Any, name: str) -> None:
    """Raise if a module has no step of its own: Lightning would skip the evaluation silently."""
    owner = next((base for base in type(module).__mro__ if name in vars(base)), None)
    if name not in vars(module) and (owner is None or owner.__name__ == "LightningModule"):
        extra = " With both, `holdout_step` is called instead." if name == "validation_step" else ""
        raise InvalidArgumentError(
            f"Expected {type(module).__name__} to define `{name}`, because Lightning skips the "
            f"evaluation without one and the holdout would never be asked.{extra} Add "
            f"{name}(self, batch, batch_idx) that returns per-example values. Nothing was charged."
        )


def holdout_step_of(module: Any) -> Callable[..., Any] | None:
    """Return the module's ``holdout_step``, given as many arguments as it names; None without."""
    step = getattr(module, "holdout_step", None)
    if step is None:
        return None
    wanted = len(inspect.signature(step).parameters)
    return lambda *args: step(*args[:wanted])


def explain_epoch_end(module: Any, error: BaseException) -> None:
    """Note on an error of the module's epoch end that ``holdout_step`` took its step's place."""
    hook = getattr(type(module), "on_validation_epoch_end", None)
    code, place = getattr(hook, "__code__", None), error.__traceback__
    while place is not None and place.tb_frame.f_code is not code:
        place = place.tb_next
    if place is not None and hasattr(module, "holdout_step"):
        note = (
            "The guard calls `holdout_step` instead of `validation_step`, so nothing that "
            "`validation_step` collects is there in `on_validation_epoch_end`. Return early there "
            "if there is nothing, or remove `holdout_step` and return per-example values from "
            "`validation_step`; what the hook computed belongs into the holdout's statistics."
        )
        add_note(error, note)


def add_note(error: BaseException, note: str) -> None:
    """Add a sentence to an error of the user's."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # Python 3.10
        error.args = (" ".join([*map(str, error.args), note]),)
