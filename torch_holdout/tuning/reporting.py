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


def reporting_callback(name: str, guard: HoldoutGuardHooks, tell: Callable[[Any], None]) -> Any:
    """Return a Callback of the guard's own Lightning package that calls ``tell(trainer)``."""
    return type(name, (_ReportingHooks, _callback_class(guard)), {})(guard, tell)


class _ReportingHooks:
    def __init__(self, guard: HoldoutGuardHooks, tell: Callable[[Any], None]) -> None:
        super().__init__()
        self._guard = guard
        self._tell = tell

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Raise unless the Trainer runs the guard too, in one process.

        Several ranks are refused because it is not settled which of them may end a trial for all.
        """
        _require_one_process(trainer)
        if self._guard not in trainer.callbacks:
            raise InvalidArgumentError(
                f"Expected the guard among the Trainer's callbacks, next to {type(self).__name__}."
            )

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Refuse several ranks also where they are spawned: pickling for them fails before setup.

        Whatever a study or a trial holds cannot be sent to another process.
        """
        if not isinstance(exception, HoldoutError):
            _require_one_process(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the answers that the guard has published in a fit."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._tell(trainer)


def _require_one_process(trainer: Any) -> None:
    if trainer.world_size > 1:
        raise InvalidArgumentError(
            f"Expected trials of one process, but this Trainer has {trainer.world_size}: ending a "
            f"trial under DDP is not supported. Use devices=1, or a guard without this callback."
        ) from None


def _callback_class(guard: HoldoutGuardHooks) -> type:
    for base in type(guard).__mro__:
        if base.__name__ == "Callback" and base.__module__.split(".")[0] != "torch_holdout":
            return base
    raise InvalidArgumentError(
        "Expected a HoldoutGuard from torch_holdout.lightning or torch_holdout.pytorch_lightning."
    )
