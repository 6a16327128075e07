"""The discrete Laplace and geometric laws bit by bit, and how far a draw may be from them."""

import math
from decimal import Context, Decimal
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from torch_holdout.errors import InvalidArgumentError

UNIFORM_BITS = 256
DEVICE_BITS = 63
_CONTEXT = Context(prec=120)
_DIGIT_BITS = 8  # of a number, at most, that one uniform of a batch decides


def sampler_error(scale: float) -> float:
    """Bound the total variation between one ``laplace`` draw and its law.

    Example:
        >>> sampler_error(1e6) < 1e-74
        True
    """
    return 2.0 * geometric_error(scale)


def geometric_error(scale: float) -> float:
    """Bound the total variation between one ``geometric`` draw and its law.

    Each bit's probability is rounded to 2^-256; the bits left out are zero but for as much.

    Example:
        >>> geometric_error(1e6) == sampler_error(1e6) / 2
        True
    """
    return (len(bit_thresholds(scale)) + 1) * 2.0**-UNIFORM_BITS if scale else 0.0


def batch_sampler_error(scale: float) -> float:
    """Bound the total variation between one ``Uniforms.laplace`` draw and its law.

    Each value of a digit has its probability up to one of 2^63 numbers, so half of their sum is
    2^-64 for each; the bits left out are zero but for 2^-256.

    Example:
        >>> batch_sampler_error(1e6) < 1e-16
        True
    """
    return sum(len(table) + 2 for table in digit_tables(scale)) * 2.0 ** -(DEVICE_BITS + 1)


@lru_cache(maxsize=256)
def bit_thresholds(scale: float) -> tuple[int, ...]:
    """Return floor(2^256 / (1 + exp(2^j / scale))) for every bit j that is not practically zero."""
    require_scale(scale)
    if scale == 0:
        return ()
    exact = Decimal(scale)
    one = Decimal(1)
    full = Decimal(2**UNIFORM_BITS)
    thresholds = []
    power = 1
    # The bits left out are all zero except with probability exp(-power/scale) < 2^-256.
    while power / scale < UNIFORM_BITS * math.log(2):
        growth = _CONTEXT.exp(_CONTEXT.divide(Decimal(power), exact))
        thresholds.append(int(_CONTEXT.divide(full, _CONTEXT.add(one, growth))))
        power *= 2
    return tuple(thresholds)


@lru_cache(maxsize=64)
def digit_tables(scale: float) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the laws of a discrete Laplace number's digits, the lowest first; none for scale 0.

    The number is negative with the probability of the geometric law's lowest bit, and then minus
    one minus a geometric number, else a geometric number: bits that are independent, the sign
    first. Some of them make a digit; of its values, the table says how many of 2^63 uniforms choose
    one up to 0, 1, 2, ... All choose one up to the last, which is left out: each search takes as
    many steps.

    Example:
        >>> [len(table) for table in digit_tables(20.0)]
        [127, 63]
        >>> [round(number / 2**63, 4) for number in digit_tables(1.0)[0][:3].tolist()]
        [0.4621, 0.6321, 0.8021]
    """
    known = bit_thresholds(scale)
    bits = (*known[:1], *known)  # minus one minus a number is the number with all bits turned
    digits = -(-len(bits) // _DIGIT_BITS)
    width = -(-len(bits) // max(digits, 1))
    tables = []
    for start in range(0, len(bits), width or 1):
        own = bits[start : start + width]
        law = [1]
        for threshold in own:
            law = [p * q for q in ((1 << UNIFORM_BITS) - threshold, threshold) for p in law]
        shift = UNIFORM_BITS * len(own) - DEVICE_BITS
        parts = (min(part >> shift, 2**DEVICE_BITS - 1) for part in accumulate(law[:-1]))
        numbers = np.array(list(parts), dtype=np.int64)
        numbers.setflags(write=False)
        tables.append(numbers)
    return tuple(tables)


def require_scale(scale: float) -> None:
    if not (math.isfinite(scale) and scale >= 0):
        raise InvalidArgumentError(
            f"Expected the noise scale to be finite and not negative, but got {scale!r}."
        )
