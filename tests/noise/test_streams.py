import random

import numpy as np
import pytest
import torch
from torch_holdout._noise.laplace import UNIFORM_BITS, bit_thresholds, sampler_error
from torch_holdout._noise.streams import NoiseStream, SeededNoise, SystemNoise, fresh_secret
from torch_holdout.errors import InvalidArgumentError


def test_every_draw_does_the_same_work():
    """The bytes read do not depend on the outcome, only on the scale."""
    reads = []

    def read(size):
        reads.append(size)
        return fresh_secret(size)

    stream = NoiseStream(read)
    for _ in range(200):
        stream.laplace(37.0)
    assert len(set(reads)) == 1
    assert len(reads) == 400


def test_bit_probabilities_are_exact_to_the_last_bit():
    from fractions import Fraction

    import mpmath

    mpmath.mp.dps = 150
    for scale in (0.5, 3.0, 1.3e6):
        for bit, threshold in enumerate(bit_thresholds(scale)):
            exact = mpmath.mpf(2) ** UNIFORM_BITS / (1 + mpmath.exp(mpmath.mpf(2**bit) / scale))
            assert abs(Fraction(threshold) - Fraction(int(mpmath.floor(exact)))) <= 1


def test_bits_left_out_are_practically_never_one():
    import math

    for scale in (0.01, 0.5, 3.0, 1.3e6, 1e12):
        assert 2 ** len(bit_thresholds(scale)) / scale >= UNIFORM_BITS * math.log(2)
        assert sampler_error(scale) < 1e-74


def test_zero_scale_is_no_noise():
    stream = SystemNoise().stream()
    assert stream.laplace(0.0) == stream.gaussian(0.0) == 0
    assert sampler_error(0.0) == 0


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_bad_scales_are_refused(scale):
    for draw in (SystemNoise().stream().laplace, SystemNoise().stream().gaussian):
        with pytest.raises(InvalidArgumentError, match="scale"):
            draw(scale)
    with pytest.raises(InvalidArgumentError, match="scale"):
        SystemNoise().uniforms().laplace(scale, (2,))


def test_global_generators_are_neither_read_nor_changed():
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    first = [SystemNoise().stream().laplace(1e6) for _ in range(20)]
    SystemNoise().uniforms().laplace(10.0, (5,))
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    second = [SystemNoise().stream().laplace(1e6) for _ in range(20)]
    assert first != second
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert (before[2] == np.random.get_state()[1]).all()


def test_seeded_streams_repeat_and_never_share():
    def draws(seed, *key):
        stream = SeededNoise(seed).stream(*key)
        return [stream.laplace(1e9) for _ in range(4)]

    assert draws(1, "val", 3) == draws(1, "val", 3)
    streams = [draws(1, "val", 3), draws(1, "val", 4), draws(2, "val", 3), draws(1, "val3", "")]
    flat = [value for stream in streams for value in stream]
    assert len(set(flat)) == len(flat)


def test_batches_are_reproducible_from_a_seed():
    def draw():
        return SeededNoise(9).uniforms("a").laplace(100.0, (3, 4))

    assert torch.equal(draw(), draw())


@pytest.mark.parametrize("seed", ["1", None, 1.5, True])
def test_seed_must_be_an_integer(seed):
    with pytest.raises(InvalidArgumentError, match="seed"):
        SeededNoise(seed)
