"""The sealed runs of a sweep's trials: one for each, also when a trial is killed and tried again.

A killed trial leaves its run open. A new try that starts over takes its place: the old run is given
up for free, in the transaction that begins the new one, so that the budget counts the trial once. A
try that goes on from the trial's own checkpoint goes on with its run. A run is found by the id that
was stored with the trial, or by its label, if the trial was killed before the id was stored.
"""

from collections.abc import Collection, Iterable, Mapping

from torch_holdout.holdout.closing import Closing
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.ledger.sealed_runs import marked_run


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
    summary = holdout._reading().summary
    known = ((run, marked_run(summary.account, run.run)) for run in summary.runs)
    return [
        mark for run, mark in known if run.state == "open" and (run.label in labels or mark in ids)
    ]


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
