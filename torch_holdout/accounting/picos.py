"""Charges of a holdout in whole picos (10^-12) of epsilon or rho."""

import math

PICO = 10**12


def steps_in_picos(step: float, steps: int) -> int | None:
    """Return what ``steps`` equal steps cost, each rounded up; None if a step costs infinity.

    Stored rows hold exactly this number, so its rounding can never change. Charges of training
    records take the shortest decimal of a price first (``charge_in_picos``), so that ten times
    0.017 fit into 0.17; theirs are stored too.

    Example:
        >>> steps_in_picos(0.1, 2), steps_in_picos(math.inf, 1)
        (200000000000, None)
    """
    return None if math.isinf(step) else steps * math.ceil(step * PICO)
