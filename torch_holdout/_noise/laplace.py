"""The discrete Laplace and geometric laws bit by bit, and how far a draw may be from them."""

import math
from decimal import Context, Decimal
from functools import lru_cache

from torch_holdout.errors import InvalidArgumentError

UNIFORM_BITS = 256
DEVICE_BITS = 63
_CONTEXT = Context(prec=120)


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

    Example:
        >>> batch_sampler_error(1e6) < 1e-17
        True
    """
    return 2.0 * (len(bit_thresholds(scale)) + 1) * 2.0**-DEVICE_BITS if scale else 0.0


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


def require_scale(scale: float) -> None:
    if not (math.isfinite(scale) and scale >= 0):
        raise InvalidArgumentError(
            f"Expected the noise scale to be finite and not negative, but got {scale!r}."
        )
