"""Values for Lightning's loggers, callbacks and progress bars: answers, budget, the run's name."""

import contextlib
import logging
import math
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric

from torch_holdout.holdout.protocol import Door
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.runs import as_run_name
from torch_holdout.training.requirements import BUDGET_IN_BAR
from torch_holdout.training.sealed_checks import EVALUATIONS_IN_BAR
from torch_holdout.training.session import GuardSession

_log = logging.getLogger("torch_holdout")


class Published(Metric):
    """A number that every rank has already; Lightning takes it as it is.

    A tensor would be made a float, so that a budget of 19 reads 19.00, and under DDP Lightning
    would advise to average it over ranks. A metric's own value is left alone.

    Example:
        >>> Published(19).compute(), Published(0.25).compute()
        (tensor(19), tensor(0.2500, dtype=torch.float64))
    """

    full_state_update = False

    def __init__(self, value: float) -> None:
        super().__init__(sync_on_compute=False)
        whole = isinstance(value, int)  # flags are 0 and 1
        self._value = torch.tensor(value, dtype=torch.int64 if whole else torch.float64)
        self.update()

    def update(self, *_: Any) -> None:
        """Count as updated; there is nothing to add."""

    def compute(self) -> Tensor:
        """Return the number."""
        return self._value


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
    if prog_bar:
        # First and short: bars cut what does not fit in a line. Elsewhere it is not a second key.
        trainer.progress_bar_metrics[short] = left
    for name, answer in answers.items():
        send(session, name, last.get(name, math.nan), bar=prog_bar)
        send(session, f"{prefix}/{name}/is_release", answer.is_release)
        send(session, f"{prefix}/{name}/is_stale", answer.kind == "exhausted")
    send(session, f"{prefix}/budget_left", left)
    send(session, f"{prefix}/releases", holdout.budget - left)
    send(session, f"{prefix}/exhausted", left == 0)


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
    for name, value in counts._asdict().items():
        send(session, f"{prefix}/{name}", value)


class SealedCounts(NamedTuple):
    """What is public of an open run: its evaluations and passes, its price in nats, runs left."""

    evaluations: int
    passes: int
    price: float
    runs_left: int


def send(session: GuardSession, name: str, value: float, *, bar: bool = False) -> None:
    """Log a public number at the end of the pass."""
    session.log(
        name,
        Published(value),
        prog_bar=bar,
        on_step=False,
        on_epoch=True,
        batch_size=1,
        metric_attribute=name,  # so that Lightning does not look for it in the module
    )


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
