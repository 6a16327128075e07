"""Distances of answers from the holdout's own mean: noise and its tails, grid, threshold."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

from torch_holdout._shared.checks import require_between, require_flag, require_number
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.brackets import hoeffding_tolerance
from torch_holdout.bounds.ratios import Quotient


@final
@dataclass(frozen=True, kw_only=True)
class Channel:
    """The way from one statistic's value to an answer; normalised units.

    Attributes:
        units: Over how many parts the mean runs.
        resolution: Integer levels of one part.
        grid: Number of answer intervals.
        sigma: Scale of the answer noise; threshold and comparisons have twice and four times that.
        noise: Its law, ``"laplace"`` or ``"gaussian"``, on the integers.
        threshold: Distance (``rule="both"``) or improvement (``"improvement"``, the Ladder) that
            has to be exceeded for a release.
        rule: What a returned guess means: the holdout is near it on both sides, or is not much
            better than it; None if every query is released.
        mode: Which direction is better.
        low: The statistic's lower bound in the user's units.
        width: Its range in the user's units.
        quotient: The bounds of a ratio and of its parts; None for a mean.
    """

    units: int
    resolution: int
    grid: int
    sigma: float
    threshold: float = 0.0
    rule: str | None = "both"
    noise: Literal["laplace", "gaussian"] = "laplace"
    mode: str = "min"
    low: float = 0.0
    width: float = 1.0
    quotient: Quotient | None = None

    @property
    def levels(self) -> int:
        """The largest possible sum."""
        return self.units * self.resolution

    @property
    def scale(self) -> float:
        """The answer noise in levels."""
        return self.sigma * self.levels

    @property
    def quantisation(self) -> float:
        """The largest distance by which rounding examples to levels moves a mean."""
        return 0.5 / self.resolution

    @property
    def _rounded_quotient(self) -> float:
        """How far a quotient is from the whole number of levels that is compared and published."""
        return 0.5 / self.levels

    def sampling_error(self, bracket: float) -> float:
        """Bound how far the holdout's value is from the population's, by the query's bracket."""
        if self.quotient is not None:
            distance = self.quotient.tolerance(bracket, self.units, self.resolution) / self.width
            return distance + self._rounded_quotient
        return hoeffding_tolerance(bracket, self.units) + self.quantisation

    def quotient_interval(self, value: float, error: float, bracket: float) -> tuple[float, float]:
        """Return a ratio's interval from an answer: the narrower, the nearer it is to 0."""
        if self.quotient is None:
            return 0.0, 1.0
        error += self._rounded_quotient
        low, high = max(0.0, value - error), min(1.0, value + error)
        near = max(abs(self.low + self.width * end) for end in (low, high))
        distance = self.quotient.tolerance(bracket, self.units, self.resolution, near) / self.width
        return low - distance, high + distance

    def answer_errors(self, budget: int) -> Callable[[float], float]:
        """Return a bound on noise and rounding of all B answers, as a function of the failure."""
        quantile = gaussian_quantile if self.noise == "gaussian" else laplace_quantile
        scale, levels, rounding = self.scale, self.levels, 0.5 / self.grid
        return lambda failure: quantile(scale, failure / budget, 2) / levels + rounding

    def comparison_error(self, failure: float, rounds: int, position: int) -> float:
        """Bound threshold and comparison noise up to a position, on one side, but for ``failure``.

        Half for the thresholds of all rounds, half for the comparisons: position i has the share
        6/(pi^2 i^2) of it, for which 6/(10 i^2) stands.
        """
        threshold = laplace_tail(2 * self.scale, failure / 2 / rounds, two_sided=False)
        share = 6 * failure / 2 / (10 * position**2)
        comparison = laplace_tail(4 * self.scale, share, two_sided=False)
        rounding = 1.0  # guess and threshold are rounded to levels
        return (threshold + comparison + rounding) / self.levels

    def release_error(self, failure: float, budget: int, rounds: int, position: int) -> float:
        """Bound how far released values are from the holdout's mean.

        The Ladder publishes the better of best and answer: if the comparison fired by its noise
        alone, the best may stand for a worse value, by at most the noise of comparison and
        threshold, less the step.
        """
        if self.rule != "improvement" or self.sigma == 0:
            return self.answer_errors(budget)(failure)
        comparison = self.comparison_error(failure / 2, rounds, position)
        return max(self.answer_errors(budget)(failure / 2), comparison - self.threshold)

    def guess_error(self, failure: float, rounds: int, position: int) -> float:
        """Bound how far a returned guess is from the holdout's mean, on the sides it is about."""
        return self.threshold + self.comparison_error(failure, rounds, position)


@formula
def laplace_tail(scale: float, failure: float, *, two_sided: bool) -> int:
    r"""Return the smallest k with :math:`P(X > k)` (or :math:`P(|X| > k)`) at most ``failure``.

    For :math:`P(j) \propto q^{|j|}`, :math:`q = e^{-1/\mathrm{scale}}`, and :math:`k \ge 0`:
    :math:`P(X > k) = q^{k+1}/(1+q)`; two-sided it is twice that.

    Example:
        >>> laplace_tail(50.0, 0.05, two_sided=True)
        150
        >>> laplace_tail(0.0, 0.05, two_sided=True)
        0
    """
    _require(scale, failure, two_sided)
    return laplace_quantile(scale, failure, 2 if two_sided else 1)


def laplace_quantile(scale: float, failure: float, sides: int) -> int:
    """Return ``laplace_tail`` without checking the arguments, for searches."""
    if scale == 0:
        return 0
    log_target = math.log(failure) - math.log(sides) + math.log1p(math.exp(-1 / scale))
    # Rounded up generously: the logarithms are right to one part in 10^15.
    return max(0, math.ceil(-log_target * scale * (1 + 1e-12)) - 1)


@formula
def gaussian_tail(scale: float, failure: float, *, two_sided: bool) -> int:
    r"""Return a k with :math:`P(X > k)` (or :math:`P(|X| > k)`) at most ``failure``.

    The discrete Gaussian is as concentrated as the continuous one (Canonne, Kamath and Steinke
    2020): :math:`P(X \ge k) \le e^{-k^2/(2s^2)}`.

    Example:
        >>> gaussian_tail(50.0, 0.05, two_sided=True)
        136
    """
    _require(scale, failure, two_sided)
    return gaussian_quantile(scale, failure, 2 if two_sided else 1)


def gaussian_quantile(scale: float, failure: float, sides: int) -> int:
    """Return ``gaussian_tail`` without checking the arguments, for searches."""
    return math.ceil(scale * math.sqrt(max(0.0, 2 * math.log(sides / failure))))


def _require(scale: float, failure: float, two_sided: bool) -> None:
    require_number("scale", scale)
    require_between("scale", scale, 0, math.inf)
    require_between("failure", failure, 0, math.inf, ends=False)
    require_flag("two_sided", two_sided)
