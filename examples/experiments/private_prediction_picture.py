"""A picture of what answers are worth: accuracy against the number of queries a budget pays for."""

from collections.abc import Mapping, Sequence
from pathlib import Path


def draw_accuracy(
    path: Path,
    counts: Sequence[int],
    curves: Mapping[float, Sequence[float]],
    *,
    majority: float,
    student: tuple[int, float, float],
    title: str,
) -> None:
    """Draw one curve for each epsilon, the plain majority, and a student.

    Args:
        path: Where the picture goes.
        counts: Numbers of queries.
        curves: Accuracy at each of them, by epsilon.
        majority: Accuracy of the majority without noise, which is not private.
        student: How many labels it had, at which epsilon, and its accuracy.
        title: What was trained.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    shades = plt.get_cmap("viridis")
    for place, (epsilon, accuracy) in enumerate(curves.items()):
        colour = shades(0.15 + 0.7 * place / max(1, len(curves) - 1))
        axes.plot(counts, accuracy, color=colour, marker="o", ms=3, label=f"epsilon {epsilon:g}")
    axes.axhline(majority, color="0.4", ls="--", lw=1)
    axes.annotate(
        "majority without noise (not private)",
        (counts[0], majority),
        xytext=(2, 4),
        textcoords="offset points",
        fontsize=9,
        color="0.3",
    )
    labels, spent, reached = student
    axes.scatter([labels], [reached], marker="*", s=160, color="crimson", zorder=3)
    axes.annotate(
        f"student of {labels} labels at epsilon {spent:g}:\nasked as often as you like",
        (labels, reached),
        xytext=(0, 48),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        color="crimson",
        arrowprops={"arrowstyle": "-", "color": "crimson", "lw": 0.8, "shrinkB": 7},
    )
    axes.set(
        xscale="log",
        xlabel="queries that the whole budget pays for",
        ylabel="accuracy on fresh data",
        ylim=(0, 1.05),
        title=title,
    )
    axes.legend(frameon=False, loc="lower left")
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
