"""Batches of integers of the discrete Gaussian law."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_holdout._noise.gaussian import blocks_of
from torch_holdout._noise.gaussian_table import (
    LARGEST_TABLE_SCALE,
    batch_gaussian_error,
    gaussian_table,
)
from torch_holdout._noise.kept_tables import table_on
from torch_holdout._noise.laplace import UNIFORM_BITS
from torch_holdout._noise.streams import SeededNoise, SystemNoise
from torch_holdout.errors import InvalidArgumentError

from support.oracles.chi_square import fits
from support.oracles.host_reads import HostReads

SCALES = (1e-5, 0.3, 0.75, 1.0, 14.2, 53.7, 400.0)


def exact_law(scale, digits=60):
    """Probabilities of the magnitudes 0, 1, 2, ... far into the tail."""
    with mpmath.workdps(digits):
        variance = 2 * mpmath.mpf(scale) ** 2
        places = range(math.ceil(25 * scale) + 2)
        weights = [(2 - (k == 0)) * mpmath.exp(-(mpmath.mpf(k) ** 2) / variance) for k in places]
        total = mpmath.fsum(weights)
        return [weight / total for weight in weights]


def table_law(scale):
    numbers = [0, *map(int, gaussian_table(scale)), 2**62]
    return [mpmath.mpf(high - low) / 2**62 for low, high in itertools.pairwise(numbers)]


def variation(one, other):
    length = max(len(one), len(other))
    padded = [[*law, *[mpmath.mpf(0)] * (length - len(law))] for law in (one, other)]
    return mpmath.fsum(abs(p - q) for p, q in zip(*padded, strict=True)) / 2


@pytest.mark.parametrize("scale", SCALES)
def test_a_draw_has_its_law_up_to_the_stated_error(scale):
    """Every probability, from the numbers that decide a draw; no draws, so no false alarms."""
    with mpmath.workdps(60):
        assert variation(table_law(scale), exact_law(scale)) <= batch_gaussian_error(scale) < 1e-15
        if scale > 0.1:  # a twin whose scale is wrong by a millionth is not that law
            wrong = variation(table_law(scale * (1 + 1e-6)), exact_law(scale))
            assert wrong > 1e3 * batch_gaussian_error(scale)


@pytest.mark.parametrize("scale", SCALES)
def test_it_is_the_law_of_single_draws(scale):
    """Those have 256 bits and go twice as far: the tables differ in the last bits only."""
    single = [number >> (UNIFORM_BITS - 62) for number in blocks_of(scale).cumulative]
    table = gaussian_table(scale).tolist()
    assert all(abs(a - b) <= 2 for a, b in zip(table, single, strict=False))


def test_large_tables():
    """Rows of a large table against the normal law; and the error that is stated for it."""
    table = gaussian_table(LARGEST_TABLE_SCALE)
    assert len(table) == 925_000
    assert np.all(np.diff(table) >= 0)
    for k in (0, 10, 1234, 100_000, 400_000):
        # The sum over the integers up to k is the integral up to k + 1/2, but for 1e-11 of it.
        normal = math.erf((k + 0.5) / LARGEST_TABLE_SCALE / math.sqrt(2))
        assert int(table[k]) / 2**62 == pytest.approx(normal, rel=1e-10)
    assert 1e-13 < batch_gaussian_error(LARGEST_TABLE_SCALE) < 1.1e-13


def test_what_is_beyond_the_table_is_in_the_stated_error():
    for scale in SCALES:
        beyond = mpmath.fsum(exact_law(scale)[len(gaussian_table(scale)) + 1 :])
        assert beyond < mpmath.mpf(2) ** -63


def test_scales_without_a_table():
    assert batch_gaussian_error(0.0) == 0
    assert SystemNoise().uniforms().gaussian(0.0, (3,)).tolist() == [0, 0, 0]
    for scale in (LARGEST_TABLE_SCALE * 1.01, math.inf, math.nan, -1.0):
        with pytest.raises(InvalidArgumentError, match="Expected"):
            batch_gaussian_error(scale)
        with pytest.raises(InvalidArgumentError, match="Expected"):
            SystemNoise().uniforms().gaussian(scale, (3,))


@pytest.mark.parametrize("scale", [0.6, 5.0, 40.0])
def test_draws_follow_the_law(scale):
    """Chi-square of 200,000 draws, false alarms 1e-6, fixed seed; 5 % less noise is caught."""
    both = [float(p) for p in exact_law(scale, digits=20)]
    law = {0: both[0]}
    law |= {sign * k: p / 2 for k, p in enumerate(both) if k and p > 1e-15 for sign in (1, -1)}
    draws = SeededNoise(17).uniforms("table").gaussian(scale, (200, 1000))
    assert fits(draws.flatten().tolist(), law)
    twin = SeededNoise(17).uniforms("table").gaussian(0.95 * scale, (200, 1000))
    assert not fits(twin.flatten().tolist(), law)


def test_seeds_and_shapes():
    def draws(*scope):
        return SeededNoise(3).uniforms(*scope).gaussian(9.0, (40, 5))

    assert torch.equal(draws("a"), draws("a"))
    assert not torch.equal(draws("a"), draws("b"))
    assert draws("a").dtype == torch.int64
    assert SystemNoise().uniforms().gaussian(9.0, (0, 5)).shape == (0, 5)


def test_one_number_for_each_draw():
    from torch_holdout._noise.device import Uniforms

    reads = []

    def read(size):
        reads.append(size)
        return bytes(size)

    assert Uniforms(read).gaussian(9.0, (4, 3)).tolist() == [[0] * 3] * 4
    assert reads == [8 * 12]


def test_nothing_is_read_back():
    uniforms = SystemNoise().uniforms()
    uniforms.gaussian(9.0, (4,))
    with HostReads() as reads:
        uniforms.gaussian(9.0, (50, 10))
        assert reads.count == 0
        uniforms.gaussian(9.0, (1,)).tolist()
        assert reads.count > 0


def test_tables_of_fake_tensors_are_not_kept():
    def table(scale):
        return table_on(("gaussian", scale), gaussian_table(scale), torch.device("cpu"))

    with FakeTensorMode():
        assert type(table(8.125)) is not torch.Tensor
    assert type(table(8.125)) is torch.Tensor
    assert table(8.125) is table(8.125)
    for k in range(40):
        table(3.0 + k)
    assert table(8.125)[0] == gaussian_table(8.125)[0]
