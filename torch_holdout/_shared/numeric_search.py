"""Searches on one number, with the answer on the safe side."""

import math
from collections.abc import Callable


def smallest_value(
    function: Callable[[float], float], low: float, high: float, effort: int = 48
) -> float:
    """Return a value of the function close to its smallest on an interval.

    A coarse scan and a golden-section search around the best point. The result is a value of the
    function, so a bound that holds for every argument holds for it.

    Example:
        >>> round(smallest_value(lambda x: (x - 1) ** 2 + 3, -10, 10), 9)
        3.0
    """
    return _lowest(function, low, high, effort)[1]


def best_argument(
    function: Callable[[float], float], low: float, high: float, effort: int = 48
) -> float:
    """Return where ``smallest_value`` is taken; ``effort`` is the number of points, and of steps.

    Example:
        >>> round(best_argument(lambda x: abs(x - 2), -10, 10), 6)
        2.0
    """
    return _lowest(function, low, high, effort)[0]


def _lowest(
    function: Callable[[float], float], low: float, high: float, effort: int
) -> tuple[float, float]:
    step = (high - low) / effort
    points = [low + step * k for k in range(effort + 1)]
    at_start, start = min((function(point), point) for point in points)
    left, right = max(low, start - step), min(high, start + step)
    golden = (math.sqrt(5) - 1) / 2
    first, second = right - golden * (right - left), left + golden * (right - left)
    at_first, at_second = function(first), function(second)
    for _ in range(effort):
        if at_first <= at_second:
            right, second, at_second = second, first, at_first
            first = right - golden * (right - left)
            at_first = function(first)
        else:
            left, first, at_first = first, second, at_second
            second = left + golden * (right - left)
            at_second = function(second)
    ends = ((start, at_start), (first, at_first), (second, at_second))
    return min(ends, key=lambda end: end[1])


def largest_where(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest number for which a falling condition holds, rounded towards ``low``.

    Example:
        >>> round(largest_where(lambda x: x * x <= 2, 0.0, 10.0), 6)
        1.414214
    """
    return high if holds(high) else _crossing(lambda x: not holds(x), low, high)[0]


def zero_between(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that is below 0 at ``low`` and above 0 at ``high`` crosses it.

    The answer is on the side of ``low``. False position, where an end that stays counts half
    (Illinois): few steps for a nearly straight line, and kinks and jumps are found too.

    Example:
        >>> round(zero_between(lambda x: x**5 - 2, 0.0, 10.0), 9)
        1.148698355
        >>> round(zero_between(lambda x: -1.0 if x < 3 else 50.0, 0.0, 10.0), 9)
        3.0
    """
    below, above, side = function(low), function(high), 0
    for _ in range(200):
        middle = (low * above - high * below) / (above - below)
        if not low < middle < high:
            middle = (low + high) / 2
        value = function(middle)
        if value > 0:
            below, side = below / 2 if side > 0 else below, 1
            high, above = middle, value
        else:
            above, side = above / 2 if side < 0 else above, -1
            low, below = middle, value
        if value == 0 or high - low <= 1e-14 * max(1.0, abs(low)):
            break
    return low


def smallest_where(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest number from which a condition holds, rounded up; infinite if none does.

    Example:
        >>> round(smallest_where(lambda x: x * x >= 2, 0.0, 10.0), 6)
        1.414214
    """
    return _crossing(holds, low, high)[1] if holds(high) else math.inf


def _crossing(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Return neighbouring numbers between which a condition begins to hold."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def smallest_whole(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the smallest whole number from which a condition holds, None if none does.

    Example:
        >>> smallest_whole(lambda n: n * n >= 50, 1, 1000)
        8
    """
    bound = low
    while not holds(bound):
        if bound >= high:
            return None
        low, bound = bound + 1, min(high, 2 * bound + 1)
    while low < bound:
        middle = (low + bound) // 2
        if holds(middle):
            bound = middle
        else:
            low = middle + 1
    return low


def largest_whole(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the largest whole number up to which a condition holds, None if none does.

    Example:
        >>> largest_whole(lambda n: n * n <= 50, 1, 1000)
        7
    """
    if not holds(low):
        return None
    beyond = smallest_whole(lambda n: not holds(n), low, high)
    return high if beyond is None else beyond - 1
