r"""Draws for released scalars, from the operating system's entropy.

They get *integer* noise. The discrete Laplace law :math:`P(k) \propto e^{-|k|/t}` is the difference
of two geometric variables, and the bits of a geometric variable are independent: bit :math:`j` is
one with probability :math:`1/(1 + e^{2^j/t})`. So one draw is a fixed number of comparisons of
256-bit uniforms with constants, the same work for every outcome, and no floating point touches the
result. So is a draw from the discrete Gaussian law, in blocks (``gaussian.py``). Nothing here reads
a global generator.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, final

from torch_holdout._noise.gaussian import blocks_of
from torch_holdout._noise.laplace import UNIFORM_BITS, bit_thresholds, require_scale
from torch_holdout._shared.checks import shown
from torch_holdout.errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch_holdout._noise.device import Uniforms

_UNIFORM_BYTES = UNIFORM_BITS // 8
_SEED_BITS = 8192  # Python writes down no longer ones


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

    def geometric(self, scale: float) -> int:
        r"""Draw :math:`k \ge 0` with :math:`P(k) \propto e^{-k/\mathrm{scale}}`; 0 for scale 0.

        The law is met up to a total variation of ``geometric_error(scale)``, below 1e-74.
        """
        return self._geometric(bit_thresholds(scale))

    def gaussian(self, scale: float) -> int:
        r"""Draw :math:`k` with :math:`P(k) \propto e^{-k^2/(2\,\mathrm{scale}^2)}`; 0 for scale 0.

        The law is met up to a total variation of ``gaussian_error(scale)``, below 1e-70.
        """
        require_scale(scale)
        if scale == 0:
            return 0
        blocks = blocks_of(scale)
        offset_bytes = (blocks.width + 7) // 8
        each = 2 * _UNIFORM_BYTES + offset_bytes
        drawn = self._read(blocks.rounds * each + 1)
        magnitude = found = 0
        for start in range(0, blocks.rounds * each, each):
            choice, offset, coin = _numbers(drawn, start, (_UNIFORM_BYTES, offset_bytes))
            block = bisect_right(blocks.cumulative, choice)
            smallest = blocks.start(block)
            candidate = smallest + (block > 0) * (offset & ((1 << blocks.width) - 1))
            accepted = coin < blocks.weight(smallest, candidate)
            magnitude += (accepted and not found) * candidate
            found |= accepted
        return magnitude * (1 - 2 * (drawn[-1] & 1))

    def _geometric(self, thresholds: tuple[int, ...]) -> int:
        block = self._read(_UNIFORM_BYTES * len(thresholds))
        total = 0
        for bit, threshold in enumerate(thresholds):
            start = bit * _UNIFORM_BYTES
            uniform = int.from_bytes(block[start : start + _UNIFORM_BYTES], "little")
            total |= (uniform < threshold) << bit
        return total


class NoiseSource(ABC):
    """Where the noise of released scalars comes from."""

    seeded: ClassVar[bool]

    @abstractmethod
    def _reader(self, key: tuple[object, ...]) -> Callable[[int], bytes]:
        """Return a source of bytes for one purpose; two purposes never share a byte."""

    def stream(self, *key: object) -> NoiseStream:
        """Return the stream of single draws for one purpose."""
        return NoiseStream(self._reader(key))

    def uniforms(self, *key: object) -> "Uniforms":
        """Return the batches of draws for one purpose."""
        # It imports torch, which takes longer than a plan, and a plan has no batches.
        from torch_holdout._noise.device import Uniforms

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
        usable = isinstance(seed, int) and not isinstance(seed, bool)
        if not usable or seed.bit_length() > _SEED_BITS:
            raise InvalidArgumentError(f"Expected `seed` to be an integer, but got {shown(seed)}.")
        self._seed = seed

    def _reader(self, key: tuple[object, ...]) -> Callable[[int], bytes]:
        prefix = repr((self._seed, key)).encode()
        calls = 0

        def read(size: int) -> bytes:
            nonlocal calls
            calls += 1
            return hashlib.shake_256(prefix + b"\x00" + str(calls).encode()).digest(size)

        return read


def _numbers(drawn: bytes, start: int, sizes: tuple[int, int]) -> tuple[int, int, int]:
    """Read a uniform number, an offset and another uniform number from drawn bytes."""
    first, second = start + sizes[0], start + sum(sizes)
    parts = drawn[start:first], drawn[first:second], drawn[second : second + sizes[0]]
    choice, offset, coin = (int.from_bytes(part, "little") for part in parts)
    return choice, offset, coin


def fresh_secret(size: int = 32) -> bytes:
    """Return bytes nobody has seen, for keys and identifiers."""
    return os.urandom(size)
