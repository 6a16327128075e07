r"""The discrete Gaussian law in blocks, and how far a draw may be from it.

The magnitudes are cut into blocks of :math:`2^w` numbers. A candidate is a block, chosen in
proportion to its size times its largest weight :math:`g(a)`, :math:`g(k) = e^{-k^2/(2s^2)}`, and a
number :math:`m` of it, all alike; it is accepted with probability :math:`g(m)/g(a)`. Up to a scale
of 431 every number is a block of its own, and the first candidate is accepted. Above, fewer than
one in 250 is rejected, and a fixed number of candidates is always made.
"""

import math
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from torch_holdout._noise.laplace import UNIFORM_BITS, require_scale

_REACH = 19  # standard deviations: beyond them are fewer than 2^-258
_BLOCKS = 8192  # at most; at least half as many if a block has several numbers
TABLE_BITS = 384  # of fixed-point numbers in the table
_WEIGHT_BITS = 288  # of the weight of a candidate
_STEP_BITS = 14  # exponents are below 0.09: a table has the exponential at every 2^-14,
_TERMS = 16  # and as many terms of its series are enough for the rest
_CONTEXT = Context(prec=140)


class Blocks(NamedTuple):
    """The blocks of one scale.

    Attributes:
        cumulative: Of 2^256 uniforms, those that choose a block up to this one; the first has 0.
        width: Two to this power is the number of magnitudes of the others.
        rounds: Candidates of one draw.
        doubled_variance: :math:`2 s^2`.
    """

    cumulative: tuple[int, ...]
    width: int
    rounds: int
    doubled_variance: Fraction

    def start(self, block: int) -> int:
        """Return the smallest magnitude of a block."""
        return (block > 0) + ((block - (block > 0)) << self.width)

    def weight(self, start: int, magnitude: int) -> int:
        r"""Return :math:`2^{256} g(m)/g(a)`, in the same number of steps for all magnitudes."""
        if self.width == 0:
            return 1 << UNIFORM_BITS
        variance = self.doubled_variance
        distance = (magnitude * magnitude - start * start) * variance.denominator
        exponent = (distance << _WEIGHT_BITS) // variance.numerator
        rest = exponent & ((1 << (_WEIGHT_BITS - _STEP_BITS)) - 1)
        one = total = 1 << _WEIGHT_BITS
        for term in range(_TERMS, 0, -1):
            total = one - ((rest * total) >> _WEIGHT_BITS) // term
        steps = _exponentials()[exponent >> (_WEIGHT_BITS - _STEP_BITS)]
        return (total * steps) >> (TABLE_BITS + _WEIGHT_BITS - UNIFORM_BITS)


@lru_cache(maxsize=16)
def blocks_of(scale: float) -> Blocks:
    """Cut the magnitudes of a scale above 0 into blocks.

    Example:
        >>> [(len(b.cumulative), b.width, b.rounds) for b in map(blocks_of, (1.0, 400.0, 1e6))]
        [(20, 0, 1), (7601, 0, 1), (4640, 12, 31)]
    """
    require_scale(scale)
    reach = math.ceil(_REACH * Fraction(scale))
    width = max(0, -(-reach // _BLOCKS) - 1).bit_length()
    count = -(-reach >> width)
    tops = list(weights_from(scale, 1 << width, count))
    one = 1 << TABLE_BITS
    sizes = [one, *(top << (width + 1) for top in tops)]  # both signs
    total = sum(sizes)
    cumulative, so_far = [], 0
    for size in sizes:
        so_far += size
        cumulative.append((so_far << UNIFORM_BITS) // total)
    # The sum over a block is at least its size times the next block's weight: what is rejected is
    # at most the first block.
    rejected = Fraction((tops[0] << (width + 1)) if width else 0, total)
    rounds = math.ceil(UNIFORM_BITS / -math.log2(rejected)) if rejected else 1
    return Blocks(tuple(cumulative), width, rounds, 2 * Fraction(scale) ** 2)


def gaussian_error(scale: float) -> float:
    """Bound the total variation between one ``gaussian`` draw and its law.

    Each round's choice and acceptance are rounded to 2^-256; that no candidate is accepted, and
    that the law goes beyond the blocks, is rarer than that.

    Example:
        >>> gaussian_error(1e6) < 1e-70
        True
    """
    if scale == 0:
        return 0.0
    blocks = blocks_of(scale)
    return (blocks.rounds * (len(blocks.cumulative) + 3) + 2) * 2.0**-UNIFORM_BITS


def weights_from(scale: float, width: int, count: int) -> Iterator[int]:
    """Yield g at 1, 1 + width, ... in fixed point; each step's factor is the last one's times q.

    The error of the last one is below count^2 units of 2^-384.

    Example:
        >>> [round(weight / 2**TABLE_BITS, 4) for weight in weights_from(1.0, 1, 3)]
        [0.6065, 0.1353, 0.0111]
    """
    doubled = 2 * Fraction(scale) ** 2
    weight = _fixed_exp(Fraction(1) / doubled)
    factor = _fixed_exp(Fraction(width * width + 2 * width) / doubled)
    shrink = _fixed_exp(Fraction(2 * width * width) / doubled)
    for _ in range(count):
        yield weight
        weight = (weight * factor) >> TABLE_BITS
        factor = (factor * shrink) >> TABLE_BITS


@lru_cache(maxsize=1)
def _exponentials() -> list[int]:
    """Return exp(-k/2^14) in fixed point, for all exponents below 0.1."""
    factor, table = _fixed_exp(Fraction(1, 1 << _STEP_BITS)), [1 << TABLE_BITS]
    for _ in range((1 << _STEP_BITS) // 10):
        table.append((table[-1] * factor) >> TABLE_BITS)
    return table


def _fixed_exp(exponent: Fraction) -> int:
    """Return exp(-exponent) in fixed point."""
    quotient = _CONTEXT.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    small = _CONTEXT.exp(quotient.copy_negate())  # a minus would round to the thread's context
    return int(_CONTEXT.multiply(small, Decimal(1 << TABLE_BITS)))
