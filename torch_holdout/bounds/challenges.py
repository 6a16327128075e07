r"""Is a challenger better than the incumbent? Paired tests of one example at a time.

A challenge is a query like any other: which model challenges, and which one it challenges, are
functions of what was published before. With its run's share a(k) of the failure and what all have
said before it, s nats, it keeps the challenger only if its test has a tail of at most
:math:`e^{-c}`, c = :math:`\ln(1/\beta) - \ln a(k) + s`. By the union over shares and prefixes
(``sealed_runs``), except with probability beta no challenger of the whole account was kept that is
not better in the population. A challenge asks about one statistic, so their number costs nothing.

Intervals at closing are a statement of their own, with a failure of their own.
"""

import math

from torch_holdout._shared.checks import (
    require_between,
    require_failure,
    require_units,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout.bounds.binomial_tails import log_at_least
from torch_holdout.bounds.closing import moments_low
from torch_holdout.bounds.shares import share
from torch_holdout.errors import InvalidArgumentError

KEEP_FAILURE = 0.05  # that any challenger of an account was kept falsely: one for all accounts
_LARGEST = 2**62
# More than what floating point may take from the logarithm of a tail, relative to it.
_ROUNDING = 1e-11


@formula
def challenge_bracket(*, run: int, runs: int, said: float, failure: float = KEEP_FAILURE) -> float:
    r"""Return c of a challenge that takes share k of R: :math:`\ln(1/\beta) - \ln` share(k, R) + s.

    s is all that was said before it, in nats: by other runs, and by earlier challenges.

    Example:
        >>> round(challenge_bracket(run=1, runs=20, said=0.0), 3)
        5.35
    """
    require_failure(failure)
    require_between("said", said, 0, math.inf)
    return -math.log(failure) - math.log(share(run, runs)) + said


@formula
def sign_test(wins: int, losses: int) -> float:
    r"""Return the logarithm of the tail of the exact sign test.

    Of the examples where two models differ the challenger is right on ``wins`` and the incumbent on
    ``losses``. If the challenger is not better, the wins among d differing examples are binomial
    with a chance of at most 1/2, so this is the largest chance of as many or more: the tail of
    Binomial(d, 1/2). 0 unless there are more wins than losses.

    Example:
        >>> round(math.exp(sign_test(wins=9, losses=1)), 6) == round(11 / 1024, 6)
        True
    """
    require_whole("wins", wins, 0, _LARGEST)
    require_whole("losses", losses, 0, _LARGEST)
    return log_at_least(wins, wins + losses, 0.5)[0]


@formula
def sign_test_keeps(wins: int, losses: int, bracket: float) -> bool:
    """Return whether the exact sign test keeps the challenger: a tail of at most e^-c.

    Example:
        >>> sign_test_keeps(wins=30, losses=5, bracket=9.0)
        True
        >>> sign_test_keeps(wins=30, losses=15, bracket=9.0)
        False
    """
    require_between("bracket", bracket, 0, math.inf)
    log_tail = sign_test(wins, losses)
    return log_tail - _ROUNDING * log_tail <= -bracket and wins > losses


@formula
def smallest_keep(differing: int, bracket: float) -> int | None:
    """Return the fewest wins among ``differing`` examples that keep; None if all are too few.

    The smallest gain in accuracy that is kept is (2 wins - differing)/n.

    Example:
        >>> wins = smallest_keep(2_000, bracket=25.361)  # of n = 10,000 examples
        >>> (2 * wins - 2_000) / 10_000
        0.0302
    """
    require_whole("differing", differing, 0, _LARGEST)
    too_few, enough = differing // 2, differing
    if not sign_test_keeps(enough, 0, bracket):
        return None
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        keeps = sign_test_keeps(middle, differing - middle, bracket)
        too_few, enough = (too_few, middle) if keeps else (middle, enough)
    return enough


@formula
def gain_low(total: int, squares: int, units: int, resolution: int, bracket: float) -> float:
    r"""Return a lower bound on the mean of paired differences of values in [0, 1].

    Differences d of levels come with their sum and the sum of their squares; (d + L)/(2L) is in
    [0, 1], and has ``moments_low`` at :math:`e^{-c}`. Two rounded values are off by at most 1/(2L)
    each, so 1/L is taken from the difference. The challenger is kept if this is at least 0: the
    population's difference is above it.

    Example:
        >>> facts = {"units": 10_000, "resolution": 65536}
        >>> total, squares = 10_000 * 655, 10_000 * 3_276**2  # a gain of .01, deviation .05
        >>> round(gain_low(total, squares, bracket=9.0, **facts), 4)
        0.0069
    """
    require_units(units)
    require_whole("resolution", resolution, 1, _LARGEST)
    largest = units * resolution
    known = isinstance(total, int) and isinstance(squares, int)
    if not known or not abs(total) <= squares <= largest * resolution or abs(total) > largest:
        raise InvalidArgumentError(
            "Expected the sum of differences of levels and the sum of their squares, but no levels "
            "have both. Check how they were added up."
        )
    shifted = total + largest
    shifted_squares = squares + resolution * (2 * total + largest)
    low = moments_low(shifted, shifted_squares, units, 2 * resolution, bracket)
    return math.nextafter(2 * low - 1 - 1 / resolution, -math.inf)
