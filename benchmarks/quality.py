"""How good the chosen model is, and what is certified of it: raw, live, sealed, private, display.

Every way trains the same network on the same batches with a real Trainer of at most 200 epochs:

- raw values: ``EarlyStopping`` (patience 10) and ``ModelCheckpoint`` on plain logged means;
- live plan: the same callbacks on the values of ``th.plan(size=, queries=200, budget=20)``;
- sealed: ``HoldoutGuard(stop=th.Patience)``, patience 10, one run;
- sealed, epsilon 1: the same with ``th.Sealed(epsilon=1.0)``, patience 20;
- display-stopped: a fifth of the holdout stops the run (patience 20), the rest is silent, and
  ``closing.load_best`` takes its best epoch. The account plans 20 such runs.

*Regret* is the fresh value of the chosen model minus that of the best of all 200 epochs, over the
range of the statistic (for accuracy the other way round): 0 is the best that stopping could have
done. Fresh examples decide nothing but this number. *Width* is the certified half-width over that
of one query asked once of all n examples, sqrt(ln 40 / 2n): *certified* before closing, *closed*
by the interval of the chosen model. Losses are clipped to their bounds everywhere.
"""

import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, final

import torch
import torch_holdout as th
from _measure import asked_quick, report
from _quality_fits import (
    DISPLAY,
    EPOCHS,
    RUNS,
    WAYS,
    Chosen,
    Net,
    Setting,
    fresh_query,
    fresh_value,
    oracle,
    quietly,
)
from _quality_tasks import TASKS, Task

SEEDS = 8
RAW = next(iter(WAYS))
SIZE = 10_000  # of the widths that need no training


@final
@dataclass(frozen=True, kw_only=True)
class Found:
    """What one way came to with one seed; widths are normalised.

    Attributes:
        value: Of the chosen model on fresh examples.
        regret: Over the range.
        same: Whether the chosen weights are those of raw values, bit for bit.
        certified: Half-width before closing.
        closed: Half-width after closing.
        covered: Whether the closed interval contains the fresh value.
    """

    value: float
    regret: float
    same: bool
    certified: float | None
    closed: float | None
    covered: bool | None


def measure(number: int, seed: int, epochs: int = EPOCHS) -> dict[str, Found]:
    """Go every way with one seed of a task."""
    task = TASKS[number]
    with quietly() as folder:
        setting = Setting(task, seed, epochs, Path(folder))
        best = (min if task.statistic.mode == "min" else max)(oracle(setting))
        chosen = {name: way(setting) for name, way in WAYS.items()}
        return {name: _found(setting, each, chosen[RAW], best) for name, each in chosen.items()}


def _found(setting: Setting, chosen: Chosen, raw: Chosen, best: float) -> Found:
    task, net, closed = setting.task, setting.net(Net), chosen.closed
    net.load_state_dict(chosen.weights)
    value = fresh_value(net, setting.fresh)
    return Found(
        value=value,
        regret=abs(value - best) / task.range,
        same=all(torch.equal(raw.weights[name], chosen.weights[name]) for name in raw.weights),
        certified=chosen.certified,
        closed=None if closed is None else (closed.high - closed.low) / (2 * task.range),
        covered=None if closed is None else value in closed,
    )


def show(task: Task, seeds: list[dict[str, Found]]) -> None:
    """Print a task's comparisons with raw values, and with one fresh query."""
    size = len(task.parts(0)[1])
    raw = [each[RAW] for each in seeds]
    better = "lower" if task.statistic.mode == "min" else "higher"
    for way in list(WAYS)[1:]:
        found = [each[way] for each in seeds]
        facts: dict[str, Any] = {"case": f"{task.name}, {way}", "task": task.name, "way": way}
        report(
            "quality",
            **facts,
            peer=RAW,
            ours=fmean(each.value for each in found),
            theirs=fmean(each.value for each in raw),
            unit="fresh loss" if better == "lower" else "fresh accuracy",
            better=better,
            seeds=len(seeds),
            same_weights=sum(each.same for each in found),
            regret=round(fmean(each.regret for each in found), 6),
            largest_regret=round(max(each.regret for each in found), 6),
            raw_regret=round(fmean(each.regret for each in raw), 6),
            raw_largest_regret=round(max(each.regret for each in raw), 6),
        )
        facts["case"] += ", certified"
        _show_width(facts, size, [each.certified for each in found])
        if found[0].closed is not None:
            facts["case"] = facts["case"].replace("certified", "closed")
            covered = sum(bool(each.covered) for each in found)
            _show_width(facts, size, [each.closed for each in found], covered=covered)


def _show_width(
    facts: dict[str, Any], size: int, widths: Iterable[float | None], **more: Any
) -> None:
    """Compare half-widths with that of one query asked once; nobody could stop by that one."""
    report(
        "quality",
        **facts,
        peer="one fresh query",
        ours=fmean(width for width in widths if width is not None),
        theirs=fresh_query(size),
        unit="distance",
        yardstick=True,
        **more,
    )


def show_whole_widths() -> None:
    """Print what accounts certify that have made all their evaluations, at n = 10,000."""
    for case, taken, runs in (
        (f"one sealed run, m={EPOCHS}, n={SIZE}", SIZE, 1),
        (f"{RUNS} display-stopped runs, m={EPOCHS}, n={SIZE}", round(SIZE * (1 - DISPLAY)), RUNS),
        (f"{RUNS} runs, display from the training set, m={EPOCHS}, n={SIZE}", SIZE, RUNS),
    ):
        _show_width({"case": case}, SIZE, [certified_by(taken, runs)])


def certified_by(size: int, runs: int, evaluations: int = EPOCHS) -> float:
    """Return the half-width of a real account after all evaluations of its last run.

    Runs before it are silent, so one evaluation in each is as good as all of them.
    """
    holdout = th.ReusableHoldout(
        "memory://", name="holdout", size=size, budget=runs,
        statistics={"val": th.BoundedMean(0.0, 1.0)},
        mechanism=th.Sealed(evaluations=evaluations),
    )  # fmt: skip
    values = torch.linspace(0, 1, size)
    for number in range(1, runs + 1):
        with holdout.run() as run:
            for evaluation in range(evaluations if number == runs else 1):
                sums = holdout.accumulator("val")
                sums.update(values)
                run.evaluate({"val": sums}, query=f"run {number}, evaluation {evaluation}")
    return holdout.certificate().tolerance


def main() -> None:
    """Print one JSON line per comparison."""
    quick = asked_quick(__doc__)
    show_whole_widths()
    if quick:
        show(TASKS[0], [measure(0, 0, epochs=EPOCHS // 2)])
        return
    jobs = [(number, seed) for number in range(len(TASKS)) for seed in range(SEEDS)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(4, os.cpu_count() or 1), mp_context=spawn) as pool:
        found = pool.map(measure, *zip(*jobs, strict=True))
        for task in TASKS:
            show(task, list(islice(found, SEEDS)))


if __name__ == "__main__":
    main()
