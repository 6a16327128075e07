"""Answers that a sweep may be told, and the callback that reports them."""

from collections.abc import Callable
from typing import Any

from torch_holdout._shared.checks import require_instance, shown
from torch_holdout.errors import HoldoutError, InvalidArgumentError, PartialPassError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.results import Answer
from torch_holdout.mechanisms import Mechanism
from torch_holdout.training.guard import HoldoutGuardHooks
from torch_holdout.training.metric import sanity_checking, take_problem
from torch_holdout.training.requirements import require_one_process
from torch_holdout.training.runs import planned_validations


def tells_the_value(mechanism: Mechanism, answer: Answer) -> bool:
    """Whether an answer says how good a model is, so that it may be compared with others.

    A release does, and so does a guess that is near the holdout's value. A Ladder's guess is the
    best value of *any* trial and says only that this one is not much better: reported, it would
    make every poor trial look like the best. An exhausted answer says nothing.

    Example:
        >>> import torch_holdout as th
        >>> guess = Answer(0.9, "guess", 3, "guess", 7)
        >>> tells_the_value(th.Thresholdout(threshold=0.1, sigma=0.01, guess="last"), guess)
        True
        >>> tells_the_value(th.Ladder(step=0.01), guess)
        False
    """
    if answer.source is None:
        return False
    return answer.is_release or mechanism.guess_rule == "both"


def told_value(holdout: ReusableHoldout, name: str, answer: Answer) -> float | None:
    """Return the value that a tuner is told for an answer; None for a stale one.

    A release, and a guess near the holdout's value, as it is. A Ladder's guess is the best value of
    *any* trial, and says that this one is not better by more than a step: told as it is, it would
    make every poor trial look like the best, so it is told one step worse.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.25), budget=2)
        >>> told_value(holdout, "val_acc", Answer(0.75, "guess", 3, "guess", 7))
        0.5
    """
    if answer.source is None:
        return None
    if tells_the_value(holdout.mechanism, answer):
        return answer.value
    statistic = holdout.statistics[name]
    step = holdout.mechanism.guess_distance() * (statistic.high - statistic.low)
    worse = answer.value + (step if statistic.mode == "min" else -step)
    return min(max(worse, statistic.low), statistic.high)


def asked_twice(holdout: ReusableHoldout, name: str, shared: str) -> InvalidArgumentError:
    """Return the error for a trial's second answer; ``shared`` is what ``sharing`` is given.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.25), budget=2)
        >>> raise asked_twice(holdout, "val_acc", "trial")
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected one question per trial, because ...
    """
    return InvalidArgumentError(
        f"Expected one question per trial, because all trials share the budget of holdout "
        f"{holdout.name!r}, but this is the second answer about {name!r}. Ask once, when the trial "
        f"is trained, or write sharing({shared}, holdout, every=True)."
    )


def require_sanity_check(name: str) -> None:
    """Raise, with the reason, that there is no answer to report; not in a Trainer's sanity check.

    The next trial would get none for the same reason, and a sweep would lose one trial after the
    other.

    Example:
        >>> require_sanity_check("val_acc")
        Traceback (most recent call last):
            ...
        torch_holdout.errors.PartialPassError: Expected an answer for 'val_acc', but got None: ...
    """
    if not sanity_checking():
        raise PartialPassError(
            take_problem()
            or f"Expected an answer for {name!r}, but got None: no pass has asked the holdout. "
            f"Update the metric with the whole holdout and call compute() before its answer is "
            f"reported. Nothing was released or charged."
        )


def one_statistic(holdout: ReusableHoldout, name: str | None) -> str:
    """Return the statistic's name; it may be left out where there is only one."""
    require_instance("holdout", holdout, ReusableHoldout)
    known = list(holdout.statistics)
    if name is None and len(known) == 1:
        return known[0]
    if not isinstance(name, str) or name not in known:
        raise InvalidArgumentError(
            f"Expected one of the statistics {known} of holdout {holdout.name!r}, but got "
            f"{shown(name)}."
        )
    return name


