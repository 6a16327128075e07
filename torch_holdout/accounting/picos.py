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
    return None if math.isinf(step) else steps * math.ceil(step * PICO)


def decimal_in_picos(amount: float, rounding: str) -> int:
    """Return the shortest decimal that is this number, rounded: 0.1 is 0.1, not a little more."""
    return int((Decimal(repr(float(amount))) * PICO).to_integral_value(rounding=rounding))
