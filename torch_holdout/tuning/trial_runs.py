"""The sealed runs of a sweep's trials: one for each, also when a trial is killed and tried again.

A killed trial leaves its run open. A new try that starts over takes its place: the old run is given
up for free, in the transaction that begins the new one, so that the budget counts the trial once. A
try that goes on from the trial's own checkpoint goes on with its run. A run is found by the id that
was stored with the trial, or by its label, if the trial was killed before the id was stored.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from torch_holdout.errors import HoldoutClosedError, HoldoutWarning
from torch_holdout.holdout.closing import Closing
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.ledger.run_events import StoredRun, marked_run


def open_runs(
    holdout: ReusableHoldout, *, labels: Collection[str] = (), ids: Collection[str] = ()
) -> list[str]:
    """Return the ids of a trial's open runs, oldest first.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=2, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=3)
        >>> sums, run = holdout.accumulator("val_acc"), holdout.run(name="study trial 3")
        >>> sums.update(torch.tensor([True, False]))
        >>> _ = run.evaluate({"val_acc": sums}, query="weights of epoch 1")
        >>> open_runs(holdout, labels={"study trial 3"}) == [run.id]
        True
    """
    return [mark for run, mark in _open(holdout) if run.label in labels or mark in ids]


def ended_runs(
    holdout: ReusableHoldout, *, labels: Collection[str] = (), ids: Collection[str] = ()
) -> list[str]:
    """Return the ids of a trial's runs that have ended without a word, oldest first.

    A try that was killed between the end of its run and its own has left one.
    """
    return [mark for run, mark in _silent(holdout) if run.label in labels or mark in ids]


def warn_if_erased(holdout: ReusableHoldout, *, stacklevel: int) -> None:
    """Say before a sweep that closing will erase what it is made for: values to rank trials by."""
    if holdout.mechanism.is_private():
        warnings.warn(
            f"Noise protects the examples of holdout {holdout.name!r}: holdout.close() will erase "
            f"the sums of all trials, and none can be ranked. For a sweep make an account without "
            f"noise, th.Sealed(evaluations=...), or close it with holdout.close(exact=True), after "
            f"which epsilon is infinite.",
            HoldoutWarning,
            stacklevel=stacklevel,
        )


def is_closed(holdout: ReusableHoldout) -> bool:
    """Return whether a holdout was closed."""
    return holdout._reading().summary.closed != "open"


def end_silent(holdout: ReusableHoldout, ids: Collection[str]) -> None:
    """End a trial's open runs that nothing stops: that says nothing, and their evaluations count.

    A run with a patience stays open: ending it would hand over its best evaluation, at a price.
    """
    with suppress(HoldoutClosedError):  # closed meanwhile: there is nothing to end
        for run, mark in _open(holdout):
            if mark in ids and run.patience is None:
                holdout.run(resume=mark).end()


def give_up_free(holdout: ReusableHoldout, ids: Collection[str]) -> None:
    """Give up the runs of a trial that failed, where that is free; others stay as they are."""
    with suppress(HoldoutClosedError):
        for _, mark in [*_open(holdout), *_silent(holdout)]:
            if mark in ids:
                holdout.run(resume=mark)._undo_if_free()


def _silent(holdout: ReusableHoldout) -> Iterator[tuple[StoredRun, str]]:
    """Yield ended runs of which nothing was ever said; a challenge's run belongs to no trial."""
    summary = holdout._reading().summary
    named = {symbol.run for symbol in summary.symbols}
    for run in summary.runs:
        if run.ended_silently and run.run not in named:
            yield run, marked_run(summary.account, run.run)


def _open(holdout: ReusableHoldout) -> Iterator[tuple[StoredRun, str]]:
    summary = holdout._reading().summary
    for run in summary.runs:
        if run.state == "open":
            yield run, marked_run(summary.account, run.run)


def runs_of_trials(
    closing: Closing,
    *,
    stored: Mapping[str, Iterable[str]],
    labels: Mapping[str, str],
) -> dict[str, list[str]]:
    """Return the ids of each trial's runs, in the order they were begun.

    Args:
        closing: The closed account.
        stored: By trial, the ids that were stored with it. A run belongs to the last trial that
            names it: an earlier try has left it.
        labels: Trials by the label of their runs, for ids that were not stored.
    """
    owner = {mark: trial for trial, marks in stored.items() for mark in marks}
    found: dict[str, list[str]] = {}
    for run in closing.runs:
        trial = owner.get(run.id) or labels.get(run.name or "")
        if trial is not None:
            found.setdefault(trial, []).append(run.id)
    return found
