"""The comparison of mechanisms as one picture: what is lost against what can be claimed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.early_stopping import Estimate, Row, groups

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = {
    "raw": "#000000",
    "train": "#D55E00",
    "last": "#0072B2",
    "ladder": "#009E73",
    "laplace": "#CC79A7",
    "gauss": "#E69F00",
}
MARKERS = {"u/2": "v", "u": "o", "4u": "^", "u/8": "s", "u/2 +noise": "D"}
_SEARCH = "noise labels"
_TICKS = (0.1, 0.2, 0.3, 0.5, 0.8)
_NOWHERE = 1.35  # where points without a certificate are drawn


def draw(rows: Sequence[Row], picture: Path) -> None:
    """Draw a panel per data set and loss, and write it as PNG.

    Example:
        >>> import tempfile
        >>> from experiments.curves import noise_search
        >>> from experiments.early_stopping import compare
        >>> rows = compare([noise_search(seed=0, configurations=2)], only=["raw", "Gauss s=u"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     draw(rows, Path(folder) / "mechanisms.png")
        ...     (Path(folder) / "mechanisms.png").stat().st_size > 10_000
        True
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = groups(rows)
    columns = (len(found) + 2) // 2  # the last place is for the legend
    figure, axes = plt.subplots(2, columns, figsize=(4.6 * columns, 8.2), squeeze=False)
    places = [axes[k % 2][k // 2] for k in range(2 * columns)]
    for place, ((data, loss), own) in zip(places, found.items(), strict=False):
        _panel(place, data, loss, own)
    for place in places[len(found) :]:
        place.axis("off")
    _legend(places[-1], rows)
    figure.tight_layout(w_pad=2.5, h_pad=2.5)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=130, format="png")
    plt.close(figure)


def _panel(axes: Any, data: str, loss: str, rows: Sequence[Row]) -> None:
    search = data == _SEARCH
    axes.axvspan(1.12, 1.65, color="0.93", lw=0)
    without = [row.contender for row in rows if not row.certified]
    for row in rows:
        across = row.certificate.mean
        if not row.certified:  # side by side, not on top of each other
            across = _NOWHERE * (0.87 + 0.05 * without.index(row.contender))
        _point(axes, across, row.gap if search else row.regret, row)
    axes.set_xscale("log")
    axes.set_xlim(0.05, 1.65)
    axes.set_xticks([*_TICKS, _NOWHERE], [*(f"{tick:g}" for tick in _TICKS), "none"])
    axes.minorticks_off()
    axes.set_xlabel("certificate: ± on a reported loss, 95 %, loss in [0, 1]")
    axes.spines[["top", "right"]].set_visible(False)
    if search:
        axes.axhline(0, color="0.4", lw=1, ls=":")
        axes.set_ylabel("gap: reported minus fresh 0-1 loss")
        _title(axes, "Search, labels are noise", "better: left, near 0")
        return
    top = axes.get_ylim()[1]
    axes.set_ylim(-0.04 * top, top)  # room for half a marker
    axes.set_ylabel(f"regret: fresh {loss} lost by the choice")
    _title(axes, f"Early stopping: {data}, {loss}", "better: left, low")


def _point(axes: Any, x: float, y: Estimate, row: Row) -> None:
    axes.errorbar(
        x, y.mean, yerr=y.error, fmt=_marker(row), color=COLOURS[row.family], ms=8, elinewidth=1,
        mfc="white" if row.guesses_count else COLOURS[row.family], alpha=0.9, clip_on=False,
    )  # fmt: skip


def _marker(row: Row) -> str:
    if row.family == "raw":
        return "X"
    label = row.contender.removesuffix(" +guesses").split("=")[-1].removeprefix("Ladder ")
    return MARKERS[label]


def _title(axes: Any, words: str, better: str) -> None:
    axes.set_title(words, fontsize=11, loc="left")
    axes.text(
        1, 1.02, better, transform=axes.transAxes, ha="right", fontsize=9, color="0.35",
        style="italic",
    )  # fmt: skip


def _legend(axes: Any, rows: Sequence[Row]) -> None:
    from matplotlib.lines import Line2D

    seen = {row.contender: row for row in rows}.values()
    handles = [
        Line2D(
            [], [], ls="", marker=_marker(row), color=COLOURS[row.family], ms=8,
            mfc="white" if row.guesses_count else COLOURS[row.family], label=row.contender,
        )
        for row in sorted(seen, key=lambda row: list(COLOURS).index(row.family))
    ]  # fmt: skip
    title = (
        "u = 1/(2√n), n the holdout's size\nT threshold, s standard deviation of the noise\n"
        "bars: standard error over seeds"
    )
    axes.legend(
        handles=handles, title=title, loc="center", frameon=False, fontsize=10, title_fontsize=9,
        alignment="left",
    )  # fmt: skip
