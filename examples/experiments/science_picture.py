"""The Science experiment as a table and as one picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from experiments.science import Outcome, Result

# Okabe and Ito's colours, distinguishable with every common colour blindness; markers differ too.
_LINES = {
    "train": ("training set", "#0072B2", "^", "--"),
    "answered": ("holdout, as answered", "#D55E00", "o", "-"),
    "fresh": ("fresh data (the truth)", "#000000", "s", "-"),
}
_BEST, _CHANCE = "#009E73", "0.45"


def table(results: Sequence[Result]) -> str:
    """Return one line per case, way to the holdout and number of features.

    Example:
        >>> from experiments.science import Case, run
        >>> result = run(Case(size=400, features=400, signal=0), repetitions=2)
        >>> len(table([result]).splitlines())  # a header, and three ways with three numbers each
        10
    """
    head = (
        f"{'case':22} {'way to the holdout':26} {'k':>4} {'train':>14} {'answered':>14} "
        f"{'fresh':>14} {'answered-fresh':>15} {'releases':>9}  exhausted"
    )
    lines = [head]
    for result in results:
        for name, outcome in result.outcomes.items():
            lines += [
                f"{_title(result):22} {name:26} {count:4d} {_cells(outcome, place)}"
                for place, count in enumerate(result.counts)
            ]
    return "\n".join(lines)


def draw(results: Sequence[Result], picture: Path) -> None:
    """Draw a row per case and a column per way to the holdout."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(results[0].outcomes)
    figure, grid = plt.subplots(
        len(results), len(names), figsize=(4.3 * len(names), 3.7 * len(results) + 1.3),
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    for row, result in zip(grid, results, strict=True):
        for axes, (name, outcome) in zip(row, result.outcomes.items(), strict=True):
            _panel(axes, result, outcome)
            axes.set_title(f"{_title(result)}, {name}", loc="left", fontsize=10)
        row[0].set_ylabel("accuracy (% of labels right)")
    for axes in grid[-1]:
        axes.set_xlabel("selected features k (number)")
    low, high = grid[0][0].get_ylim()
    grid[0][0].set_ylim(low, high + 0.12 * (high - low))  # room for what is written at the top
    _explain(figure, grid[-1][0], results[0])
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=130, format="png")
    plt.close(figure)


def _panel(axes: Any, result: Result, outcome: Outcome) -> None:
    for name, (label, colour, marker, style) in _LINES.items():
        mean, spread = _over_repetitions(getattr(outcome, name))
        axes.errorbar(
            result.counts, 100 * mean, yerr=100 * spread, color=colour, ls=style, lw=1.6,
            marker=marker, ms=4.5, capsize=2.5, elinewidth=1, label=label,
        )  # fmt: skip
    _mark_exhausted(axes, result, outcome)
    axes.axhline(50, color=_CHANCE, ls=":", lw=1.6, label="chance")
    if result.case.signal:
        axes.axhline(
            100 * result.case.best, color=_BEST, ls="-.", lw=1.4,
            label=f"best possible: the {result.case.signal} features",
        )  # fmt: skip
    _mark_gap(axes, result, outcome)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.2)


def _mark_gap(axes: Any, result: Result, outcome: Outcome) -> None:
    """Point out how wrong the answer is for the largest vote."""
    answered, fresh = (100 * _over_repetitions(v)[0] for v in (outcome.answered, outcome.fresh))
    axes.fill_between(
        result.counts, fresh, answered, color=_LINES["answered"][1], alpha=0.15, lw=0,
        label="error of the answer",
    )  # fmt: skip
    gap = float(answered[-1] - fresh[-1])
    axes.text(
        0.03, 0.96, f"answer - truth at k = {result.counts[-1]}: {gap:+.1f} points",
        transform=axes.transAxes, ha="left", va="top", fontsize=9.5, weight="bold",
    )  # fmt: skip


def _mark_exhausted(axes: Any, result: Result, outcome: Outcome) -> None:
    """Hollow markers where the budget was spent in any repetition: training values, not answers."""
    some = outcome.exhausted.any(0)
    if not some.any():
        return
    places = [place for place, spent in enumerate(some.tolist()) if spent]
    mean, _ = _over_repetitions(outcome.answered)
    axes.plot(
        [result.counts[p] for p in places], [100 * float(mean[p]) for p in places], ls="",
        marker="o", ms=4.5, mfc="white", mec=_LINES["answered"][1], zorder=5,
    )  # fmt: skip
    axes.text(
        0.03, 0.88, "hollow: budget spent in some runs,\nthe training value is shown",
        transform=axes.transAxes, ha="left", va="top", fontsize=8.5, color=_LINES["answered"][1],
    )  # fmt: skip


def _explain(figure: Any, axes: Any, result: Result) -> None:
    handles, labels = axes.get_legend_handles_labels()
    repetitions = len(next(iter(result.outcomes.values())).train)
    height = figure.get_size_inches()[1]
    figure.text(
        0.01, 1 - 0.12 / height,
        "An analyst selects features with the help of a holdout: is its answer still true?",
        ha="left", va="top", fontsize=13, weight="bold",
    )  # fmt: skip
    figure.text(
        0.01, 1 - 0.45 / height,
        "Better: the holdout's answer (circles) lies on fresh data (squares). "
        f"n = {result.case.size:,} examples per set, {result.case.features:,} features; "
        f"means and standard deviations over {repetitions} repetitions.",
        ha="left", va="top", fontsize=10,
    )  # fmt: skip
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.4 / height, 1, 1 - 0.75 / height))


def _over_repetitions(values: Tensor) -> tuple[Tensor, Tensor]:
    exact = values.double()
    return exact.mean(0), exact.std(0, correction=int(len(exact) > 1))


def _cells(outcome: Outcome, place: int) -> str:
    shown = []
    for values in (outcome.train, outcome.answered, outcome.fresh):
        mean, spread = _over_repetitions(values[:, place])
        shown.append(f"{mean:6.1%} +-{spread:5.1%}")
    gap = (outcome.answered - outcome.fresh)[:, place].double().mean()
    releases = (outcome.feature_releases + outcome.accuracy_releases).double().mean()
    exhausted = outcome.exhausted[:, place].double().mean()
    return f"{' '.join(shown)} {gap:+15.1%} {releases:9.0f}  {exhausted:9.0%}"


def _title(result: Result) -> str:
    return f"{result.case.signal} features correlated" if result.case.signal else "no signal"
