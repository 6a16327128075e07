"""Draw how a raw and a guarded holdout wear out: ``python docs/naive_and_guarded.py``.

Labels are coin flips, so nobody is better than 50 %. An analyst asks for the accuracy of random
classifiers, keeps those that look better than a coin, inverts the others and claims their vote.
Writes docs/naive_and_guarded.png, with its twin for dark pages, and prints its numbers.
"""

from pathlib import Path
from statistics import mean

import matplotlib as mpl
import torch_holdout as th
from torch_holdout._demo.doors import ACCURACY, RawDoor, guarded_door
from torch_holdout._demo.majority import majority_attack

mpl.use("Agg")
from matplotlib import pyplot as plt

SIZE, BUDGET = 1000, 20
QUERIES = (1, 50, 100, 200, 300, 400, 600, 800, 1000)
SEEDS = range(10)


def claims(queries):
    """Return what the raw holdout, the guarded one and fresh data say, for each seed."""
    error = ACCURACY.standard_error(SIZE)
    rule = th.Thresholdout(threshold=4 * error, sigma=error / 8, guess="last")
    found = []
    for seed in SEEDS:
        door = guarded_door(rule, ACCURACY, size=SIZE, budget=BUDGET, seed=seed)
        facts = {"size": SIZE, "queries": queries, "seed": 100 * seed}
        raw, guarded = majority_attack(RawDoor(), **facts), majority_attack(door, **facts)
        found.append((raw.claimed, guarded.claimed, raw.fresh))
    return [[100 * value for value in side] for side in zip(*found, strict=True)]


def draw(path, rows):
    """Draw accuracy against the number of questions: means, and from the least to the most."""
    figure, axes = plt.subplots(figsize=(7.5, 4.0))
    raw, guarded, fresh = ([mean(side) for side in column] for column in zip(*rows, strict=True))
    spread = [(min(row[1]), max(row[1])) for row in rows]
    axes.fill_between(QUERIES, *zip(*spread, strict=True), color="C0", alpha=0.15, lw=0)
    axes.plot(QUERIES, raw, "o-", color="C3", lw=2)
    axes.plot(QUERIES, guarded, "o-", color="C0", lw=2)
    axes.plot(QUERIES, fresh, "--", color="C7", lw=1.5)
    end = QUERIES[-1] + 15
    axes.text(end, raw[-1], f"a raw holdout\nsays {raw[-1]:.0f} %", color="C3", va="center")
    axes.text(
        end, guarded[-1] + 0.6, f"a guarded one\nsays {guarded[-1]:.0f} %", color="C0",
        va="bottom",
    )  # fmt: skip
    axes.text(end, fresh[-1] - 0.6, "fresh data: 50 %", color="C7", va="top")
    axes.set(
        xlim=(0, 1240),
        ylim=(44, 82),
        xlabel="questions asked",
    )
    axes.set_ylabel("accuracy that is claimed (%)")
    axes.set_title(f"Coin-flip labels, {SIZE:,} holdout examples", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xticks(range(0, 1001, 200))
    axes.grid(alpha=0.2)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    from pictures import in_both

    found = [claims(queries) for queries in QUERIES]
    picture = Path(__file__).with_name("naive_and_guarded.png")
    in_both(lambda path: draw(path, found), picture)
    for queries, row in zip(QUERIES, found, strict=True):
        raw, guarded, fresh = (f"{mean(side):.1f} %" for side in row)
        least, most = min(row[1]), max(row[1])
        shown = f"raw {raw}, guarded {guarded} ({least:.1f} to {most:.1f}), fresh {fresh}"
        print(f"{queries:5} questions: {shown}")
