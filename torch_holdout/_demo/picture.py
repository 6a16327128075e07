"""The demo's results as a picture, or as a table where matplotlib is missing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_holdout._demo.majority import Attack
from torch_holdout._demo.ways import Way
from torch_holdout._shared.text import floor

COLOURS = {"raw values": "C3", "guarded values": "C0", "sealed run": "C2"}


def percent(share: float) -> str:
    """Format a share.

    Example:
        >>> percent(0.5)
        '50.0 %'
    """
    return f"{100 * share:.1f} %"


def certified(way: Way) -> str:
    """Format what is certified of a way's chosen model, its ends rounded outwards.

    Example:
        >>> from torch_holdout._demo.ways import Epoch
        >>> epoch = Epoch(6, 1.5, "sealed", 0, 1.4)
        >>> facts = {"name": "sealed run", "seen": "", "epochs": [epoch], "chosen": epoch}
        >>> certified(Way(**facts, low=1.258, high=1.792)), certified(Way(**facts))
        ('1.25 to 1.80', 'nothing')
    """
    if way.low is None or way.high is None:
        return "nothing"
    return f"{floor(way.low, 2):.2f} to {-floor(-way.high, 2):.2f}"


def written(ways: Sequence[Way], raw: Attack, guarded: Attack, queries: int) -> str:
    """Format both parts as text."""
    rows = [f"{'way':>14}  {'epochs':>6}  {'chosen':>6}  {'said':>5}  {'fresh':>5}  certified"]
    rows += [
        f"{way.name:>14}  {len(way.epochs):6d}  {way.chosen.number:6d}  "
        f"{way.chosen.published:5.2f}  {way.chosen.fresh:5.2f}  {certified(way)}"
        for way in ways
    ]
    return "\n".join(
        [
            *("Early stopping: loss of the chosen model", *rows, ""),
            f"Coin-flip labels, {queries} adaptive questions: accuracy (truth 50 %)",
            f"raw holdout {percent(raw.claimed)}, guarded holdout {percent(guarded.claimed)}, "
            f"fresh data {percent(guarded.fresh)}\n",
        ]
    )


def draw(ways: Sequence[Way], raw: Attack, guarded: Attack, queries: int, picture: Path) -> None:
    """Draw both parts."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4.6), width_ratios=(4, 3, 3))
    _draw_curves(axes[0], ways)
    _draw_claims(axes[1], ways)
    _draw_attack(axes[2], raw, guarded, queries)
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(picture, dpi=130, format="png")
    plt.close(figure)


def _draw_curves(axes: Any, ways: Sequence[Way]) -> None:
    """Draw the loss of every epoch: on fresh data, and as each way has published it."""
    longest = max(ways, key=lambda way: len(way.epochs))
    numbers = [epoch.number for epoch in longest.epochs]
    fresh = [epoch.fresh for epoch in longest.epochs]
    axes.plot(numbers, fresh, color="0.6", lw=2.5, label="fresh data (the truth)")
    for way in ways:
        if way.holdout is None:
            continue  # the sealed run's values, once shown, are the same
        colour, steps = COLOURS[way.name], way.closing is None
        axes.plot(
            [e.number for e in way.epochs], [e.published for e in way.epochs], color=colour, lw=1.2,
            drawstyle="steps-mid" if steps else "default",
            label="guarded values, as published" if steps else "sealed run, shown by closing",
        )  # fmt: skip
        if way.closing is not None:
            values = way.closing.curve()
            low, high = [v.low for v in values], [v.high for v in values]
            places = [e.number for e in way.epochs]
            axes.fill_between(
                places, low, high, color=colour, alpha=0.15, lw=0, label="certified, all at once"
            )
    for way in ways:
        hollow = {"ms": 9, "mfc": "none"} if way.holdout is None else {"ms": 6}
        point = way.chosen.number, way.chosen.published
        axes.plot(*point, "o", color=COLOURS[way.name], **hollow)
    axes.set(xlabel="epoch", ylabel="validation loss", title="Early stopping; chosen epochs marked")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False, fontsize=9)


def _draw_claims(axes: Any, ways: Sequence[Way]) -> None:
    """Draw what each way says about its chosen model, what is certified, and the truth."""
    for place, way in enumerate(ways):
        colour, said, top = COLOURS[way.name], way.chosen.published, way.chosen.published
        if way.low is not None and way.high is not None:
            top = way.high
            axes.plot(
                [place, place], [way.low, top], color=colour, lw=7, alpha=0.35,
                solid_capstyle="butt",
            )  # fmt: skip
        axes.annotate(
            certified(way), (place, top), (0, 7), textcoords="offset points", ha="center",
            color=colour, fontsize=9,
        )  # fmt: skip
        axes.plot(place, said, "o", color=colour, ms=7)
        axes.plot(place + 0.18, way.chosen.fresh, "D", color="0.45", ms=6)
    axes.plot([], [], "o", color="black", label="what it says")
    axes.plot([], [], "D", color="0.45", label="on fresh data")
    highest = max(way.high or way.chosen.published for way in ways)
    names = [f"{way.name}\nepoch {way.chosen.number}" for way in ways]
    axes.set_xticks(range(len(ways)), names, fontsize=9)
    axes.set(
        xlim=(-0.5, len(ways) - 0.5), ylim=(0, 1.15 * highest), ylabel="loss of the chosen model",
        title="What is certified of it, with 95 %",
    )  # fmt: skip
    axes.legend(frameon=False, fontsize=9, loc="lower left")


def _draw_attack(axes: Any, raw: Attack, guarded: Attack, queries: int) -> None:
    names = ["raw holdout\nsays", "guarded holdout\nsays", "fresh data\nsays"]
    values = [raw.claimed, guarded.claimed, guarded.fresh]
    bars = axes.bar(names, values, color=["C3", "C0", "0.55"], width=0.6)
    shown = list(map(percent, values))
    axes.bar_label(bars, shown, label_type="center", color="white", fontsize=12, weight="bold")
    axes.axhline(0.5, color="black", lw=1, ls=":")
    axes.text(2, 0.51, "truth: 50 %", ha="center", va="bottom", fontsize=9)
    axes.set(
        ylim=(0, 0.8),
        ylabel="accuracy of the analyst's classifier",
        title=f"Coin-flip labels, {queries} adaptive questions",
    )
    axes.tick_params(axis="x", labelsize=9)
