"""What private answers reach for a budget: an ensemble, neighbours, a stable model, DP-SGD.

Two tasks: 3,500 private digits under a public embedding (gradient histograms), and 40,000 rows of a
table. Accuracy on fresh examples at delta 1e-5, for 100 and 1,000 answers that share a budget, and
without limit: a student of labels that the whole budget has paid for, or a model trained by DP-SGD
(Opacus, left out where it is not installed). Mean over three splits. The peer is a network trained
on the same records without any privacy: it gives the scale.
"""

import importlib.util
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import Any

import torch
from _measure import asked_quick, report
from _ways import (
    Ensemble,
    Neighbours,
    PrivateTraining,
    Split,
    Stable,
    plain_accuracy,
    task_of,
)

EPSILONS = (1.0, 2.0, 4.0, 8.0)
QUERIES = (100, 1000)
SEEDS = 3
PLAIN = "the network without privacy"
TASKS = ("digits", "table")
Found = dict[tuple[str, int | None, float], float]  # by way, queries and epsilon


def measure(name: str, seed: int, epsilons: tuple[float, ...] = EPSILONS) -> tuple[float, Found]:
    """Go every way with one split; return the accuracy without privacy, and theirs."""
    torch.set_num_threads(1)
    task = task_of(name)
    split, found = Split.of(task, seed), Found()
    ways: list[tuple[str, Any]] = [
        (f"ensemble of {task.parts}", Ensemble(split)),
        ("neighbours", Neighbours(split)),
        ("stable model", Stable(split)),
    ]
    if name == "digits":
        raw = Ensemble(Split.of(task_of("pixels"), seed))
        ways.insert(0, (f"ensemble of {task.parts}, on pixels", raw))
    if importlib.util.find_spec("opacus") is not None:
        ways.append(("DP-SGD (Opacus)", PrivateTraining(split)))
    for way, made in ways:
        for epsilon in epsilons:
            for queries in QUERIES if hasattr(made, "accuracy") else ():
                found[way, queries, epsilon] = made.accuracy(epsilon, queries)
            if hasattr(made, "student"):
                found[way, None, epsilon] = made.student(epsilon)
    return plain_accuracy(split), found


def show(name: str, seeds: list[tuple[float, Found]]) -> None:
    """Print a task's comparisons."""
    plain = fmean(accuracy for accuracy, _ in seeds)
    for way, queries, epsilon in seeds[0][1]:
        reached = [found[way, queries, epsilon] for _, found in seeds]
        data = task_of(name).name
        asked = "without limit" if queries is None else f"{queries:,} queries"
        report(
            "private_prediction_ways",
            case=f"{data}, {way}, epsilon {epsilon:g}, {asked}",
            peer=PLAIN,
            ours=fmean(reached),
            theirs=plain,
            unit="fresh accuracy",
            better="higher",
            yardstick=True,
            data=data,
            way=way,
            queries=queries,
            epsilon=epsilon,
            seeds=len(seeds),
            smallest=round(min(reached), 4),
            largest=round(max(reached), 4),
        )


def main() -> None:
    """Print one JSON line per comparison."""
    if asked_quick(__doc__):
        show("digits", [measure("digits", 0, (2.0,))])
        return
    jobs = [(name, seed) for name in TASKS for seed in range(SEEDS)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), mp_context=spawn) as pool:
        found = list(pool.map(measure, *zip(*jobs, strict=True)))
    for place, name in enumerate(TASKS):
        show(name, found[place * SEEDS : (place + 1) * SEEDS])


if __name__ == "__main__":
    main()
