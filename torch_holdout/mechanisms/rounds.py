r"""The one sparse-vector implementation, in integers.

Levels: a sum :math:`S` over :math:`u` units of :math:`L` levels each; scale :math:`t = \sigma u L`.
A round has one secret threshold :math:`\hat T = T + \mathrm{Lap}(2t)`. A comparison fires if
:math:`|S - g| + \mathrm{Lap}(4t) > \hat T`; only then the round ends and an answer
:math:`S + \mathrm{Lap}(t)` leaves, clipped and rounded to the grid.

Why it costs :math:`2a`, :math:`a = 1/(u\sigma)`, per release: guess and threshold are rounded
publicly, so :math:`|S - g|` is an integer with sensitivity :math:`L`. Shifting the threshold noise
by :math:`L` (a factor :math:`e^{L/2t} = e^{a/2}`) keeps every comparison that did not fire;
shifting the one that fired by :math:`2L` (:math:`e^{2L/4t} = e^{a/2}`) keeps it firing. Both
shifts are bijections on the integers, so ties do no harm as long as ``>`` is used throughout. The
answer costs another :math:`a`; clipping and rounding afterwards are free.
"""

from fractions import Fraction

from torch_holdout._noise.streams import NoiseStream
from torch_holdout.mechanisms.base import Decision, Query


def distance_to_guess(query: Query) -> int | None:
    """Return how far the holdout is from the guess, in levels; None to release without comparing.

    Raw: it leaves no mechanism.
    """
    if query.guess is None or query.forced:
        return None
    return abs(query.total - to_levels(query.guess, query.levels))


def sparse_decision(query: Query, gap: int | None, threshold: float, scale: float) -> Decision:
    """Take one step of a round: compare, and release if it fires; without a gap, release."""
    secret, opened = query.threshold, False
    if gap is not None:
        if secret is None:
            public = to_levels(threshold, query.levels)
            secret, opened = noisy_threshold(public, scale, query.noise), True
        if not fires(gap, secret, scale, query.noise):
            return Decision(index=None, compared=True, opened=opened, threshold=secret)
    index = noisy_answer(query.total, query.levels, query.grid, scale, query.noise)
    return Decision(index=index, compared=gap is not None, opened=opened, threshold=None)


def to_levels(value: Fraction | float, levels: int) -> int:
    """Round a public value in [0, 1] to the nearest of ``levels`` (halves up).

    Example:
        >>> to_levels(0.5, 5), to_levels(2.0, 5)
        (3, 5)
    """
    scaled = Fraction(value) * levels
    return min(max(_round_half_up(scaled.numerator, scaled.denominator), 0), levels)


def noisy_threshold(threshold: int, scale: float, noise: NoiseStream) -> int:
    """Draw a round's secret threshold: ``threshold + Lap(2 scale)``."""
    return threshold + noise.laplace(2 * scale)


def fires(gap: int, secret_threshold: int, scale: float, noise: NoiseStream) -> bool:
    """Compare: ``gap + Lap(4 scale) > secret_threshold``."""
    return gap + noise.laplace(4 * scale) > secret_threshold


def noisy_answer(total: int, levels: int, grid: int, scale: float, noise: NoiseStream) -> int:
    """Return ``total + Lap(scale)``, clipped to [0, levels] and rounded to the grid."""
    return to_grid(total + noise.laplace(scale), levels, grid)


def to_grid(noisy: int, levels: int, grid: int) -> int:
    """Clip a noisy total to [0, levels] and round it to one of ``grid + 1`` points (halves up).

    Example:
        >>> [to_grid(total, 10, 4) for total in (-3, 1, 2, 5, 12)]
        [0, 0, 1, 2, 4]
    """
    return _round_half_up(min(max(noisy, 0), levels) * grid, levels)


def _round_half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
