"""Binomial tails by their logarithms: for any number of trials, and however far out."""

import math

_SERIES_BELOW = 0.01
_FRACTION_STEPS = 2000


def log_remainder(r: float) -> float:
    r"""Return :math:`(-\ln(1 - r) - r)/r^2` for r below 1; 1/2 at 0, and rising.

    :math:`\ln(1 + y) \ge y - \psi(r) y^2` for all :math:`y \ge -r`, psi this function (Fan, Grama
    and Liu 2015). By its series near 0, where the difference would lose its digits.

    Example:
        >>> log_remainder(0.0), round(log_remainder(0.5), 6)
        (0.5, 0.772589)
    """
    if abs(r) < _SERIES_BELOW:
        total = 0.0
        for order in range(11, 1, -1):
            total = total * r + 1 / order
        return total
    return (-math.log1p(-r) - r) / (r * r)


def log_at_least(successes: int, trials: int, p: float) -> tuple[float, float]:
    """Return ln P(X >= successes) for a binomial X with mean below ``successes``, and its slope.

    The largest term, and the continued fraction of the incomplete beta function for the sum of
    all: few steps a standard deviation or more from the mean, for any number of trials. Nearer
    than that to the mean of very many trials, and above it, the logarithm is bounded by 0. Off by
    at most 1e-12, or 1e-15 standard deviations of a coin's sum.

    Example:
        >>> round(math.exp(log_at_least(2, 3, 0.25)[0]), 12) == 3 * 0.25**2 * 0.75 + 0.25**3
        True
    """
    top, bottom = p.as_integer_ratio()
    excess = (successes * bottom - top * trials) / bottom
    if p <= 0 or excess <= 0:
        return (-math.inf if p <= 0 else 0.0), math.inf
    if successes == trials:
        return trials * math.log(p), trials / p
    total = _beta_fraction(successes, trials - successes + 1, p) * (1 - p)
    log_tail = _log_term(successes, trials, p, excess) + math.log(total)
    return min(0.0, log_tail), successes / (p * total)


def _log_term(successes: int, trials: int, p: float, excess: float) -> float:
    """Return ln P(X = successes), its distance from the mean given (Loader 2000)."""
    misses = trials - successes
    if 2 * excess < successes:
        divergence = log_remainder(excess / successes) * excess**2 / successes
    else:
        divergence = successes * math.log(successes / trials / p) - excess
    divergence += log_remainder(-excess / misses) * excess**2 / misses
    spread = math.log(2 * math.pi * successes) + math.log(misses / trials)
    return _stirling(trials) - _stirling(successes) - _stirling(misses) - divergence - spread / 2


def _stirling(n: int) -> float:
    """Return ln n! less Stirling's formula."""
    if n < 16:
        return math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - math.log(2 * math.pi) / 2
    square = 1 / (n * n)
    return (1 / 12 - (1 / 360 - (1 / 1260 - square / 1680) * square) * square) / n


def _beta_fraction(a: int, b: int, x: float) -> float:
    """Return the continued fraction of the incomplete beta function (Lentz's method)."""
    front = 1.0
    value = back = 1 / (1 - (a + b) / (a + 1) * x)
    for m in range(1, _FRACTION_STEPS):
        even = m * (b - m) / ((a + 2 * m - 1) * (a + 2 * m)) * x
        odd = -(a + m) * (a + b + m) / ((a + 2 * m) * (a + 2 * m + 1)) * x
        before = value
        for numerator in (even, odd):
            back = 1 / (1 + numerator * back)
            front = 1 + numerator / front
            value *= front * back
        if abs(value - before) <= 1e-15 * value:
            return value
    return math.inf
