"""Batches of draws on any device, for the votes of an ensemble."""

import math
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from torch_holdout._noise.gaussian_table import gaussian_table
from torch_holdout._noise.kept_tables import table_on
from torch_holdout._noise.laplace import DEVICE_BITS, digit_tables


@final
class Uniforms:
    """Batches of draws on any device from 63-bit uniform integers; nothing is read back.

    The bits come from the host (the operating system, or a seed) and are copied to the device, so
    no device generator has to be trusted, seeded or saved.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> uniforms = SeededNoise(7).uniforms("example")
        >>> uniforms.draw((2, 3)).shape, uniforms.laplace(20.0, (4,)).dtype
        (torch.Size([2, 3]), torch.int64)
        >>> uniforms.gaussian(14.0, (4,))
        tensor([  6, -19,   9,  12])
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

        A number's sign and bits are independent, and one 63-bit number decides up to eight of them
        by the table of their law, in as many steps for every outcome. The law is met up to a total
        variation of ``batch_sampler_error(scale)`` each.
        """
        total = torch.zeros(shape, dtype=torch.int64, device=device)
        place = 0
        for digit, numbers in enumerate(digit_tables(scale)):
            table = table_on(("laplace", scale, digit), numbers, torch.device(device))
            total += torch.searchsorted(table, self.draw(shape, device), right=True) << place
            place += len(numbers).bit_length()
        return (total >> 1) ^ -(total & 1)  # the sign is the first bit

    def gaussian(
        self, scale: float, shape: tuple[int, ...], device: torch.device | str = "cpu"
    ) -> Tensor:
        r"""Draw independent integers :math:`P(k) \propto e^{-k^2/(2\,\mathrm{scale}^2)}`.

        One 63-bit number each: 62 bits choose a magnitude from the table of the law, the last one
        the sign. The law is met up to a total variation of ``batch_gaussian_error(scale)`` each.
        """
        table = table_on(("gaussian", scale), gaussian_table(scale), torch.device(device))
        words = self.draw(shape, device)
        magnitudes: Tensor = torch.searchsorted(table, words >> 1, right=True)
        return magnitudes * (1 - 2 * (words & 1))

    def normal(self, shape: tuple[int, ...], device: torch.device | str = "cpu") -> Tensor:
        """Draw independent standard normal numbers in double precision.

        The upper half of the law is inverted from 62 bits, so the tail ends beyond nine standard
        deviations; the last bit is the sign.
        """
        words = self.draw(shape, device)
        upper = ((words >> 1).to(torch.float64) + 0.5) * 2.0**-DEVICE_BITS
        lower: Tensor = torch.special.ndtri(upper)
        return lower * (1 - 2 * (words & 1))
