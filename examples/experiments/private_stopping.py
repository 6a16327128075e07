"""What private early stopping costs in quality: real curves replayed through the rule's own code.

Every model of a curve is one pass. *Raw* is patience without noise. *Rule* is ``PrivatePatience``,
which stops and chooses for one epsilon; *choice* runs to the end, as a display set would let it,
and spends the whole epsilon on one ``PrivateChoice``. The regret is how much worse the chosen
model is on fresh examples than the best of the curve. The rule's parameters were chosen on the
classification tasks; the regression task was not looked at for them.

    cd examples && python -m experiments.private_stopping       # some minutes
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import nn
from torch_holdout._noise.fixed import fixed_permutation, normal_numbers
from torch_holdout._noise.generators import lent_generator
from torch_holdout._noise.streams import NoiseStream, SeededNoise
from torch_holdout.mechanisms.base import DEFAULT_RESOLUTION
from torch_holdout.mechanisms.private_patience import (
    DEFAULT_PATIENCE,
    Kept,
    PrivateChoice,
    PrivatePatience,
)

from experiments.curves import TASKS, Curve, training_curves

EPSILONS = (0.5, 1.0, 2.0)
HELD_OUT_RATES = (3e-3, 1e-3)
_TRAIN, _HOLDOUT, _FRESH, _BATCH = 1000, 2000, 10_000, 100
Replay = Callable[[Sequence[int], NoiseStream], tuple[int, int]]


@final
@dataclass(frozen=True, kw_only=True)
class Quality:
    """Averages over curves and repetitions.

    Attributes:
        regret: On fresh examples, in units of the range.
        passes: After how many the run ended.
    """

    regret: float
    passes: float


def raw(totals: Sequence[int], stream: NoiseStream, *, patience: int) -> tuple[int, int]:
    """Return the best model and the passes made, by patience without noise.

    Example:
        >>> raw([5, 3, 4, 4, 1], SeededNoise(0).stream(), patience=2)
        (1, 4)
    """
    best = 0
    for place, total in enumerate(totals):
        if total < totals[best]:
            best = place
        elif place - best >= patience:
            return best, place + 1
    return best, len(totals)


def private(
    totals: Sequence[int], stream: NoiseStream, *, rule: PrivatePatience
) -> tuple[int, int]:
    """Return the chosen model and the passes made, by the private rule.

    Example:
        >>> rule = PrivatePatience(epsilon=100.0, resolution=1, patience=2)
        >>> private([50, 30, 40, 40, 10], SeededNoise(0).stream(), rule=rule)
        (1, 4)
    """
    threshold: int | None = None
    kept: Kept | None = None
    for passes, total in enumerate(totals, start=1):
        kept = rule.choice.keep(total, passes - 1, kept, stream)
        if threshold is None and rule.compares(passes):
            threshold = rule.draw_threshold(stream)
        if rule.stops(totals[:passes], threshold, stream):
            return kept[1], passes
    return kept[1] if kept else 0, len(totals)


def chosen(totals: Sequence[int], stream: NoiseStream, *, rule: PrivateChoice) -> tuple[int, int]:
    """Return the model that one private choice over all of them takes.

    Example:
        >>> rule = PrivateChoice(epsilon=100.0, resolution=1)
        >>> chosen([50, 30, 40, 40, 10], SeededNoise(0).stream(), rule=rule)
        (4, 5)
    """
    kept: Kept | None = None
    for place, total in enumerate(totals):
        kept = rule.keep(total, place, kept, stream)
    return kept[1] if kept else 0, len(totals)


def quality(curves: Iterable[Curve], replay: Replay, *, repetitions: int = 1) -> Quality:
    """Replay every curve some times with noise of its own.

    Example:
        >>> from experiments.curves import DIGITS
        >>> curve = training_curves(DIGITS, seed=0, epochs=3)[0]
        >>> quality([curve], partial(raw, patience=2)).passes
        3.0
    """
    regrets, passes = [], []
    for number, curve in enumerate(curves):
        totals = (curve.holdout.double() * DEFAULT_RESOLUTION).round().long().sum(dim=1).tolist()
        truth = (curve.truth - curve.truth.min()).tolist()
        for repetition in range(repetitions):
            best, made = replay(totals, SeededNoise(repetition).stream("replay", number))
            regrets.append(truth[best])
            passes.append(made)
    return Quality(regret=statistics.fmean(regrets), passes=statistics.fmean(passes))


def held_out_curve(seed: int, rate: float, *, epochs: int = 200) -> Curve:
    """Train a network on Friedman's function with noise; return its squared errors over 4, clipped.

    Example:
        >>> tuple(held_out_curve(0, 3e-3, epochs=2).holdout.shape)
        (2, 2000)
    """
    normal = normal_numbers((_TRAIN + _HOLDOUT + _FRESH, 11), seed)
    x, noise = torch.special.ndtr(normal[:, :10]), normal[:, 10]
    waves = 10 * torch.sin(math.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    y = (waves + 10 * x[:, 3] + 5 * x[:, 4] + 3 * noise - 14.4) / 5
    losses = []
    with lent_generator(seed, "held out"):
        net = nn.Sequential(
            nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    for epoch in range(epochs):
        order = fixed_permutation(_TRAIN, epochs * seed + epoch)
        for batch in order.view(-1, _BATCH):
            optimizer.zero_grad()
            (net(x[batch])[:, 0] - y[batch]).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            losses.append((net(x)[:, 0] - y).square().div(4).clamp(0, 1))
    every = torch.stack(losses)
    end = _TRAIN + _HOLDOUT
    return Curve(
        data=f"regression, rate {rate:g}",
        loss="squared/4",
        train=every[:, :_TRAIN].double().mean(dim=1),
        holdout=every[:, _TRAIN:end],
        fresh=every[:, end:],
    )


def table(curves: Sequence[Curve], *, repetitions: int) -> list[tuple[str, Quality]]:
    """Return raw patience, the rule and the choice at several epsilons on one set of curves."""
    rows = [("raw", quality(curves, partial(raw, patience=DEFAULT_PATIENCE)))]
    for epsilon in EPSILONS:
        rule = PrivatePatience(epsilon=epsilon, resolution=DEFAULT_RESOLUTION)
        choice = PrivateChoice(epsilon=epsilon, resolution=DEFAULT_RESOLUTION)
        for name, replay in (
            ("rule", partial(private, rule=rule)),
            ("choice", partial(chosen, rule=choice)),
        ):
            found = quality(curves, replay, repetitions=repetitions)
            rows.append((f"{name}, epsilon {epsilon:g}", found))
    return rows


def main(*, seeds: int = 8, epochs: int = 200, repetitions: int = 50) -> None:
    """Print the table of every data set that is there."""
    for task in TASKS:
        if task.problem is not None:
            print(task.problem)
            continue
        runs = [training_curves(task, seed=seed, epochs=epochs) for seed in range(seeds)]
        for curves in zip(*runs, strict=True):
            _print_table(curves, repetitions)
    for rate in HELD_OUT_RATES:
        held_out = [held_out_curve(seed, rate, epochs=epochs) for seed in range(seeds)]
        _print_table(held_out, repetitions)


def _print_table(curves: Sequence[Curve], repetitions: int) -> None:
    print(f"{curves[0].data}, {curves[0].loss}, {curves[0].size} examples")
    for name, found in table(curves, repetitions=repetitions):
        print(f"  {name:20} regret {found.regret:.4f} after {found.passes:.0f} passes")


if __name__ == "__main__":
    main()
