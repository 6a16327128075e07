r"""The only file that samples.

Released scalars get *integer* noise from the operating system's entropy. The discrete Laplace law
:math:`P(k) \propto e^{-|k|/t}` is the difference of two geometric variables, and the bits of a
geometric variable are independent: bit :math:`j` is one with probability
:math:`1/(1 + e^{2^j/t})`. So one draw is a fixed number of comparisons of 256-bit uniforms with
constants, the same work for every outcome, and no floating point touches the result.

The discrete Gaussian follows Canonne, Kamath and Steinke (2020), with exact rational coins.

Nothing here reads a global generator. Models and their layers draw from those all the same, so two
functions lend them seeded ones and put the old ones back.
"""

import hashlib
import math
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from torch_holdout.errors import InvalidArgumentError

UNIFORM_BITS = 256
DEVICE_BITS = 63
_UNIFORM_BYTES = UNIFORM_BITS // 8
_CONTEXT = Context(prec=120)


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
        thresholds = _bit_thresholds(scale)
        return self._geometric(thresholds) - self._geometric(thresholds)

    def gaussian(self, scale: float) -> int:
        r"""Draw :math:`k` with :math:`P(k) \propto e^{-k^2/(2\,\mathrm{scale}^2)}`, exactly."""
        _require_scale(scale)
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

    def uniforms(self, *key: object) -> "Uniforms":
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
    """Reproducible noise for tests and experiments; whoever knows the seed knows the noise.

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


@final
class Uniforms:
    """Batches of draws on any device from 63-bit uniform integers; nothing is read back.

    The bits come from the host (the operating system, or a seed) and are copied to the device, so
    no device generator has to be trusted, seeded or saved.

    Example:
        >>> uniforms = SeededNoise(7).uniforms("example")
        >>> uniforms.draw((2, 3)).shape, uniforms.laplace(20.0, (4,)).dtype
        (torch.Size([2, 3]), torch.int64)
    """

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def draw(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> Tensor:
        """Draw independent integers, each value below 2^63 equally likely."""
        count = math.prod(shape)
        if count == 0:
            return torch.zeros(shape, dtype=torch.int64, device=device)
        words = torch.frombuffer(bytearray(self._read(8 * count)), dtype=torch.int64)
        positive: Tensor = words & (2**DEVICE_BITS - 1)
        return positive.view(shape).to(device, non_blocking=True)

    def laplace(
        self, scale: float, shape: tuple[int, ...], device: torch.device | str = "cpu"
    ) -> Tensor:
        r"""Draw independent integers :math:`P(k) \propto e^{-|k|/\mathrm{scale}}`.

        The law is met up to a total variation of ``batch_sampler_error(scale)`` each.
        """
        thresholds = [t >> (UNIFORM_BITS - DEVICE_BITS) for t in _bit_thresholds(scale)]
        return self._geometric(thresholds, shape, device) - self._geometric(
            thresholds, shape, device
        )

    def normal(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> Tensor:
        """Draw independent standard normal numbers in double precision.

        The upper half of the law is inverted from 62 bits, so the tail ends beyond nine standard
        deviations; the last bit is the sign.
        """
        words = self.draw(shape, device)
        upper = ((words >> 1).to(torch.float64) + 0.5) * 2.0**-DEVICE_BITS
        lower: Tensor = torch.special.ndtri(upper)
        return lower * (1 - 2 * (words & 1))

    def _geometric(
        self, thresholds: list[int], shape: tuple[int, ...], device: torch.device | str
    ) -> Tensor:
        total = torch.zeros(shape, dtype=torch.int64, device=device)
        for bit, threshold in enumerate(thresholds):
            total += (self.draw(shape, device) < threshold).to(torch.int64) << bit
        return total


def sampler_error(scale: float) -> float:
    """Bound the total variation between one ``laplace`` draw and its law.

    Example:
        >>> sampler_error(1e6) < 1e-74
        True
    """
    return 2.0 * (len(_bit_thresholds(scale)) + 1) * 2.0**-UNIFORM_BITS if scale else 0.0


def batch_sampler_error(scale: float) -> float:
    """Bound the total variation between one ``Uniforms.laplace`` draw and its law.

    Example:
        >>> batch_sampler_error(1e6) < 1e-17
        True
    """
    return 2.0 * (len(_bit_thresholds(scale)) + 1) * 2.0**-DEVICE_BITS if scale else 0.0


def fixed_permutation(size: int, seed: int) -> Tensor:
    """Return the numbers below ``size`` in an order that only ``seed`` decides (public).

    Example:
        >>> fixed_permutation(4, seed=1).sort().values
        tensor([0, 1, 2, 3])
    """
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def permutations(rows: int, size: int, *key: object) -> Tensor:
    """Return independent orders of the numbers below ``size``, one a row, decided by ``key``.

    Example:
        >>> permutations(2, 3, "seed", 7).sort(dim=1).values
        tensor([[0, 1, 2],
                [0, 1, 2]])
    """
    generator = torch.Generator().manual_seed(derived_seed(*key))
    if rows == 1:
        return torch.randperm(size, generator=generator)[None]
    return torch.rand(rows, size, dtype=torch.float64, generator=generator).argsort(dim=1)


def derived_seed(*key: object) -> int:
    """Return the seed of one purpose; it is the same in every process.

    Example:
        >>> derived_seed(7, "order", 1) == derived_seed(7, "order", 1) != derived_seed(7, "order")
        True
    """
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little")


@contextmanager
def lent_generator(*key: object, device: torch.device | None = None) -> Iterator[None]:
    """Run with torch's global generators, the host's and the device's, seeded; restore them.

    Example:
        >>> with lent_generator(7, "member", 0):
        ...     first = torch.nn.Linear(2, 2).weight
        >>> with lent_generator(7, "member", 0):
        ...     torch.equal(first, torch.nn.Linear(2, 2).weight)
        True
    """
    seed = derived_seed(*key)
    host = torch.default_generator.get_state()
    on_cuda = device is not None and device.type == "cuda"
    there = torch.cuda.get_rng_state(device) if on_cuda else None  # type: ignore[arg-type]
    try:
        torch.default_generator.manual_seed(seed)
        if there is not None:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
    finally:
        torch.default_generator.set_state(host)
        if there is not None:
            torch.cuda.set_rng_state(there, device)  # type: ignore[arg-type]


@contextmanager
def lent_generators(*key: object) -> Iterator[None]:
    """Run with the global generators of torch, numpy and Python seeded by ``key``; restore them.

    Example:
        >>> with lent_generators(7):
        ...     first = random.random()
        >>> with lent_generators(7):
        ...     first == random.random()
        True
    """
    python, arrays = random.getstate(), np.random.get_state()
    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else None
    try:
        random.seed(derived_seed(*key))
        np.random.seed(derived_seed(*key) % 2**32)
        with lent_generator(*key, device=device):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)


def coin_flips(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return fair coins that only ``seed`` decides, for experiments (public).

    Example:
        >>> coin_flips((2, 3), seed=0).dtype
        torch.bool
    """
    return torch.randint(2, shape, generator=torch.Generator().manual_seed(seed)).bool()


