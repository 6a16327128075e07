r"""Intervals after closing: an evaluation's exact sums are known, and nothing is asked any more.

Each holds at the evaluation's own bracket c (``sealed_runs.evaluation_bracket``): for a query fixed
before the holdout is seen it misses with probability at most :math:`e^{-c}` on each side. Which
form is used follows from the registered kind of the statistic, never from the result.

Sums are in levels: a value x in [0, 1] counts round(x L) of L levels, and rounding moves a mean by
at most 1/(2L). They are secret until the account is closed, so no error shows one.
"""

import math

from torch_holdout._shared.checks import (
    require_between,
    require_choice,
    require_units,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.binomial_tails import log_remainder
from torch_holdout.bounds.single_query import binomial_interval, kl_interval
from torch_holdout.errors import InvalidArgumentError

_LARGEST = 2**62
# The bets of ``moments_interval``: each for another standard deviation of the values.
_DEVIATIONS = tuple(0.5 * 2 ** (-k / 2) for k in range(10))
_LARGEST_STAKE = 0.999
# More than what floating point may add to the logarithm of a bet, relative to its terms.
_ROUNDING = 1e-12


@formula
def exact_interval(successes: int, trials: int, bracket: float) -> tuple[float, float]:
    """Return Clopper and Pearson's interval with e^-c on each side; for values 0 and 1 only.

    Example:
        >>> low, high = exact_interval(500, 10_000, 9.143298)
        >>> round(low, 6), round(high, 6)
        (0.042308, 0.058551)
    """
    require_whole("trials", trials, 1, _LARGEST)
    _require_sum("successes", successes, trials)
    _require_bracket(bracket)
    return binomial_interval(successes, trials, bracket)


@formula
def moments_interval(
    total: int, squares: int, units: int, resolution: int, bracket: float
) -> tuple[float, float]:
    r"""Return an interval from the sum of the values and of their squares; narrow for low variance.

    If the values have mean mu, :math:`\prod_i (1 + \lambda (x_i - \mu))` has mean 1 for each
    :math:`\lambda \le 1/\mu`, and with :math:`\psi` = ``log_remainder`` it is at least
    :math:`\exp(\lambda n (h - \mu) - \psi(\lambda\mu) \lambda^2 \sum_i (x_i - \mu)^2)`. A mu for
    which the mean of that over a registered grid of lambda is at least :math:`e^c` is too small
    (Markov); so is every smaller one, as each product falls in mu, also where lambda is capped at
    .999/mu. So any rejected mu is a valid end, however it was found. The other end by
    :math:`x \to 1 - x`. The grid is :math:`\lambda_k = \sqrt{2c/n}\,2^{1 + k/2}`, k = 0 to 9.

    Example:
        >>> facts = {"units": 10_000, "resolution": 10}  # mean .2, variance .04
        >>> low, high = moments_interval(20_000, 80_000, bracket=9.142722, **facts)
        >>> round(low - 0.2, 6), round(high - 0.2, 6)
        (-0.009518, 0.009986)
    """
    low = moments_low(total, squares, units, resolution, bracket)
    span = units * resolution
    mirrored = resolution * (span - 2 * total) + squares
    beyond = moments_low(span - total, mirrored, units, resolution, bracket)
    return low, min(1.0, math.nextafter(1 - beyond, 2.0))


@formula
def moments_low(total: int, squares: int, units: int, resolution: int, bracket: float) -> float:
    """Return the lower end of ``moments_interval`` alone, which misses with probability e^-c.

    It is a rejected mu, close to the largest below the mean; 0 if none is found.

    Example:
        >>> facts = {"units": 10_000, "resolution": 10}  # mean .2, variance .04
        >>> round(moments_low(20_000, 80_000, bracket=9.142722, **facts), 6)
        0.190482
    """
    _require_sums(total, squares, units, resolution)
    _require_bracket(bracket)
    span = units * resolution
    mean, variance = total / span, (units * squares - total**2) / span**2
    # No bet wins more than n d^2 / (2 (v + d^2)) at a distance d from the mean, or lambda n d.
    if total == 0 or units <= 2 * bracket:
        return 0.0
    unit_stake = math.sqrt(2 * bracket / units)
    if unit_stake == 0:  # the failure allowed is 1
        return mean
    stakes = [unit_stake / deviation for deviation in _DEVIATIONS]

    def rejected(mu: float) -> bool:
        top, bottom = mu.as_integer_ratio()
        distance = (total * bottom - top * span) / (span * bottom)
        return _log_wealth(mu, distance, variance, units, stakes) >= bracket

    nearest = math.sqrt(2 * bracket * variance / (units - 2 * bracket))
    distance = max(nearest, bracket / (stakes[-1] * units), 1e-15 * mean)
    inside, outside = mean, mean - distance
    while outside > 1e-9 * mean and not rejected(outside):
        inside, outside = outside, max(mean - 1.25 * (mean - outside), outside / 2)
    if outside <= 1e-9 * mean:
        return 0.0
    while inside - outside > 1e-12 * (mean - outside):
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            break
        inside, outside = (inside, middle) if rejected(middle) else (middle, outside)
    return outside


@formula
def combined_interval(
    total: int, squares: int, units: int, resolution: int, bracket: float
) -> tuple[float, float]:
    """Return what moments at c + ln(10/9) and KL at c + ln 10 leave, widened by rounding to levels.

    Moments are wider than KL for values near 0 and 1, and say nothing about few units; the failure
    is divided in advance, because the smaller of two intervals fails more often than each.

    Example:
        >>> facts = {"units": 10_000, "resolution": 2**30}
        >>> total, squares = 2**30 * 2_000, 2**60 * 800  # mean .2, variance .04
        >>> low, high = combined_interval(total, squares, bracket=9.143298, **facts)
        >>> round(low - 0.2, 6), round(high - 0.2, 6)
        (-0.009566, 0.01004)
    """
    by_moments = moments_interval(total, squares, units, resolution, bracket + math.log(10 / 9))
    by_kl = kl_interval(total / (units * resolution), (bracket + math.log(10)) / units)
    low, high = max(by_moments[0], by_kl[0]), min(by_moments[1], by_kl[1])
    return _widened(low, high, resolution)


@formula
def closing_interval(
    *, kind: str, total: int, squares: int | None, units: int, resolution: int, bracket: float
) -> tuple[float, float]:
    """Return the interval of a closed evaluation, by the registered kind of its statistic.

    ``"zero_one"`` is exact, and refuses sums that values 0 and 1 cannot have; ``"mean"`` combines
    moments with KL, or is KL without the squares; ``"blocks"`` is KL over the blocks.

    Example:
        >>> facts = {"units": 1000, "resolution": 100, "bracket": 9.0}
        >>> sums = {"total": 20_000, "squares": 800_000}  # mean .2, variance .04
        >>> low, high = closing_interval(kind="mean", **sums, **facts)
        >>> round(low, 3), round(high, 3)
        (0.164, 0.241)
        >>> closing_interval(kind="zero_one", **sums, **facts)
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected sums of values that are all 0 or 1, but
        these are not. Check how they were stored.
    """
    require_choice("kind", kind, ("zero_one", "mean", "blocks"))
    _require_sums(total, squares, units, resolution)
    _require_bracket(bracket)
    if kind == "zero_one":
        if total % resolution or squares != resolution * total:
            raise InvalidArgumentError(
                "Expected sums of values that are all 0 or 1, but these are not. Check how they "
                "were stored."
            )
        return exact_interval(total // resolution, units, bracket)
    if kind == "mean" and squares is not None:
        return combined_interval(total, squares, units, resolution, bracket)
    return _widened(*kl_interval(total / (units * resolution), bracket / units), resolution)


def _log_wealth(
    mu: float, distance: float, variance: float, units: int, stakes: list[float]
) -> float:
    """Return the logarithm of the mean of the bets that the mean is above mu, rounded down."""
    spread = variance + distance * distance
    logs = []
    for registered in stakes:
        stake = min(registered, _LARGEST_STAKE / mu)
        gain = stake * units * distance
        loss = log_remainder(stake * mu) * stake * stake * units * spread
        logs.append(gain - loss - _ROUNDING * (gain + loss))
    largest = max(logs)
    return largest + math.log(math.fsum(math.exp(log - largest) for log in logs) / len(logs))


def _widened(low: float, high: float, resolution: int) -> tuple[float, float]:
    """Return an interval for the values from one for their levels."""
    quantisation = 0.5 / resolution
    return max(0.0, low - quantisation), min(1.0, high + quantisation)


def _require_bracket(bracket: object) -> None:
    require_between("bracket", bracket, 0, math.inf)


def _require_sums(total: object, squares: object, units: int, resolution: int) -> None:
    """Raise unless some levels have these sums; the message does not show them."""
    require_units(units)
    require_whole("resolution", resolution, 1, _LARGEST)
    _require_sum("total", total, units * resolution)
    if squares is None:
        return
    _require_sum("squares", squares, units * resolution**2)
    if not (
        isinstance(total, int)
        and isinstance(squares, int)
        and max(total, -(-(total**2) // units)) <= squares <= resolution * total
    ):
        raise InvalidArgumentError(
            "Expected `squares` to be a sum of squares of levels with the sum `total`, but no "
            "levels have both. Check how they were stored."
        )


def _require_sum(name: str, value: object, largest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
        raise InvalidArgumentError(
            f"Expected `{name}` to be a whole number from 0 to {largest}, but it is not. Check how "
            f"it was stored."
        )
