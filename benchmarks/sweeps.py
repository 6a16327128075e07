"""What a study's winner is worth, and what is claimed of it: raw, live, sealed with a display.

Every way makes the same Optuna studies of 20 trials with a real Trainer of at most 15 epochs, over
four hyperparameters: TPE without a pruner, and ASHA (successive halving of random points).

- raw values: sampler, pruner, early stopping (patience 5) and choice read plain logged accuracies;
- live: ``th.plan(size=, queries=20, budget=8, purpose="search")``, one question a trial after a fit
  of fixed length, so that ASHA has nothing to prune by;
- live, guesses pruned (TPE): the same, but a trial that is no better ends without a value, as it
  used to;
- display, 10 or 20 % of training: a part of the training data tells sampler, pruner and early
  stopping its loss; the whole holdout is sealed, and closing names the best trial and epoch;
- the same, 5 or 10 refits: the display's best trials are trained again on all training data, still
  sealed, before closing;
- display, 20 % of holdout: a fifth of the holdout is shown, the rest is sealed.

The winner's accuracy on fresh examples decides nothing but the table.
"""

import math
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import final

import optuna
from _measure import asked_quick, report
from _quality_fits import Setting, fresh_value, quietly
from _sweep_tasks import TASKS, Careful, Point
from _sweep_ways import EPOCHS, RAW, TRIALS, Sweep, Winner, ways
from _sweep_widths import show_widths

SEEDS = range(8, 16)  # the settings were chosen on seeds 0 to 7
SEARCHES = ("TPE", "ASHA")


@final
@dataclass(frozen=True, kw_only=True)
class Found:
    """What one way came to with one seed.

    Attributes:
        value: The winner's accuracy on fresh examples.
        claimed: As the way says.
        width: Half of its interval.
        covered: Whether the interval contains the fresh value.
        complete: Trials that told the sampler a value.
        epochs: Trained in all.
    """

    value: float
    claimed: float
    width: float | None
    covered: bool | None
    complete: int
    epochs: int


def measure(number: int, search: str, seed: int, trials: int = TRIALS) -> dict[str, Found]:
    """Make a task's study in every way."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with quietly() as folder:
        sweep = Sweep(Setting(TASKS[number], seed, EPOCHS, Path(folder)), search, trials)
        winners = {name: one for way in ways(search) for name, one in way(sweep).items()}
        return {name: _found(sweep, winner) for name, winner in winners.items()}


def _found(sweep: Sweep, winner: Winner) -> Found:
    hidden = len(winner.weights["layers.0.bias"])
    net = sweep.net(Careful, Point(rate=0.0, hidden=hidden, dropout=0.0, decay=0.0), 0)
    net.load_state_dict(winner.weights)
    value, interval = fresh_value(net, sweep.setting.fresh), winner.interval
    return Found(
        value=value,
        claimed=winner.claimed,
        width=None if interval is None else (interval[1] - interval[0]) / 2,
        covered=None if interval is None else interval[0] <= value <= interval[1],
        complete=winner.complete,
        epochs=winner.epochs,
    )


def show(task: str, search: str, seeds: list[dict[str, Found]]) -> None:
    """Print how each way compares with raw values."""
    raw = [each[RAW] for each in seeds]
    for way in list(seeds[0])[1:]:
        found = [each[way] for each in seeds]
        behind = [one.value - other.value for one, other in zip(raw, found, strict=True)]
        report(
            "sweeps",
            case=f"{task}, {search}, {way}",
            peer=RAW,
            ours=fmean(one.value for one in found),
            theirs=fmean(one.value for one in raw),
            unit="fresh accuracy",
            better="higher",
            task=task,
            search=search,
            way=way,
            seeds=len(seeds),
            behind=round(fmean(behind), 5),
            error=round(stdev(behind) / math.sqrt(len(behind)), 5) if len(behind) > 1 else None,
            width=round(fmean(one.width or 0.0 for one in found), 5),
            covered=sum(bool(one.covered) for one in found),
            **_means("", found),
            **_means("raw_", raw),
        )


def _means(prefix: str, found: list[Found]) -> dict[str, float]:
    return {
        f"{prefix}claimed": round(fmean(one.claimed for one in found), 5),
        f"{prefix}complete": round(fmean(one.complete for one in found), 2),
        f"{prefix}epochs": round(fmean(one.epochs for one in found), 1),
    }


def main() -> None:
    """Print one JSON line per comparison."""
    if asked_quick(__doc__):
        show_widths(studies=(20,))
        for search in SEARCHES:
            show(TASKS[0].name, search, [measure(0, search, 0, trials=TRIALS // 4)])
        return
    show_widths()
    jobs = [(n, s, seed) for n in range(len(TASKS)) for s in SEARCHES for seed in SEEDS]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(4, os.cpu_count() or 1), mp_context=spawn) as pool:
        found = list(pool.map(measure, *zip(*jobs, strict=True)))
    for place in range(0, len(jobs), len(SEEDS)):
        number, search, _ = jobs[place]
        show(TASKS[number].name, search, found[place : place + len(SEEDS)])


if __name__ == "__main__":
    main()
