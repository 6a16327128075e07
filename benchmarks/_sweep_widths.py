"""What sweeps are certified to, by computation: sealed runs against values through the door."""

import torch_holdout as th
from _measure import report
from quality import certified_by
from torch_holdout.planning.curves import lasting_records

SIZE = 10_000
SIZES = (500, 2_000, 10_000, 50_000, 200_000)
STUDIES = (20, 100, 500)
EVALUATIONS = (1, 200)


def live_width(size: int, trials: int) -> float:
    """Return what a live plan for a search certifies: one question a trial, all records published.

    Example:
        >>> round(live_width(10_000, 20), 3)
        0.051
    """
    budget = lasting_records(trials)
    plan = th.plan(size=size, queries=trials, budget=budget, purpose="search")
    return plan.certificate.tolerance


def planned_width(size: int, trials: int, evaluations: int) -> float:
    """Return what a sealed plan certifies.

    Example:
        >>> round(planned_width(10_000, 20, 200), 4)
        0.0247
    """
    plan = th.plan(size=size, queries=evaluations, runs=trials)
    return plan.certificate.tolerance


def show_widths(studies: tuple[int, ...] = STUDIES) -> None:
    """Print the widths of real accounts at n = 10,000, and of plans for other sizes."""
    for trials in studies:
        for evaluations in EVALUATIONS:
            for size in SIZES:
                real = certified_by(size, trials, evaluations) if size == SIZE else None
                report(
                    "sweeps",
                    case=f"{trials} sealed trials of {evaluations}, n={size}",
                    peer="live plan, one question a trial",
                    ours=real or planned_width(size, trials, evaluations),
                    theirs=live_width(size, trials),
                    unit="distance",
                    size=size,
                    trials=trials,
                    evaluations=evaluations,
                )
