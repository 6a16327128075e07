"""Batches of integers of the discrete Laplace law, digit by digit."""

import itertools

import mpmath
import pytest
import torch
from torch_holdout._noise.device import Uniforms
from torch_holdout._noise.laplace import batch_sampler_error, digit_tables
from torch_holdout._noise.streams import SystemNoise

from support.oracles.host_reads import HostReads

SCALES = (1e-5, 0.01, 0.3, 1.0, 5.3, 53.7)


def digit_laws(scale):
    """The probability of each value of each digit, from the numbers that decide a draw."""
    for table in digit_tables(scale):
        numbers = [0, *map(int, table), 2**63]
        yield [mpmath.mpf(high - low) / 2**63 for low, high in itertools.pairwise(numbers)]


def drawn_law(scale):
    """The law of draws: the sign is the lowest bit, and turns all bits of the magnitude."""
    law = [mpmath.mpf(1)]
    for digit in digit_laws(scale):
        law = [p * q for q in digit for p in law]
    return {(code >> 1) ^ -(code & 1): p for code, p in enumerate(law)}


def exact_law(scale, numbers):
    ratio = mpmath.exp(-1 / mpmath.mpf(scale))
    return {k: (1 - ratio) / (1 + ratio) * ratio ** abs(k) for k in numbers}


def distance(one, other):
    """Half of the differences, and of what the exact law has beyond the others' numbers."""
    within = mpmath.fsum(abs(one[k] - other[k]) for k in one)
    return (within + 1 - mpmath.fsum(other.values())) / 2


@pytest.mark.parametrize("scale", SCALES)
def test_a_draw_has_its_law_up_to_the_stated_error(scale):
    """Every probability; no draws, so no false alarms."""
    with mpmath.workdps(60):
        law = drawn_law(scale)
        assert abs(mpmath.fsum(law.values()) - 1) < mpmath.mpf(10) ** -50
        assert distance(law, exact_law(scale, law)) <= batch_sampler_error(scale) < 1e-15
        if scale > 0.1:  # a twin whose scale is wrong by a millionth is not that law
            assert distance(law, exact_law(scale * (1 + 1e-6), law)) > 1e-8


@pytest.mark.parametrize("scale", [655360.0, 3.3e9])
def test_digits_of_large_numbers_have_their_laws(scale):
    """A digit's law is a geometric one that ends; of the lowest, the sign is one more bit."""
    with mpmath.workdps(60):
        place = mpmath.mpf(1)
        for digit, law in enumerate(digit_laws(scale)):
            values = len(law) // 2 if digit == 0 else len(law)
            ratio = mpmath.exp(-place / scale)
            expected = [ratio**v * (1 - ratio) / (1 - ratio**values) for v in range(values)]
            if digit == 0:
                minus = 1 / (1 + mpmath.exp(1 / mpmath.mpf(scale)))
                expected = [p * sign for p in expected for sign in (1 - minus, minus)]
            assert all(
                abs(p - q) < mpmath.mpf(2) ** -62 for p, q in zip(law, expected, strict=True)
            )
            place *= values
        assert batch_sampler_error(scale) < 1e-16


@pytest.mark.parametrize("scale", [*SCALES, 3.3e9])
def test_a_search_takes_as_many_steps_for_every_outcome(scale):
    """Of 2^w - 1 numbers, halving leaves 2^(w-1) - 1 on either side."""
    sizes = [len(table) + 1 for table in digit_tables(scale)]
    assert all(size & (size - 1) == 0 and size <= 256 for size in sizes)


def test_the_ends_of_the_uniforms():
    """The smallest number chooses the most likely value, the largest one the rarest."""

    def drawn(octet):
        words = Uniforms(lambda size: octet * size)
        return words.laplace(20.0, (2,)).tolist()

    assert drawn(b"\x00") == [0, 0]
    assert drawn(b"\xff") == [-(2**12)] * 2


def test_scale_zero_shapes_and_seeds():
    uniforms = SystemNoise().uniforms()
    assert digit_tables(0.0) == ()
    assert batch_sampler_error(0.0) == 0
    assert uniforms.laplace(0.0, (2, 3)).tolist() == [[0] * 3] * 2
    assert uniforms.laplace(9.0, (0, 5)).shape == (0, 5)
    assert uniforms.laplace(9.0, (4, 5)).dtype == torch.int64


def test_nothing_is_read_back():
    uniforms = SystemNoise().uniforms()
    with HostReads() as reads:
        uniforms.laplace(9.0, (50, 10))
        assert reads.count == 0
        uniforms.laplace(9.0, (1,)).tolist()
        assert reads.count > 0
