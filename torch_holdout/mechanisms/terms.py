"""What a mechanism costs over a budget, and how it turns values into answers: for both, public."""

import math
from collections.abc import Collection
from typing import Any

from torch_holdout.accounting import Charge, Concentrated, Pure
from torch_holdout.bounds.channels import Channel
from torch_holdout.mechanisms import Mechanism


def charges_of(mechanism: Mechanism, units: Collection[int], budget: int) -> list[Charge]:
    r"""Return what a full budget charges, from registered parameters alone.

    A mechanism that compares: B answers and at most B rounds at the largest a; each other units
    value may leave one more round open. Rounds of different units values interleave, which pure
    mechanisms may (concurrent composition, Vadhan and Wang 2021). One that answers everything: B
    answers. Constant from creation, so it covers adaptive queries and stopping early.

    Example:
        >>> from torch_holdout.mechanisms import LaplaceMechanism, Thresholdout
        >>> charges_of(LaplaceMechanism(epsilon=0.1), {500}, budget=20)
        [Pure(epsilon=0.1, count=20)]
        >>> charges_of(Thresholdout(threshold=0.1, sigma=0.02, guess="last"), {100, 500}, budget=20)
        [Pure(epsilon=0.5, count=40), Pure(epsilon=0.1, count=1)]
    """
    steps = sorted((mechanism.charge_per_step(u) for u in set(units)), reverse=True)
    if mechanism.currency == "rho":
        return [Concentrated(steps[0], budget)]
    if not mechanism.compares:
        return [Pure(steps[0], budget)]
    return [Pure(steps[0], 2 * budget), *(Pure(step) for step in steps[1:])]


def release_charge(mechanism: Mechanism, units: int) -> float:
    """Return what one release costs, with its round of comparisons, in the mechanism's currency.

    Example:
        >>> from torch_holdout.mechanisms import Ladder
        >>> release_charge(Ladder(step=0.1, sigma=0.01), units=100)
        2.0
    """
    return mechanism.charge_per_step(units) * (2 if mechanism.compares else 1)


def channel_of(
    mechanism: Mechanism, *, units: int, resolution: int, grid: int, **statistic: Any
) -> Channel:
    """Return how a mechanism turns one statistic's value into an answer.

    Example:
        >>> from torch_holdout.mechanisms import LaplaceMechanism
        >>> found = channel_of(LaplaceMechanism(epsilon=0.1), units=500, resolution=1, grid=64)
        >>> found.sigma, found.rule
        (0.02, None)
    """
    scale = mechanism.noise_scale(units, resolution)
    return Channel(
        units=units,
        resolution=resolution,
        grid=grid,
        sigma=scale / (units * resolution),
        noise="gaussian" if mechanism.currency == "rho" else "laplace",
        threshold=mechanism.guess_distance(),
        rule=mechanism.guess_rule,
        **statistic,
    )


def is_private(mechanism: Mechanism) -> bool:
    """Whether the noise gives any privacy.

    Example:
        >>> from torch_holdout.mechanisms import Ladder
        >>> is_private(Ladder(step=0.1))
        False
    """
    return math.isfinite(mechanism.charge_per_step(1))