def require_shared(guard: Any, holdout: ReusableHoldout) -> None:
    """Raise unless the guard asks this account, so that one budget holds for all trials."""
    require_instance("guard", guard, HoldoutGuardHooks)
    own, shared = ((asked.address, asked.name) for asked in (guard.holdout, holdout))
    if own != shared:
        raise InvalidArgumentError(
            f"Expected a guard on the shared holdout {shared[1]!r} in {shared[0]}, but its own is "
            f"{own[1]!r} in {own[0]}: a second account would be a second budget. Pass the same "
            f"holdout to both."
        )


def reporting_callback(
    name: str, guard: HoldoutGuardHooks, tell: Callable[[Any], None], *, every: bool = True
) -> Any:
    """Return a Callback of the guard's own Lightning package that calls ``tell(trainer)``.

    Args:
        name: What its class is called.
        guard: The guard whose passes it follows.
        tell: Called after each validation of a fit; on a live account after ``validate`` too.
        every: Whether a fit may validate more than once. On a live account each validation is a
            question, which a sweep pays for; a sealed one evaluates as often as it is trained.
    """
    return type(name, (_ReportingHooks, _callback_class(guard)), {})(guard, tell, every=every)


class _ReportingHooks:
    def __init__(
        self, guard: HoldoutGuardHooks, tell: Callable[[Any], None], *, every: bool
    ) -> None:
        super().__init__()
        self._guard = guard
        self._tell = tell
        self._live = guard.holdout.mechanism.shows_values
        self._once = self._live and not every
        self._asked = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Raise unless the Trainer runs the guard too, in one process, and asks once.

        Several ranks are refused because it is not settled which of them may end a trial for all.
        """
        require_one_process(trainer)
        if self._guard not in trainer.callbacks:
            raise InvalidArgumentError(
                f"Expected the guard among the Trainer's callbacks, next to {type(self).__name__}."
            )
        self._asked = 0
        every, epochs = trainer.check_val_every_n_epoch, trainer.max_epochs
        if stage == "fit" and every and epochs and trainer.ckpt_path is None:
            self._require_once(trainer, epochs // every)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Take a fit without a validation loader for one whose question comes after it."""
        if self._once and not trainer.enable_validation:
            self._guard._running().asks_later = True

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Raise if the fit plans more than one question, as far as the Trainer tells."""
        self._require_once(trainer, planned_validations(trainer) or 0)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Raise before a second question, where the Trainer did not tell how many it plans."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._asked += 1
            self._require_once(trainer, self._asked)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Refuse several ranks also where they are spawned: pickling for them fails before setup.

        Whatever a study or a trial holds cannot be sent to another process.
        """
        if not isinstance(exception, HoldoutError):
            require_one_process(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the answers that the guard has published."""
        runs = ("fit", "validate") if self._live else ("fit",)
        if trainer.state.fn in runs and not trainer.sanity_checking:
            self._tell(trainer)

    def _require_once(self, trainer: Any, validations: int) -> None:
        if self._once and validations > 1 and trainer.enable_validation:
            epochs = trainer.max_epochs if (trainer.max_epochs or 0) > 0 else "..."
            raise InvalidArgumentError(
                f"Expected one question per trial, because each validation asks holdout "
                f"{self._guard.holdout.name!r} and all trials share its budget, but this fit "
                f"validates more than once. Write L.Trainer(check_val_every_n_epoch={epochs}), or "
                f"fit without the validation loader and call trainer.validate(net, val_loader) "
                f"afterwards, or ask at every validation with every=True. For values that a "
                f"pruner reads after each epoch take a sealed holdout and a display."
            )


def _callback_class(guard: HoldoutGuardHooks) -> type:
    for base in type(guard).__mro__:
        if base.__name__ == "Callback" and base.__module__.split(".")[0] != "torch_holdout":
            return base
    raise InvalidArgumentError(
        "Expected a HoldoutGuard from torch_holdout.lightning or torch_holdout.pytorch_lightning."
    )
