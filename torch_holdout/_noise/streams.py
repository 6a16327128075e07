r"""Draws for released scalars, from the operating system's entropy.

They get *integer* noise. The discrete Laplace law :math:`P(k) \propto e^{-|k|/t}` is the difference
of two geometric variables, and the bits of a geometric variable are independent: bit :math:`j` is
one with probability :math:`1/(1 + e^{2^j/t})`. So one draw is a fixed number of comparisons of
256-bit uniforms with constants, the same work for every outcome, and no floating point touches the
result. The discrete Gaussian follows Canonne, Kamath and Steinke (2020), with exact rational coins.
Nothing here reads a global generator.
"""

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar, final

from torch_holdout._noise.device import Uniforms
from torch_holdout._noise.laplace import UNIFORM_BITS, bit_thresholds, require_scale
from torch_holdout.errors import InvalidArgumentError

_UNIFORM_BYTES = UNIFORM_BITS // 8


@final
class NoiseStream:
    """Draws integers from a source of bytes.

    Example:
        >>> stream = SeededNoise(7).stream("example")
        >>> isinstance(stream.laplace(50.0), int), stream.laplace(0.0)
        (True, 0)
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def laplace(self, scale: float) -> int:
        r"""Draw :math:`k` with :math:`P(k) \propto e^{-|k|/\mathrm{scale}}`; scale 0 gives 0.

        The law is met up to a total variation of ``sampler_error(scale)``, below 1e-74.
        """
        thresholds = bit_thresholds(scale)
        return self._geometric(thresholds) - self._geometric(thresholds)

    def gaussian(self, scale: float) -> int:
        r"""Draw :math:`k` with :math:`P(k) \propto e^{-k^2/(2\,\mathrm{scale}^2)}`, exactly."""
        require_scale(scale)
        if scale == 0:
            return 0
        variance = Fraction(scale) ** 2
        width = math.floor(scale) + 1
        while True:
            candidate = self._exact_laplace(width)
            distance = abs(candidate) - variance / width
            if self._coin_exp(distance**2 / (2 * variance)):
                return candidate

    def _geometric(self, thresholds: tuple[int, ...]) -> int:
        block = self._read(_UNIFORM_BYTES * len(thresholds))
        total = 0
        for bit, threshold in enumerate(thresholds):
            start = bit * _UNIFORM_BYTES
            uniform = int.from_bytes(block[start : start + _UNIFORM_BYTES], "little")
            total |= (uniform < threshold) << bit
        return total

    def _exact_laplace(self, scale: int) -> int:
        while True:
            offset = self._below(scale)
            if not self._coin_exp(Fraction(offset, scale)):
                continue
            steps = 0
            while self._coin_exp(Fraction(1)):
                steps += 1
            magnitude = offset + scale * steps
            negative = self._below(2) == 1
            if not (negative and magnitude == 0):
                return -magnitude if negative else magnitude

    def _coin_exp(self, exponent: Fraction) -> bool:
        """Return true with probability exp(-exponent), using rational coins only."""
        while exponent > 1:
            if not self._coin_exp(Fraction(1)):
                return False
            exponent -= 1
        draws = 1
        while self._coin(exponent / draws):
            draws += 1
        return draws % 2 == 1

    def _coin(self, probability: Fraction) -> bool:
        return self._below(probability.denominator) < probability.numerator

    def _below(self, bound: int) -> int:
        bits = (bound - 1).bit_length()
        if bits == 0:
            return 0
        while True:
            value = int.from_bytes(self._read((bits + 7) // 8), "little") & ((1 << bits) - 1)
            if value < bound:
                return value


class NoiseSource(ABC):
    """Where the noise of released scalars comes from."""

    seeded: ClassVar[bool]

    @abstractmethod
    def _reader(self, key: tuple[object, ...]) -> Callable[[int], bytes]:
        """Return a source of bytes for one purpose; two purposes never share a byte."""

    def stream(self, *key: object) -> NoiseStream:
        """Return the stream of single draws for one purpose."""
        return NoiseStream(self._reader(key))

    def uniforms(self, *key: object) -> Uniforms:
        """Return the batches of draws for one purpose."""
        return Uniforms(self._reader(("batch", *key)))


@final
class SystemNoise(NoiseSource):
    """Entropy of the operating system, fresh for every draw.

    Example:
        >>> SystemNoise().seeded
        False
    """

    seeded = False

    def _reader(self, key: tuple[object, ...]) -> Callable[[int], bytes]:
        return os.urandom


@final
class SeededNoise(NoiseSource):
    """Reproducible noise for tests and experiments; a known seed is known noise.

    Example:
        >>> a, b = SeededNoise(7), SeededNoise(7)
        >>> a.stream("val", 1).laplace(1e6) == b.stream("val", 1).laplace(1e6)
        True
        >>> a.stream("val", 1).laplace(1e6) == a.stream("val", 2).laplace(1e6)
        False
    """

    seeded = True

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise InvalidArgumentError(f"Expected `seed` to be an integer, but got {seed!r}.")
        self._seed = seed

    def _reader(self, key: tuple[object, ...]) -> Callable[[int], bytes]:
        prefix = repr((self._seed, key)).encode()
        calls = 0

        def read(size: int) -> bytes:
            nonlocal calls
            calls += 1
            return hashlib.shake_256(prefix + b"\x00" + str(calls).encode()).digest(size)

        return read


def fresh_secret(size: int = 32) -> bytes:
    """Return bytes nobody has seen, for keys and identifiers."""
    return os.urandom(size)
