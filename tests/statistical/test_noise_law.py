"""The noise follows its law. Every check: 100,000 draws, false-alarm rate 1e-6, fixed seeds."""

import math
from itertools import pairwise

import pytest
import torch
from torch_holdout._noise.streams import SeededNoise, SystemNoise

from support.oracles.chi_square import fits
from support.oracles.laws import discrete_gaussian, discrete_laplace, geometric

pytestmark = pytest.mark.statistical
DRAWS = 100_000
SCALES = (0.3, 1.0, 5.3, 60.0)


def laplace_draws(scale, seed=1, draws=DRAWS):
    stream = SeededNoise(seed).stream("law", scale)
    return [stream.laplace(scale) for _ in range(draws)]


@pytest.mark.parametrize("scale", SCALES)
def test_laplace_matches_enumeration(scale):
    assert fits(laplace_draws(scale), discrete_laplace(scale))


def test_laplace_from_system_entropy_matches():
    # The one unseeded test: it fails by chance once in a million runs.
    stream = SystemNoise().stream()
    assert fits([stream.laplace(5.3) for _ in range(20_000)], discrete_laplace(5.3))


@pytest.mark.parametrize("scale", SCALES)
def test_five_percent_too_little_noise_is_caught(scale):
    assert not fits(
        laplace_draws(0.95 * scale, draws=400_000 if scale < 1 else DRAWS), discrete_laplace(scale)
    )


@pytest.mark.parametrize("scale", SCALES)
def test_one_sided_noise_matches_enumeration(scale):
    stream = SeededNoise(1).stream("one-sided", scale)
    assert fits([stream.geometric(scale) for _ in range(DRAWS)], geometric(scale))
    assert not fits([stream.geometric(0.95 * scale) for _ in range(DRAWS)], geometric(scale))


@pytest.mark.parametrize("scale", SCALES)
def test_device_laplace_matches_enumeration(scale):
    noise = SeededNoise(3).uniforms()
    assert fits(noise.laplace(scale, (DRAWS,)).tolist(), discrete_laplace(scale))
    assert not fits(noise.laplace(0.9 * scale, (4 * DRAWS,)).tolist(), discrete_laplace(scale))


def test_batches_of_normals_match_the_law():
    """Kolmogorov-Smirnov against the exact law: false-alarm rate 1e-6 (DKW); 3 % is caught."""
    draws = 200_000
    values = SeededNoise(11).uniforms("normal").normal((draws,)).sort().values
    ranks = (torch.arange(draws) + 0.5) / draws
    allowed = math.sqrt(math.log(2 / 1e-6) / (2 * draws)) + 0.5 / draws
    assert (torch.special.ndtr(values) - ranks).abs().max() <= allowed
    assert (torch.special.ndtr(1.03 * values) - ranks).abs().max() > allowed
    assert values.abs().max() > 3.5


def test_uniforms_fill_every_bit():
    """Each of 63 bits is a fair coin: all within 6 standard deviations (rate below 1e-6)."""
    words = SeededNoise(1).uniforms().draw((50_000,))
    assert int(words.min()) >= 0
    ones = torch.stack([(words >> bit & 1).double().mean() for bit in range(63)])
    assert (ones - 0.5).abs().max() < 6 * 0.5 / math.sqrt(50_000)


def test_wide_gaussian_blocks_match_enumeration():
    """A scale whose blocks have several numbers, pooled: 20,000 draws; 7 % too wide is caught."""
    scale, draws = 700.0, 20_000
    stream = SeededNoise(5).stream("wide")

    def pooled(law):
        bins = {}
        for k, p in law.items():
            bins[round(k / 100)] = bins.get(round(k / 100), 0.0) + p
        return bins

    found = [round(stream.gaussian(scale) / 100) for _ in range(draws)]
    assert fits(found, pooled(discrete_gaussian(scale)))
    assert not fits(found, pooled(discrete_gaussian(1.07 * scale)))


@pytest.mark.parametrize("scale", [0.4, 1.0, 7.5])
def test_gaussian_matches_enumeration(scale):
    stream = SeededNoise(5).stream("gauss")
    draws = [stream.gaussian(scale) for _ in range(30_000)]
    assert fits(draws, discrete_gaussian(scale))
    assert not fits(draws, discrete_gaussian(1.07 * scale))


def test_laplace_agrees_with_opendp():
    """Two independent samplers, one law: pooled in bins, chi-square of homogeneity."""
    import opendp.prelude as dp
    from scipy import stats

    dp.enable_features("contrib")
    scale, draws = 3.0, 20_000
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    oracle = dp.m.make_laplace(*space, scale=scale)
    theirs = [oracle(0) for _ in range(draws)]
    ours = laplace_draws(scale, draws=draws)

    def table(samples):
        clipped = [min(max(s, -12), 12) for s in samples]
        return [clipped.count(k) for k in range(-12, 13)]

    assert stats.chi2_contingency([table(ours), table(theirs)]).pvalue >= 1e-6
    broken = laplace_draws(0.85 * scale, draws=draws)
    assert stats.chi2_contingency([table(broken), table(theirs)]).pvalue < 1e-6


def test_draws_of_one_stream_are_independent():
    """Signs of consecutive draws: 100,000 pairs, false-alarm rate 1e-6 (|z| < 4.9)."""
    draws = laplace_draws(50.0)
    agree = sum((a > 0) == (b > 0) for a, b in pairwise(draws))
    assert abs(agree - len(draws) / 2) < 4.9 * (len(draws) / 4) ** 0.5
    reused = [d for draw in draws[: len(draws) // 2] for d in (draw, draw)]
    agree = sum((a > 0) == (b > 0) for a, b in pairwise(reused))
    assert abs(agree - len(draws) / 2) > 4.9 * (len(draws) / 4) ** 0.5
