"""Analysts who make a holdout lie, against a raw holdout and against every mechanism.

In each experiment there is nothing to be found: whatever is claimed beyond chance is overfitting to
the holdout. The analysts are fixed, not tuned to each mechanism: that a defence withstands them
shows this way in closed, and proves nothing. What is proved is in the certificates.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev
from types import MappingProxyType
from typing import Any, Protocol, final

import torch
from torch_holdout._demo.doors import (
    ACCURACY,
    STATISTIC,
    Door,
    RawDoor,
    Scale,
    guarded_door,
    raw_mean,
)
from torch_holdout._demo.majority import (
    Attack,
    coin_labels,
    fresh_accuracy,
    majority_attack,
    signs_of,
)
from torch_holdout._noise.fixed import coin_flips, fixed_permutation, normal_numbers
from torch_holdout._shared.checks import require_choice, require_whole
from torch_holdout.mechanisms import (
    GaussianMechanism,
    Ladder,
    LaplaceMechanism,
    Mechanism,
    Thresholdout,
)
from torch_holdout.statistics import BoundedMean

RAW = "raw holdout"
REPEATS = 4
_FRESH = 5000
_CHANGED = 5  # predictions that a step of the climber changes
_SKIP = 1000  # between the seeds of repetitions
# A mean needs bounds. Four standard deviations clip one normal value in 16,000.
INNER_PRODUCT = Scale(BoundedMean(-4.0, 4.0, mode="max"), chance=0.0, deviation=1.0)


def mechanisms(scale: Scale, size: int) -> Mapping[str, Mechanism]:
    """Return one mechanism of each kind, by name, with parameters in standard errors of the mean.

    Thresholds and the Ladder's step are four: what chance alone hardly reaches. Noise on every
    answer has the standard deviation of the sampling error.

    Example:
        >>> list(mechanisms(ACCURACY, size=1000))
        ['Thresholdout (train)', 'Thresholdout (last)', 'Ladder', 'Laplace', 'Gaussian']
    """
    error = scale.standard_error(size)
    return MappingProxyType(
        {
            "Thresholdout (train)": Thresholdout(
                threshold=4 * error, sigma=error / 10, guess="train"
            ),
            "Thresholdout (last)": Thresholdout(
                threshold=4 * error,
                sigma=error / 10,
                guess="last",
                initial={STATISTIC: scale.chance},
            ),
            "Ladder": Ladder(step=4 * error),
            "Laplace": LaplaceMechanism(epsilon=math.sqrt(2) / (size * error)),
            "Gaussian": GaussianMechanism(sigma=error),
        }
    )


class Analyst(Protocol):
    """An attack on whatever answers, with at most ``queries`` questions and a claim."""

    def __call__(self, door: Door, *, size: int, queries: int, seed: int) -> Attack:
        """Attack a holdout of ``size`` examples."""


def linear_attack(door: Door, *, size: int, queries: int, seed: int) -> Attack:
    r"""Ask the mean of each feature, and claim the direction of their signs.

    The features are standard normal, without structure: every direction is worth 0. The unit vector
    of the signs of d means has the mean inner product :math:`\sqrt{2d/(\pi n)}` with a raw holdout
    (Dwork et al. 2015, "Preserving statistical validity", appendix A). A guarded holdout clips
    each example's value to the bounds of ``INNER_PRODUCT``, [-4, 4].

    Args:
        door: What answers.
        size: Examples of the holdout, n.
        queries: Features, d.
        seed: Decides the features.

    Example:
        >>> raw = linear_attack(RawDoor(), size=500, queries=500, seed=0)
        >>> 0.72 < raw.claimed < 0.88, abs(raw.fresh) < 0.05
        (True, True)
    """
    features = normal_numbers((queries, 2, size), seed)
    answers = door.ask(features, [f"feature {number}" for number in range(queries)])
    direction = torch.nn.functional.normalize(signs_of(answers, queries), dim=0)
    products = torch.einsum("k,k...->...", direction, features)
    fresh = normal_numbers((_FRESH, queries), seed + 1) @ direction
    return Attack(
        door.claim(products, "direction"), float(raw_mean(fresh)), float(raw_mean(products[0]))
    )


def climbing_attack(door: Door, *, size: int, queries: int, seed: int) -> Attack:
    """Change a few predictions, keep the change if the published value improved, and go on.

    Labels are coin flips, so predictions are worth 50 % wherever the climber goes. What it claims
    is the best value it saw: noise on every answer adds its luckiest draw.

    Args:
        door: What answers.
        size: Examples of the holdout.
        queries: Steps.
        seed: Decides labels, first predictions and changes.

    Example:
        >>> raw = climbing_attack(RawDoor(), size=500, queries=200, seed=0)
        >>> raw.claimed > 0.6, abs(raw.fresh - 0.5) < 0.01
        (True, True)
    """
    labels = coin_labels(size, seed)
    kept, name, best = coin_flips((2, size), seed + 1), "step 0", -math.inf
    trial = kept
    for step in range(queries):
        answer = door.ask((trial == labels)[None], [f"step {step}"])
        if not len(answer):
            break
        if float(answer) > best:
            kept, name, best = trial, f"step {step}", float(answer)
        changed = fixed_permutation(size, seed + 3 + step)[:_CHANGED]
        trial = kept.clone()
        trial[:, changed] = ~trial[:, changed]
    return Attack(
        door.claim(kept == labels, name),
        fresh_accuracy(kept[0], seed + 2),
        float(raw_mean(kept[0] == labels[0])),
    )


# The averaging analyst is the majority's with repetitions: once the same weights are asked again,
# once something irrelevant was changed, such as a version string, so that the query is a new one.
ATTACKS = MappingProxyType[str, tuple[Scale, Analyst]](
    {
        "linear": (INNER_PRODUCT, linear_attack),
        "majority": (ACCURACY, majority_attack),
        "climbing": (ACCURACY, climbing_attack),
        "averaging, same": (ACCURACY, partial(majority_attack, times=REPEATS, disguised=False)),
        "averaging, disguised": (ACCURACY, partial(majority_attack, times=REPEATS)),
    }
)


@final
@dataclass(frozen=True)
class Row:
    """An attack on a defence, averaged over repetitions.

    Attributes:
        attack: Name of the analyst.
        defence: Name of the mechanism, or ``RAW``.
        claimed: What was published of the final model.
        fresh: What fresh data says of it.
        gap: The difference: 0 is best.
        releases: How many answers read the holdout.
        spread: Standard deviation of the claims over the repetitions.
    """

    attack: str
    defence: str
    claimed: float
    fresh: float
    gap: float
    releases: float
    spread: float


def attack_table(
    *,
    size: int = 1000,
    queries: int = 500,
    budget: int = 20,
    repetitions: int = 3,
    seed: int = 0,
    attacks: Iterable[str] = tuple(ATTACKS),
) -> list[Row]:
    """Let every analyst attack a raw holdout and every mechanism.

    Args:
        size: Examples of the holdout.
        queries: Questions of each analyst.
        budget: Releases of each guarded holdout; the analysts keep the last one for their claim.
        repetitions: Independent holdouts that each row is averaged over.
        seed: Decides data and noise.
        attacks: Which of ``ATTACKS``.

    Example:
        >>> rows = attack_table(size=200, queries=100, repetitions=1, attacks=["majority"])
        >>> [row.defence for row in rows][:2], rows[0].releases
        (['raw holdout', 'Thresholdout (train)'], 101.0)
        >>> rows[0].gap > 0.1
        True
    """
    require_whole("repetitions", repetitions, 1, 10_000)
    rows = []
    for name in attacks:
        require_choice("attacks", name, tuple(ATTACKS))
        scale, _ = ATTACKS[name]
        rows += [
            _row(name, defence, size, queries, budget, range(seed, seed + repetitions))
            for defence in (RAW, *mechanisms(scale, size))
        ]
    return rows


def _row(
    name: str, defence: str, size: int, queries: int, budget: int, seeds: Sequence[int]
) -> Row:
    scale, analyst = ATTACKS[name]
    found, releases = [], []
    for seed in seeds:
        door = _door(scale, defence, size, budget, seed)
        found.append(analyst(door, size=size, queries=queries, seed=_SKIP * seed))
        releases.append(door.releases)
    claimed, fresh = (fmean(getattr(a, field) for a in found) for field in ("claimed", "fresh"))
    spread = pstdev(attack.claimed for attack in found)
    return Row(name, defence, claimed, fresh, claimed - fresh, fmean(releases), spread)


def _door(scale: Scale, defence: str, size: int, budget: int, seed: int) -> Door:
    if defence == RAW:
        return RawDoor()
    return guarded_door(
        mechanisms(scale, size)[defence], scale, size=size, budget=budget, seed=seed
    )


def draw(rows: Sequence[Row], picture: Path) -> None:
    """Draw what was claimed beside what fresh data says, a panel for each attack.

    Example:
        >>> import tempfile
        >>> rows = [Row("majority", RAW, 0.71, 0.5, 0.21, 501.0, 0.01)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     draw(rows, Path(folder) / "attacks.png")
        ...     (Path(folder) / "attacks.png").stat().st_size > 5000
        True
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(row.attack for row in rows))
    figure, panels = plt.subplots(
        1, len(names), figsize=(2.2 + 2.3 * len(names), 4.4), sharey=True, squeeze=False
    )
    for axes, name in zip(panels[0], names, strict=True):
        _panel(axes, [row for row in rows if row.attack == name])
    _same_limits([a for a, n in zip(panels[0], names, strict=True) if ATTACKS[n][0] is ACCURACY])
    panels[0, 0].invert_yaxis()
    panels[0, 0].set_ylabel("what answers the analyst")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(handles), frameon=False)
    figure.suptitle("Nothing is there to be found: a shorter bar is better", weight="bold")
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=130, format="png")
    plt.close(figure)


