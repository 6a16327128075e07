"""Values for Lightning's loggers, callbacks and progress bars: answers, budget, the run's name."""

import contextlib
import logging
import math
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from torch_holdout.holdout.protocol import Door
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.runs import as_run_name
from torch_holdout.training.requirements import BUDGET_IN_BAR
from torch_holdout.training.sealed_checks import EVALUATIONS_IN_BAR
from torch_holdout.training.session import GuardSession
from torch_holdout.training.shown_numbers import show_numbers

_log = logging.getLogger("torch_holdout")


def publish(
    trainer: Any,
    session: GuardSession,
    holdout: Door,
    answers: Mapping[str, Answer],
    last: Mapping[str, float],
    *,
    prog_bar: bool,
) -> None:
    """Log the answers of a pass and the budget that is left.

    A stale answer repeats the ``last`` one. ``prog_bar`` shows statistics and budget in the bar.
    """
    prefix, short = "holdout", BUDGET_IN_BAR
    if session.has_several_guards:
        prefix, short = f"holdout/{holdout.name}", f"{short}/{holdout.name}"
    left = budget_left(answers)
    numbers: dict[str, float] = {}
    for name, answer in answers.items():
        numbers[name] = last.get(name, math.nan)
        numbers[f"{prefix}/{name}/is_release"] = answer.is_release
        numbers[f"{prefix}/{name}/is_stale"] = answer.kind == "exhausted"
    numbers[f"{prefix}/budget_left"] = left
    numbers[f"{prefix}/releases"] = holdout.budget - left
    numbers[f"{prefix}/exhausted"] = left == 0
    if prog_bar:
        # First and short: bars cut what does not fit in a line. Elsewhere it is not a second key.
        trainer.progress_bar_metrics[short] = left
    show_numbers(trainer, numbers, in_bar=answers if prog_bar else ())


def publish_sealed(
    trainer: Any, session: GuardSession, holdout: Door, counts: "SealedCounts", bar: bool
) -> None:
    """Log how many evaluations a sealed run has made, and what it has said: no more is public.

    Nothing is logged under a statistic's name: a NaN there would stop EarlyStopping.
    """
    prefix, short = "holdout", EVALUATIONS_IN_BAR
    if session.has_several_guards:
        prefix, short = f"holdout/{holdout.name}", f"{short}/{holdout.name}"
    if bar:
        trainer.progress_bar_metrics[short] = counts.evaluations
    numbers = {f"{prefix}/{name}": value for name, value in counts._asdict().items()}
    show_numbers(trainer, numbers, in_bar=())


class SealedCounts(NamedTuple):
    """What is public of an open run: its evaluations and passes, its price in nats, runs left."""

    evaluations: int
    passes: int
    price: float
    runs_left: int


def stop_if_spent(trainer: Any, holdout: Door, answers: Mapping[str, Answer]) -> None:
    """Stop a fit whose holdout has no releases left, and say so."""
    if budget_left(answers) or trainer.state.fn != "fit":
        return
    if not trainer.should_stop and trainer.is_global_zero:
        _log.warning(
            "Holdout %r has no releases left: the Trainer stops (on_exhausted='stop'). What was "
            "released stands; more validations need a fresh holdout.",
            holdout.name,
        )
    trainer.should_stop = True


def budget_left(answers: Mapping[str, Answer]) -> int:
    """Return how many releases were left after the last of several answers."""
    return min(answer.budget_left for answer in answers.values())


def name_of_run(trainer: Any) -> str:
    """Return the logger's folder (loggers without one are not asked) as a name, or the time."""
    folder = None
    if trainer.is_global_zero:
        with contextlib.suppress(Exception):  # whatever a logger does, a label stops no run
            folder = Path(trainer.logger.log_dir)
    if folder is None:
        start = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{trainer.state.fn.value} of {start}, process {os.getpid()}"
    return as_run_name("/".join(folder.parts[-2:]))
