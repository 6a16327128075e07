"""The name of the run or trial that asks, and the sealed run that a trial makes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import final

from torch_holdout._shared.checks import require_text

_current: ContextVar[str | None] = ContextVar("torch_holdout_run", default=None)
_trials: ContextVar[tuple["TrialRun", ...]] = ContextVar("torch_holdout_trials", default=())
_LONGEST = 200


@contextmanager
def named_run(name: str) -> Iterator[None]:
    """Name the run of every query inside the block, in this thread; the report compares runs.

    The name is only a label, and a repeated query keeps the name of the run that asked first.
    ``HoldoutGuard`` and the tuners name their runs themselves.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=2, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=3)
        >>> sums = holdout.accumulator("val_acc")
        >>> sums.update(torch.tensor([True, False]))
        >>> with th.named_run("baseline"):
        ...     answer = holdout.release("val_acc", sums, query="weights of the baseline")
    """
    require_text("name", name)
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def current_run() -> str | None:
    """Return the name of the run this thread is in."""
    return _current.get()


def as_run_name(text: str) -> str:
    r"""Return any text as a label: printable characters only, and the last 200 of them.

    Example:
        >>> as_run_name("logs\n/version_0")
        'logs/version_0'
    """
    shown = "".join(character for character in text if character.isprintable())
    return shown[-_LONGEST:].strip() or "unnamed"


@final
class TrialRun:
    """The sealed run of a trial: what it is called, and which earlier run it follows.

    ``HoldoutGuard`` and ``holdout.run()`` take it up inside ``trial_run``.

    Args:
        account: The public mark of the account (``holdout.account``).
        label: What its runs are called; no other trial has this label.
        earlier: Ids of open runs that earlier tries of the trial have left, oldest first.
        ended: Ids of runs that earlier tries have ended, before they were killed; the next run
            takes their place too.
        goes_on: Whether the trial goes on with the last of them. Otherwise it starts over: its
            new run takes their place, and they are given up where that is free.
        best: Which statistic decides what is best in a run that nothing stops; None: the first.
        begun: Called with a run's id once its first evaluation here is committed.
        folder: Where a guard writes the weights of a run that has ended; None: as it would anyway.

    Attributes:
        runs: Ids of the runs that were evaluated here.
        keeps_open: Whether a run that an error breaks off stays open, because the trial may go on
            with it from a checkpoint; otherwise it is given up if that is free.

    Example:
        >>> trial = TrialRun("account", "study trial 3", earlier=["its killed run"])
        >>> trial.resumed(), trial.own("another trial's run"), trial.replaced
        (None, None, ('its killed run',))
        >>> trial.go_on(), trial.resumed()
        ('its killed run', 'its killed run')
    """

    def __init__(
        self,
        account: str,
        label: str,
        *,
        earlier: Sequence[str] = (),
        ended: Sequence[str] = (),
        goes_on: bool = False,
        best: str | None = None,
        begun: Callable[[str], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        require_text("label", label)
        self.account = account
        self.label = as_run_name(label)
        self.best = best
        self.folder = folder
        self.runs: list[str] = []
        self.keeps_open = goes_on
        self._earlier = list(earlier)
        self._ended = list(ended)
        self._goes_on = goes_on
        self._begun = begun
        self._evaluated: tuple[str, int] | None = None

    @property
    def replaced(self) -> tuple[str, ...]:
        """Ids of the runs whose place the next run takes."""
        return (*self._ended, *self._earlier)

    def go_on(self) -> str | None:
        """Go on with the last earlier run; return its id, or None if there is none."""
        self._goes_on = True
        return self._earlier[-1] if self._earlier else None

    def resumed(self) -> str | None:
        """Return the run to go on with, if no checkpoint names one; None to begin one."""
        return self._earlier[-1] if self._goes_on and self._earlier else None

    def own(self, run: str | None) -> str | None:
        """Return the id of a checkpoint's run if it is this trial's; it may be another's."""
        return run if run in self._earlier or run in self.runs else None

    def took(self, run: str, evaluation: int) -> None:
        """Note that a run was evaluated: an earlier one, or one in place of all of them."""
        self._evaluated = (run, evaluation)
        if run not in self.runs:
            self.runs.append(run)
            self._earlier, self._ended = [], []
            if self._begun is not None:
                self._begun(run)

    def evaluated(self) -> tuple[str, int] | None:
        """Return the run and number of the last evaluation, once; None if there is no new one."""
        last, self._evaluated = self._evaluated, None
        return last


@contextmanager
def trial_run(trial: TrialRun) -> Iterator[TrialRun]:
    """Let guards and ``holdout.run()`` inside the block, in this thread, make a trial's run.

    Blocks of several accounts may be inside one another.
    """
    token = _trials.set((trial, *_trials.get()))
    try:
        with named_run(trial.label):
            yield trial
    finally:
        _trials.reset(token)


def current_trial(account: str | None = None) -> TrialRun | None:
    """Return the trial this thread is in, if its runs are those of an account (None: any)."""
    return next((trial for trial in _trials.get() if account in (None, trial.account)), None)
