"""A picture of two sweeps on coin flips: what each was told, and what each claims."""

from itertools import accumulate
from pathlib import Path
from typing import Any

from experiments.sweep import Sweep

_RAW, _GUARDED, _CHANCE = "#c0392b", "#1f6f8b", "0.35"


def draw(raw: Sweep, guarded: Sweep, path: Path, *, size: int) -> None:
    """Draw both sweeps, trial by trial, in one panel each with a common axis.

    Args:
        raw: The sweep on the raw holdout.
        guarded: The sweep through the door.
        path: Where the picture goes.
        size: Holdout examples.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), sharey=True, layout="constrained")
    figure.suptitle(
        f"Tuning a blend on {size} coin-flip labels: nobody can be better than 50 %", fontsize=12
    )
    _panel(left, raw, _RAW, "raw holdout: every accuracy is told")
    best = [100 * value for value in accumulate(raw.told, max)]
    left.step(range(1, len(best) + 1), best, where="post", color=_RAW, lw=2, label="best so far")
    read = sum(guarded.released)
    title = f"guarded holdout: {read} of {len(guarded.told)} trials read it, the rest got a guess"
    _panel(right, guarded, _GUARDED, title)
    if guarded.claim is not None:
        low, high = 100 * guarded.claim.low, 100 * guarded.claim.high
        right.axhspan(
            low, high, color=_GUARDED, alpha=0.12, lw=0,
            label=f"certified interval of the claim\n({low:.1f} to {high:.1f} %)",
        )  # fmt: skip
        right.axhline(
            100 * guarded.claimed, color=_GUARDED, lw=2, zorder=1, label="claim (best release)"
        )
    left.set_ylabel("accuracy (%)")
    left.legend(loc="lower right", bbox_to_anchor=(1.0, 0.1), fontsize=8.5, framealpha=0.9)
    right.legend(loc="upper right", fontsize=8.5, framealpha=0.9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, format="png")
    plt.close(figure)


def _panel(axes: Any, sweep: Sweep, colour: str, title: str) -> None:
    numbers = range(1, len(sweep.told) + 1)
    for released, face, label in (
        (True, colour, "told: a reading of the holdout"),
        (False, "white", "told: a guess"),
    ):
        shown = [n for n in numbers if sweep.released[n - 1] is released]
        few = len(shown) <= 30
        if shown:
            axes.plot(
                shown, [100 * sweep.told[n - 1] for n in shown], ls="", marker="o",
                ms=8 if released and few else 4, mfc=face, mec=colour, mew=0.8, label=label,
                alpha=1.0 if few else 0.55, zorder=3 if released else 2,
            )  # fmt: skip
    axes.axhline(50, color=_CHANCE, ls=":", lw=1.6, label="chance")
    axes.axhline(100 * sweep.fresh, color="black", ls="--", lw=1.2, label="winner on fresh data")
    axes.set_title(title, loc="left", fontsize=10.5, color=colour)
    axes.text(
        0.98, 0.04,
        f"claimed {100 * sweep.claimed:.1f} %, on fresh data {100 * sweep.fresh:.1f} %",
        transform=axes.transAxes, ha="right", va="bottom", fontsize=10.5, weight="bold",
        color=colour,
    )  # fmt: skip
    axes.set_xlabel("trial")
    axes.spines[["top", "right"]].set_visible(False)
