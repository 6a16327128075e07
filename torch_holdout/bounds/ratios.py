r"""Quotients of two means: exact values, and how far one can be from the population's.

A ratio's population value is :math:`q = P/R`, the quotient of the expectations P of its numerator
and R > 0 of its denominator, cut to the registered bounds. The holdout has the means g and h of
both. Each of the two satisfies its own one-query bound at :math:`c + \ln 2`, so both do at once
where a single mean would at c: whatever else a query pays is the same.

Once both sums are known, the population's quotient lies in that of their two intervals. Before
closing only the quotient is published; with :math:`|P - g| \le s` and :math:`|R - h| \le t`

.. math:: \left|q - g/h\right| = \left|P - g + \frac{g}{h} (h - R)\right| / R
    \le \frac{s + t\,|g/h|}{R}

and R is at least the registered lower bound of the denominator. If that is 0, nothing is claimed.
Cutting both quotients to the same bounds never takes them further apart; where it moves g/h to a
bound the same holds with that bound for g/h.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

from torch_holdout._shared.checks import require_between, require_number
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.brackets import hoeffding_tolerance
from torch_holdout.bounds.closing import closing_interval
from torch_holdout.errors import InvalidArgumentError

Ends = tuple[float, float]
MAY_BE_ZERO = (
    "the denominator may be 0, so nothing is claimed before closing: register its smallest value, "
    "or close"
)
_POPULATION = "that of a ratio is the quotient of both means, cut to its bounds"
BOTH = math.log(2)  # nats that two sums pay more than one: both hold at once


@formula
def quotient_interval(numerator: Ends, denominator: Ends, low: float, high: float) -> Ends:
    """Return where a quotient lies, cut to [low, high], from the intervals of its two parts.

    If the denominator may be 0, that is anywhere. Ends are rounded outwards.

    Example:
        >>> ends = quotient_interval((1.0, 2.0), (4.0, 5.0), 0.0, 10.0)
        >>> [round(end, 9) for end in ends]
        [0.2, 0.5]
        >>> quotient_interval((-1.0, 2.0), (0.0, 5.0), 0.0, 10.0)
        (0.0, 10.0)
    """
    bounds = {"numerator": numerator, "denominator": denominator, "low and high": (low, high)}
    for name, ends in bounds.items():
        for end in ends:
            require_number(name, end)
        if not ends[0] <= ends[1]:
            raise InvalidArgumentError(
                f"Expected the two ends of `{name}` in order, but got the larger one first."
            )
    if denominator[0] <= 0 <= denominator[1]:
        return low, high
    # Exactly: a tiny denominator may take a quotient beyond any float.
    corners = [Fraction(n) / Fraction(d) for n in numerator for d in denominator]
    return _rounded(min(corners), low, high, -1), _rounded(max(corners), low, high, 1)


@formula
def quotient_tolerance(
    numerator_error: float, denominator_error: float, quotient: float, smallest: float
) -> float:
    r"""Return :math:`(s + t\,|q|) / r`: how far the holdout's quotient q is from the population's.

    s and t are the distances of the two means, r > 0 the smallest that the population's
    denominator can be; infinite for r = 0. For all quotients in some bounds, q is the larger bound.

    Example:
        >>> round(quotient_tolerance(0.2, 0.1, quotient=3.0, smallest=2.0), 3)
        0.25
        >>> quotient_tolerance(0.2, 0.1, quotient=3.0, smallest=0.0)
        inf
    """
    require_between("numerator_error", numerator_error, 0, math.inf)
    require_between("denominator_error", denominator_error, 0, math.inf)
    require_number("quotient", quotient)
    require_between("smallest", smallest, 0, math.inf)
    error = numerator_error + abs(quotient) * denominator_error
    return math.inf if smallest == 0 else error / smallest


@final
@dataclass(frozen=True)
class Part:
    """One of a ratio's two means: its bounds in the user's units, and which interval it has."""

    low: float
    high: float
    kind: str = "mean"

    @property
    def width(self) -> float:
        """Its range."""
        return self.high - self.low

    def exact(self, total: int, largest: int) -> Fraction:
        """Return the mean of values whose levels sum to ``total``, of at most ``largest``."""
        low = Fraction(self.low)
        return low + (Fraction(self.high) - low) * Fraction(total, largest)

    def interval(
        self, total: int, squares: int | None, units: int, resolution: int, bracket: float
    ) -> Ends:
        """Return where its expectation lies, if both parts together may miss as often as one."""
        ends = closing_interval(
            kind=self.kind,
            total=total,
            squares=squares,
            units=units,
            resolution=resolution,
            bracket=bracket + BOTH,
        )
        low, high = (self.low + self.width * end for end in ends)
        return low, high


@final
@dataclass(frozen=True)
class Quotient:
    """The registered bounds of a ratio, in the user's units; the denominator is never negative.

    Example:
        >>> loss = Quotient(Part(0.0, 512.0), Part(0.0, 64.0), 0.0, 8.0)
        >>> loss.value(150, 50, largest=200)  # means of 384 and 16
        8.0
        >>> loss.value(50, 150, largest=200), loss.total(50, 150, largest=200)
        (2.6666666666666665, 67)
    """

    numerator: Part
    denominator: Part
    low: float
    high: float
    mode: str = "min"

    @classmethod
    def of(cls, registered: Mapping[str, Any]) -> "Quotient":
        """Read what a ledger has registered, or raise ``KeyError`` or ``TypeError``."""
        bounds = registered["low"], registered["high"], registered["mode"]
        return cls(_part(registered["numerator"]), _part(registered["denominator"]), *bounds)

    @property
    def may_be_undefined(self) -> bool:
        """Whether the denominator may be 0, so that nothing is claimed before closing."""
        return self.denominator.low <= 0

    def exact(self, numerator: int, denominator: int, largest: int) -> Fraction:
        """Return the quotient of two sums, cut to the bounds; without a denominator, the worse."""
        divisor = self.denominator.exact(denominator, largest)
        if divisor <= 0:
            return Fraction(self.high if self.mode == "min" else self.low)
        quotient = self.numerator.exact(numerator, largest) / divisor
        return min(max(quotient, Fraction(self.low)), Fraction(self.high))

    def value(self, numerator: int, denominator: int, largest: int) -> float:
        """Return ``exact`` as the nearest float."""
        return float(self.exact(numerator, denominator, largest))

    def normalised(self, numerator: int, denominator: int, largest: int) -> Fraction:
        """Return ``exact`` with the bounds mapped to 0 and 1."""
        low, high = Fraction(self.low), Fraction(self.high)
        return (self.exact(numerator, denominator, largest) - low) / (high - low)

    def total(self, numerator: int, denominator: int, largest: int) -> int:
        """Return the whole number of ``largest`` parts of the range that is nearest to ``exact``.

        What mechanisms and rules compare in place of a sum of levels.
        """
        share = self.normalised(numerator, denominator, largest) * largest
        return math.floor(share + Fraction(1, 2))

    def tolerance(
        self, bracket: float, units: int, resolution: int, near: float | None = None
    ) -> float:
        """Return how far the holdout's quotient can be from the population's, at most the range.

        ``near``: the largest that the holdout's quotient can be, by absolute value; None: a bound.
        """
        mean = hoeffding_tolerance(bracket + BOTH, units) + 0.5 / resolution
        found = quotient_tolerance(
            mean * self.numerator.width,
            mean * self.denominator.width,
            max(abs(self.low), abs(self.high)) if near is None else near,
            max(0.0, self.denominator.low),
        )
        return min(found, self.high - self.low)


def covers_ratios(covers: str, quotients: Mapping[str, Quotient]) -> str:
    """Return what a certificate covers, with what the population value of a ratio is."""
    population, *rest = covers.split("; ")
    return "; ".join([population, _POPULATION, *rest]) if quotients else covers


def zero_denominators(quotients: Mapping[str, Quotient]) -> tuple[str, ...]:
    """Return the ratios of which nothing is claimed before closing."""
    return tuple(name for name, quotient in quotients.items() if quotient.may_be_undefined)


def _part(registered: Mapping[str, Any]) -> Part:
    kinds = {"zero_one": "zero_one", "bounded_mean": "mean"}
    return Part(float(registered["low"]), float(registered["high"]), kinds[registered["kind"]])


def _rounded(quotient: Fraction, low: float, high: float, side: int) -> float:
    """Return a quotient cut to the bounds, as a float that is not inside of it."""
    cut = min(max(quotient, Fraction(low)), Fraction(high))
    if cut != quotient:
        return float(cut)
    nearest = float(cut)
    if (Fraction(nearest) - cut) * side < 0:
        nearest = math.nextafter(nearest, side * math.inf)
    return min(max(nearest, low), high)
