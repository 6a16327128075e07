"""Draw and print how far released values can be off: ``python docs/tolerance.py``.

Writes docs/tolerance.png, with its twin for dark pages, and prints the table of
docs/guarantees.md, from the code that certifies.
"""

import math
from pathlib import Path

import matplotlib as mpl
import torch_holdout as th
from torch_holdout.bounds import hoeffding

mpl.use("Agg")
from matplotlib import pyplot as plt

SIZES = (1_000, 5_000, 10_000, 50_000, 200_000)
QUERIES = (50, 200, 1_000)
BUDGETS = (1, 5, 20, 100)


def table():
    """Return the page's table: one row per (m, B), one column per n."""
    lines = [
        "| queries m | releases B | " + " | ".join(f"n = {size:,}" for size in SIZES) + " |",
        "|---" * (2 + len(SIZES)) + "|",
    ]
    for queries in QUERIES:
        for budget in BUDGETS:
            if budget <= queries:
                facts = {"queries": queries, "budget": budget}
                row = [th.certificate(size=size, **facts).tolerance for size in SIZES]
                cells = " | ".join(f"{value:.3f}" for value in row)
                lines.append(f"| {queries:,} | {budget} | {cells} |")
    vault = " | ".join(f"{hoeffding(int(0.2 * size), 0.05):.3f}" for size in SIZES)
    lines.append(f"| a vault: 20 % of n, opened once | 1 | {vault} |")
    return "\n".join(lines)


def draw(path):
    """Draw the tolerance against n for several budgets, with what the alternatives give."""
    figure, axes = plt.subplots(figsize=(7.5, 4.6))
    sizes = [round(10 ** (2.5 + k / 10)) for k in range(34)]
    for budget, colour in zip(BUDGETS, ("C0", "C2", "C4", "C5"), strict=True):
        values = [th.certificate(size=n, queries=200, budget=budget).tolerance for n in sizes]
        axes.plot(sizes, values, color=colour, lw=2, label=f"B = {budget}")
    axes.plot(
        sizes,
        [hoeffding(max(1, int(0.2 * n)), 0.05) for n in sizes],
        color="C1",
        ls="--",
        label="a vault of 20 %, opened once",
    )
    naive = [math.sqrt(math.log(2 * 200 / 0.05) / (2 * n)) for n in sizes]
    axes.plot(sizes, naive, color="C7", ls=":", label="naive union bound (invalid when adaptive)")
    axes.set(xscale="log", yscale="log", ylim=(0.004, 1), xlabel="holdout examples n")
    axes.set_ylabel("distance to the population, 95 % confidence")
    axes.set_title("What released values are worth after 200 queries (normalised)", loc="left")
    ticks = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, title="releases B, and alternatives")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    from pictures import in_both

    in_both(draw, Path(__file__).with_name("tolerance.png"))
    print(table())
