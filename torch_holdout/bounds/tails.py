"""Tails of the integer noise."""

import math

from torch_holdout.errors import InvalidArgumentError


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
    _require(scale, failure)
    return laplace_quantile(scale, failure, 2 if two_sided else 1)


def laplace_quantile(scale: float, failure: float, sides: int) -> int:
    """Return ``laplace_tail`` without checking the arguments, for searches."""
    if scale == 0:
        return 0
    log_target = math.log(failure) - math.log(sides) + math.log1p(math.exp(-1 / scale))
    # Rounded up generously: the logarithms are right to one part in 10^15.
    return max(0, math.ceil(-log_target * scale * (1 + 1e-12)) - 1)


def gaussian_tail(scale: float, failure: float, *, two_sided: bool) -> int:
    r"""Return a k with :math:`P(X > k)` (or :math:`P(|X| > k)`) at most ``failure``.

    The discrete Gaussian is as concentrated as the continuous one (Canonne, Kamath and Steinke
    2020): :math:`P(X \ge k) \le e^{-k^2/(2s^2)}`.

    Example:
        >>> gaussian_tail(50.0, 0.05, two_sided=True)
        136
    """
    _require(scale, failure)
    return gaussian_quantile(scale, failure, 2 if two_sided else 1)


def gaussian_quantile(scale: float, failure: float, sides: int) -> int:
    """Return ``gaussian_tail`` without checking the arguments, for searches."""
    return math.ceil(scale * math.sqrt(max(0.0, 2 * math.log(sides / failure))))


def _require(scale: float, failure: float) -> None:
    if not (scale >= 0 and math.isfinite(scale)):
        raise InvalidArgumentError(f"Expected a finite scale, not negative, but got {scale!r}.")
    if not failure > 0:
        raise InvalidArgumentError(f"Expected `failure` above 0, but got {failure!r}.")