def normal_numbers(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return standard normal numbers that only ``seed`` decides, for experiments (public).

    Example:
        >>> normal_numbers((2, 3), seed=0).dtype
        torch.float32
    """
    return torch.empty(shape).normal_(generator=torch.Generator().manual_seed(seed))


def laplace_numbers(shape: tuple[int, ...], seed: int) -> Tensor:
    """Return Laplace numbers of scale 1 that only ``seed`` decides, for experiments (public).

    They are floating-point numbers: they show behaviour, and protect nothing.

    Example:
        >>> laplace_numbers((2, 3), seed=0).dtype
        torch.float64
    """
    pair = torch.empty((2, *shape), dtype=torch.float64)
    pair.exponential_(generator=torch.Generator().manual_seed(seed))
    return pair[0] - pair[1]


def fixed_integers(high: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """Return numbers from 0 to ``high - 1`` that only ``seed`` decides, for experiments (public).

    Example:
        >>> int(fixed_integers(10, (100,), seed=0).max()) < 10
        True
    """
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def fresh_secret(size: int = 32) -> bytes:
    """Return bytes nobody has seen, for keys and identifiers."""
    return os.urandom(size)


@lru_cache(maxsize=256)
def _bit_thresholds(scale: float) -> tuple[int, ...]:
    """Return floor(2^256 / (1 + exp(2^j / scale))) for every bit j that is not practically zero."""
    _require_scale(scale)
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


def _require_scale(scale: float) -> None:
    if not (math.isfinite(scale) and scale >= 0):
        raise InvalidArgumentError(
            f"Expected the noise scale to be finite and not negative, but got {scale!r}."
        )
