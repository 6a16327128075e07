"""The discrete Gaussian law as a table of cumulative numbers, for batches of draws on any device.

A magnitude is found by comparing one 62-bit number with the table. Its numbers are those of the
law in fixed point, rounded down once.
"""

import math
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from torch_holdout._noise.gaussian import TABLE_BITS, weights_from
from torch_holdout._noise.laplace import DEVICE_BITS, require_scale
from torch_holdout.errors import InvalidArgumentError

LARGEST_TABLE_SCALE = 1e5  # its table has 925,000 numbers and takes a second, once
_REACH = Fraction(37, 4)  # standard deviations: beyond them is less than 2^-63
_TABLES = 8  # kept, of at most 7.4 MB each


def batch_gaussian_error(scale: float) -> float:
    """Bound the total variation between one ``Uniforms.gaussian`` draw and its law.

    The share of each magnitude is off by at most one of 2^62 numbers, so half of their sum by
    2^-63 each; 2^-63 is for the magnitudes beyond the table, 9.25 standard deviations.

    Example:
        >>> batch_gaussian_error(14.0) < 1e-16, batch_gaussian_error(1e5) < 1.1e-13
        (True, True)
    """
    return (_reach(scale) + 2) * 2.0**-DEVICE_BITS if scale else 0.0


@lru_cache(maxsize=_TABLES)
def gaussian_table(scale: float) -> npt.NDArray[np.int64]:
    """Return, of 2^62 numbers, how many choose a magnitude up to 0, 1, 2, ...; all, the last.

    The last one is left out.

    Example:
        >>> [round(number / 2**62, 4) for number in gaussian_table(1.0)[:3].tolist()]
        [0.3989, 0.8829, 0.9909]
    """
    reach = _reach(scale)
    one = 1 << TABLE_BITS
    total = one + 2 * sum(weights_from(scale, 1, reach)) if reach else one
    so_far = accumulate(weights_from(scale, 1, max(reach - 1, 0)), initial=0)
    numbers = (((one + 2 * part) << (DEVICE_BITS - 1)) // total for part in so_far)
    table = np.fromiter(numbers, dtype=np.int64, count=reach)
    table.setflags(write=False)
    return table


def _reach(scale: float) -> int:
    require_scale(scale)
    if scale > LARGEST_TABLE_SCALE:
        raise InvalidArgumentError(
            f"Expected a noise scale of at most {LARGEST_TABLE_SCALE:g} for draws in batches, but "
            f"got {scale:g}. Use fewer queries or a larger epsilon."
        )
    return math.ceil(_REACH * Fraction(scale))
