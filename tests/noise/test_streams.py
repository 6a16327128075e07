import random

import numpy as np
import pytest
import torch
from torch_holdout._noise.gaussian import Blocks, blocks_of, gaussian_error
from torch_holdout._noise.laplace import (
    UNIFORM_BITS,
    bit_thresholds,
    geometric_error,
    sampler_error,
)
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
    reads.clear()
    assert len({stream.geometric(37.0) for _ in range(200)}) > 1
    assert reads == reads[:1] * 200
    for scale in (0.4, 37.0, 1e6):
        reads.clear()
        drawn = {stream.gaussian(scale) for _ in range(100)}
        assert len(drawn) > 1
        assert reads == reads[:1] * 100


def test_every_gaussian_draw_takes_the_same_steps(monkeypatch):
    """As many candidates are weighed whichever is taken: the first, a later one, or none."""
    calls, weigh = [], Blocks.weight

    def counted(blocks, start, magnitude):
        calls.append(magnitude)
        return weigh(blocks, start, magnitude)

    monkeypatch.setattr(Blocks, "weight", counted)
    rounds = blocks_of(1e6).rounds

    def drawn(rejected):
        """Coins that reject the first candidates, all of the block from 1,000,000 on."""
        blocks = blocks_of(1e6)
        block = next(b for b in range(9000) if blocks.start(b) > 10**6)
        choice = blocks.cumulative[block - 1].to_bytes(32, "little")
        parts = [
            choice + bytes([k + 1, 0]) + (b"\xff" if k < rejected else b"\x00") * 32
            for k in range(rounds)
        ]
        calls.clear()
        result = NoiseStream(lambda count: (b"".join(parts) + b"\x00")[:count]).gaussian(1e6)
        assert len(calls) == rounds
        return result - blocks.start(block)

    assert [drawn(rejected) for rejected in (0, 1, 7, 30)] == [1, 2, 8, 31]
    assert drawn(31) < 0  # none was taken: 0, which has a probability below 2^-256


def implied_law(scale):
    """The law of a draw, from its table: each magnitude's share of what is accepted."""
    import mpmath

    mpmath.mp.dps = 100
    blocks = blocks_of(scale)
    accepted, before = [], 0
    for block, upto in enumerate(blocks.cumulative):
        start, width = blocks.start(block), blocks.width if block else 0
        each = mpmath.mpf(upto - before) / 2**UNIFORM_BITS / 2**width
        for magnitude in range(start, start + 2**width):
            weight = mpmath.mpf(blocks.weight(start, magnitude)) / 2**UNIFORM_BITS
            accepted.append(each * weight)
        before = upto
    whole = mpmath.fsum(accepted)
    return [share / whole for share in accepted], 1 - whole


@pytest.mark.parametrize("scale", [1e-5, 0.3, 1.0, 53.7, 431.0, 500.25])
def test_a_gaussian_draw_has_exactly_its_law(scale):
    """Every probability, from the numbers that decide a draw; no draws, so no false alarms."""
    import mpmath

    law, rejected = implied_law(scale)
    exact = [
        mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(scale) ** 2)) for k in range(len(law))
    ]
    whole = 2 * mpmath.fsum(exact) - 1
    wrong = [
        abs(p - w * (1 if k == 0 else 2) / whole)
        for k, (p, w) in enumerate(zip(law, exact, strict=True))
    ]
    assert mpmath.fsum(wrong) / 2 < gaussian_error(scale) < 1e-70
    assert rejected ** blocks_of(scale).rounds < mpmath.mpf(2) ** -UNIFORM_BITS
    closer = [
        mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(scale * 1.0001) ** 2))
        for k in range(len(law))
    ]
    if scale > 0.1:  # a twin with another scale is not that law
        twin = 2 * mpmath.fsum(closer) - 1
        assert abs(law[1] - 2 * closer[1] / twin) > 1e-9


def test_gaussian_blocks_reach_far_enough():
    """Beyond the last block is less than the error that is stated."""
    for scale in (0.2, 431.0, 1e6, 2.0**60):
        blocks = blocks_of(scale)
        last = blocks.start(len(blocks.cumulative) - 1) + 2**blocks.width
        assert last >= 19 * scale
        assert blocks.cumulative[-1] == 2**UNIFORM_BITS
        assert list(blocks.cumulative) == sorted(blocks.cumulative)


def test_bit_probabilities_are_exact_to_the_last_bit():
    from fractions import Fraction

    import mpmath

    mpmath.mp.dps = 150
    for scale in (0.5, 3.0, 1.3e6):
        for bit, threshold in enumerate(bit_thresholds(scale)):
            exact = mpmath.mpf(2) ** UNIFORM_BITS / (1 + mpmath.exp(mpmath.mpf(2**bit) / scale))
            assert abs(Fraction(threshold) - Fraction(int(mpmath.floor(exact)))) <= 1


@pytest.mark.parametrize("scale", [1e-5, 0.3, 1.0, 53.7])
def test_a_geometric_draw_has_exactly_its_law(scale):
    """Every probability, from the numbers that decide a draw's bits; no draws, no false alarms."""
    import mpmath

    mpmath.mp.dps = 150
    law = [mpmath.mpf(1)]
    for threshold in bit_thresholds(scale):
        one = mpmath.mpf(threshold) / 2**UNIFORM_BITS
        law = [p * (1 - one) for p in law] + [p * one for p in law]

    def distance(other):
        ratio = mpmath.exp(-1 / mpmath.mpf(other))
        within = [abs(p - (1 - ratio) * ratio**k) for k, p in enumerate(law)]
        return (mpmath.fsum(within) + ratio ** len(law)) / 2

    assert distance(scale) < geometric_error(scale) < 1e-74
    if scale > 0.1:  # a twin with another scale is not that law
        assert distance(scale * 1.0001) > 1e-6


def test_bits_left_out_are_practically_never_one():
    import math

    for scale in (0.01, 0.5, 3.0, 1.3e6, 1e12):
        assert 2 ** len(bit_thresholds(scale)) / scale >= UNIFORM_BITS * math.log(2)
        assert sampler_error(scale) == 2 * geometric_error(scale) < 1e-74


def test_zero_scale_is_no_noise():
    stream = SystemNoise().stream()
    assert stream.laplace(0.0) == stream.gaussian(0.0) == stream.geometric(0.0) == 0
    assert sampler_error(0.0) == gaussian_error(0.0) == geometric_error(0.0) == 0


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_bad_scales_are_refused(scale):
    stream = SystemNoise().stream()
    for draw in (stream.laplace, stream.gaussian, stream.geometric):
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
