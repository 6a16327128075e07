"""Permutations and numbers that only a seed decides: public, and no noise of any answer."""

import hashlib

import torch
from torch import Tensor


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
