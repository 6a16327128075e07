"""Amounts of privacy in whole picos (10^-12), so that a sum of a million charges is exact.

Two roundings, and neither can change: ledgers hold what they gave. A holdout's step is multiplied
first, so 0.017 is a little more than 17 billion picos. A price of training records is its shortest
decimal, so ten times 0.017 fit into 0.17.
"""

import math
from decimal import Decimal

PICO = 10**12


def steps_in_picos(step: float, steps: int) -> int | None:
    """Return what ``steps`` equal steps of a holdout cost, each rounded up; None if infinite.

    Example:
        >>> steps_in_picos(0.1, 2), steps_in_picos(math.inf, 1)
        (200000000000, None)
    """
    return None if math.isinf(step) else steps * rounded_up(step)


def rounded_up(amount: float) -> int:
    """Return an amount in whole picos, multiplied first.

    Example:
        >>> rounded_up(0.1), rounded_up(0.017)
        (100000000000, 17000000001)
    """
    return math.ceil(amount * PICO)


def from_picos(picos: int) -> float:
    """Return stored picos as the amount that they are.

    Example:
        >>> from_picos(693147180560)
        0.69314718056
    """
    return picos / PICO


def decimal_in_picos(amount: float, rounding: str) -> int:
    """Return the shortest decimal that is this number, rounded: 0.1 is 0.1, not a little more."""
    return int((Decimal(repr(float(amount))) * PICO).to_integral_value(rounding=rounding))
