"""Early stopping on values that change in steps: what cannot work together, and why it stopped."""

import logging
import math
from collections.abc import Iterator
from typing import Any

from torch_holdout._shared.text import counted
from torch_holdout.holdout.protocol import Door

_log = logging.getLogger("torch_holdout")


def stopping_advice(trainer: Any, holdout: Door) -> list[str]:
    """Return why an ``EarlyStopping`` on a guarded value would ignore releases or stop too early.

    A guarded value stays as it is until the holdout is more than threshold times range away (for a
    Ladder: better). A ``min_delta`` of that or more ignores releases that are paid for. A
    ``patience`` below the number of validations for each release stops between two of them.

    Example:
        >>> from types import SimpleNamespace
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=500, statistics={"val_loss": th.BoundedMean(0, 5)},
        ...     mechanism=th.Ladder(step=0.01), budget=20)
        >>> class EarlyStopping:
        ...     monitor, min_delta, patience = "val_loss", 0.1, 10
        >>> trainer = SimpleNamespace(
        ...     callbacks=[EarlyStopping()], max_epochs=200, check_val_every_n_epoch=1)
        >>> print(stopping_advice(trainer, holdout)[0])
        EarlyStopping with min_delta=0.1 ignores improvements of 'val_loss' that are paid for: one
        is released once it is above 0.05 (0.01 times the range). Use less, e.g. min_delta=0.025
    """
    advice = []
    for stopping, step in _on_guarded(trainer, holdout):
        name, delta = stopping.monitor, abs(stopping.min_delta)
        distance = holdout.mechanism.guess_distance()
        if delta >= step > 0:
            advice.append(
                f"EarlyStopping with min_delta={delta:g} ignores improvements of {name!r} that are "
                f"paid for: one is released once it is above {step:.3g} ({distance:.3g} times the "
                f"range). Use less, e.g. min_delta={step / 2:.3g}"
            )
        validations, left = _validations(trainer), holdout.budget_left
        spacing = math.ceil(validations * len(holdout.statistics) / max(1, left))
        if stopping.patience < spacing:
            advice.append(
                f"EarlyStopping with patience={stopping.patience} may stop too early: an "
                f"improvement of {name!r} shows only once it is above {step:.3g}, and "
                f"{counted(left, 'release')} in {counted(validations, 'validation')} are one in "
                f"{spacing}. Use patience={spacing} or more"
            )
    return advice


def say_why_stopped(trainer: Any, holdout: Door) -> None:
    """Log which ``EarlyStopping`` ended a fit on a guarded value, and what that value can show."""
    if not trainer.is_global_zero:
        return
    for stopping, step in _on_guarded(trainer, holdout):
        if stopping.wait_count >= stopping.patience:
            _log.warning(
                "EarlyStopping ended the fit in epoch %d: %r was not better by more than "
                "min_delta=%g in %s. It shows an improvement once that is above %.3g; %s left.",
                stopping.stopped_epoch,
                stopping.monitor,
                abs(stopping.min_delta),
                counted(stopping.patience, "validation"),
                step,
                counted(holdout.budget_left, "release"),
            )


def _on_guarded(trainer: Any, holdout: Door) -> Iterator[tuple[Any, float]]:
    """Yield each ``EarlyStopping`` on a guarded value, with the smallest change that shows."""
    if not holdout.mechanism.shows_values or holdout.mechanism.guess_rule is None:
        return
    for callback in trainer.callbacks:
        # By name: both Lightning packages have one.
        known = any(base.__name__ == "EarlyStopping" for base in type(callback).__mro__)
        statistic = holdout.statistics.get(callback.monitor) if known else None
        if statistic is not None:
            yield callback, holdout.mechanism.guess_distance() * (statistic.high - statistic.low)


def _validations(trainer: Any) -> int:
    """Return how many validations a fit plans by its epochs; 0 if it does not say."""
    every, epochs = trainer.check_val_every_n_epoch, trainer.max_epochs
    finite = all(isinstance(limit, int) and limit > 0 for limit in (every, epochs))
    return epochs // every if finite else 0