# Okabe and Ito's colours, which stay apart for the colour-blind.
_ORANGE, _BLUE = "#D55E00", "#0072B2"


def _panel(axes: Any, rows: Sequence[Row]) -> None:
    scale, _ = ATTACKS[rows[0].attack]
    raw = [row for row in rows if row.defence == RAW]
    guarded = [row for row in rows if row.defence != RAW]
    _claims(axes, raw, _ORANGE, "claimed, raw holdout")
    _claims(axes, guarded, _BLUE, "claimed, guarded holdout (whisker: standard deviation)")
    axes.plot(
        [row.fresh for row in rows], [row.defence for row in rows], "D", color="black", mfc="white",
        ms=4.5, zorder=4, label="fresh data (the truth)",
    )  # fmt: skip
    axes.axvline(scale.chance, color="0.5", ls=":", lw=1, zorder=0, label="chance")
    unit = "accuracy" if scale is ACCURACY else "mean inner product"
    axes.set_title(rows[0].attack.replace(", ", ",\n"), fontsize=11)
    axes.set_xlabel(unit)
    axes.spines[["top", "right"]].set_visible(False)


def _claims(axes: Any, rows: Sequence[Row], colour: str, label: str) -> None:
    names = [row.defence for row in rows]
    claimed, fresh = ([getattr(row, field) for row in rows] for field in ("claimed", "fresh"))
    axes.hlines(names, fresh, claimed, color=colour, lw=3, zorder=1)
    axes.errorbar(
        claimed, names, xerr=[row.spread for row in rows], fmt="o", color=colour, ms=8,
        elinewidth=1, capsize=3, zorder=3, label=label,
    )  # fmt: skip


def _same_limits(panels: Sequence[Any]) -> None:
    for axes in panels:
        axes.set_xlim(
            min(other.get_xlim()[0] for other in panels),
            max(other.get_xlim()[1] for other in panels),
        )
