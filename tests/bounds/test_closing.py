"""Intervals after closing: the published numbers, and exact probabilities of missing."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_holdout.bounds import binary_kl, kl_interval
from torch_holdout.bounds.closing import (
    closing_interval,
    combined_interval,
    exact_interval,
    moments_interval,
)
from torch_holdout.bounds.sealed_runs import evaluation_bracket
from torch_holdout.errors import InvalidArgumentError

FINE = 2**30


def bracket(evaluation, evaluations):
    return evaluation_bracket(
        failure=0.05, run=1, runs=1, evaluation=evaluation, evaluations=evaluations, statistics=1
    )


class TestNumbers:
    def test_exact(self):
        low, high = exact_interval(500, 10_000, 9.143298)
        assert (round(low, 6), round(high, 6)) == (0.042308, 0.058551)

    @pytest.mark.parametrize(
        ("units", "evaluations", "widths"),
        [
            (700, 200, (0.0703, 0.0565, 0.0314)),
            (2000, 200, (0.0416, 0.0333, 0.0183)),
            (10_000, 50, (0.0167, 0.0134, 0.0073)),
            (10_000, 200, (0.0186, 0.0149, 0.0081)),
            (10_000, 1000, (0.0205, 0.0164, 0.0090)),
            (50_000, 200, (0.0083, 0.0066, 0.0036)),
        ],
    )
    def test_half_widths_of_error_rates(self, units, evaluations, widths):
        c = bracket(evaluations, evaluations)
        for rate, width in zip((2, 5, 20), widths, strict=True):
            low, high = exact_interval(units // rate, units, c)
            assert (high - low) / 2 == pytest.approx(width, rel=0.01)

    def test_moments(self):
        """Mean .2 and variance .04; six decimals, the last by at most one."""
        sums = (2000 * FINE, 800 * FINE**2, 10_000, FINE)
        low, high = moments_interval(*sums, 9.142722)
        assert (round(low - 0.2, 6), round(high - 0.2, 6)) == (-0.009518, 0.009986)
        low, high = combined_interval(*sums, 9.142722)
        assert low - 0.2 == pytest.approx(-0.009566, abs=1e-6)
        assert high - 0.2 == pytest.approx(0.010040, abs=1e-6)
        low, high = combined_interval(*sums, 9.143298)
        assert (round(low - 0.2, 6), round(high - 0.2, 6)) == (-0.009566, 0.010040)

    @pytest.mark.parametrize(("rate", "expected"), [(0.5, 0.0226), (0.2, 0.0219), (0.05, 0.0206)])
    def test_the_best_of_two_hundred_coins(self, rate, expected):
        """The exact probability that the luckiest error rate is certified to be too small."""
        units = 10_000

        def missed(evaluation):
            c = bracket(evaluation, 200)
            inside, outside = round(units * rate), 0
            while inside - outside > 1:
                middle = (inside + outside) // 2
                if exact_interval(middle, units, c)[1] < rate:
                    outside = middle
                else:
                    inside = middle
            return stats.binom.cdf(outside, units, rate)

        probability = 1 - math.prod(1 - missed(i) for i in range(1, 201))
        assert round(probability, 4) == expected
        # Twin: each coin with the interval of one fresh query.
        alone = exact_interval(round(units * rate), units, math.log(40))[1] - rate
        fresh = stats.binom.cdf(math.floor(units * (rate - alone)), units, rate)
        assert 1 - (1 - fresh) ** 200 > 0.5


def stakes(c, units, mu):
    grid = [math.sqrt(2 * c / units) / (0.5 * 2 ** (-k / 2)) for k in range(10)]
    return [min(stake, 0.999 / mu) for stake in grid]


def psi(r):
    if r < 1e-3:  # the difference would lose its digits
        return math.fsum(r**k / (k + 2) for k in range(8))
    return (-math.log(1 - r) - r) / r**2


def half(_):
    """A twin of psi: the variance alone, without what is beyond the second order."""
    return 0.5


def wealth(values, counts, mu, c, *, remainder=psi, combine=np.mean):
    """K(mu) from the values themselves, for the bets that their mean is above mu."""
    pairs = list(zip(values, counts, strict=True))
    bets = []
    for stake in stakes(c, sum(counts), mu):
        gain = stake * math.fsum(k * (x - mu) for x, k in pairs)
        loss = remainder(stake * mu) * stake**2 * math.fsum(k * (x - mu) ** 2 for x, k in pairs)
        bets.append(math.exp(gain - loss))
    return combine(bets)


def chernoff(values, counts, mu, c):
    """The variable of mean at most 1 that reaches e^c where the KL interval misses mu."""
    units = sum(counts)
    low, high = mu, 1 - 1e-12
    for _ in range(60):  # the mean from which on n kl(mean || mu) is c
        middle = (low + high) / 2
        low, high = (middle, high) if units * binary_kl(middle, mu) < c else (low, middle)
    tilt = math.log(high / (1 - high) * (1 - mu) / mu)
    total = math.fsum(x * k for x, k in zip(values, counts, strict=True))
    return math.exp(tilt * total - units * math.log(1 - mu + mu * math.exp(tilt)))


def samples(weights, units):
    """How often each value is drawn, for all samples, and the probability of that."""
    for cuts in itertools.combinations(range(units + len(weights) - 1), len(weights) - 1):
        ends = (-1, *cuts, units + len(weights) - 1)
        counts = [after - before - 1 for before, after in itertools.pairwise(ends)]
        ways = math.lgamma(units + 1) - sum(math.lgamma(k + 1) for k in counts)
        powers = sum(k * math.log(w) for k, w in zip(counts, weights, strict=True))
        yield counts, math.exp(ways + powers)


def expected(values, weights):
    return math.fsum(x * w for x, w in zip(values, weights, strict=True))


# Levels of 20 and their weights: rare zeros, rare ones, near-binary, spread, close together.
LAWS = {
    "rare zeros": ((0, 16), (0.0145, 0.9855)),
    "some zeros": ((0, 3), (0.066, 0.934)),
    "rare ones": ((4, 20), (0.97, 0.03)),
    "coin": ((0, 20), (0.1, 0.9)),
    "rare successes": ((0, 20), (0.9998, 0.0002)),
    "spread": ((0, 10, 20), (0.3, 0.4, 0.3)),
    "near": ((9, 10, 12), (0.2, 0.5, 0.3)),
    "rare zeros and ones": ((0, 16, 20), (0.02, 0.96, 0.02)),
}
CASES = [
    (name, units, c)
    for name in LAWS
    for units, c in ((2, 0.02), (6, 0.5), (20, 0.5), (20, 2.0), (60, 5.0))
    if units <= 20 or len(LAWS[name][0]) == 2
]


class TestMoments:
    @pytest.mark.parametrize(("name", "units", "c"), CASES)
    def test_misses_at_most_as_allowed(self, name, units, c):
        """Each side misses with probability at most e^-c, whatever the law of the values."""
        levels, weights = LAWS[name]
        truth = expected(levels, weights) / 20
        missed = {form: [0.0, 0.0] for form in (moments_interval, combined_interval)}
        for counts, chance in samples(weights, units):
            total = sum(x * k for x, k in zip(levels, counts, strict=True))
            squares = sum(x * x * k for x, k in zip(levels, counts, strict=True))
            for form, sides in missed.items():
                low, high = form(total, squares, units, 20, c)
                sides[0] += chance * (low > truth)
                sides[1] += chance * (high < truth)
        for sides in missed.values():
            assert max(sides) <= math.exp(-c)
        if (name, units) == ("rare zeros", 2):  # this check can see a miss
            assert missed[moments_interval][0] > 0.98 * math.exp(-c)

    @pytest.mark.parametrize(("name", "units", "c"), CASES)
    def test_the_bets_gain_nothing_on_average(self, name, units, c):
        """E K(P) <= 1, exactly, and so is that of the registered mixture with KL.

        Markov's inequality for it is the whole proof, so this holds for every c at once.
        """
        levels, weights = LAWS[name]
        for values in ([x / 20 for x in levels], [1 - x / 20 for x in levels]):
            mu = expected(values, weights)
            alone = mixed = 0.0
            for counts, chance in samples(weights, units):
                moments, kl = wealth(values, counts, mu, c), chernoff(values, counts, mu, c)
                alone += chance * moments
                mixed += chance * (0.9 * moments + 0.1 * kl)
            assert alone <= 1 + 1e-12
            assert mixed <= 1 + 1e-9

    def test_the_narrower_of_the_two_is_caught(self):
        """Without a split of the failure the larger of the two variables gains: 1.66 for 1."""
        levels, weights = LAWS["rare successes"]
        values, c = [x / 20 for x in levels], 5.0
        mu = expected(values, weights)
        gain = math.fsum(
            chance * max(wealth(values, counts, mu, c), chernoff(values, counts, mu, c))
            for counts, chance in samples(weights, 60)
        )
        assert gain > 1.6

    def test_the_best_bet_in_hindsight_is_caught(self):
        levels, weights = LAWS["some zeros"]
        values, c = [x / 20 for x in levels], 0.5
        mu = expected(values, weights)
        gain = math.fsum(
            chance * wealth(values, counts, mu, c, combine=max)
            for counts, chance in samples(weights, 60)
        )
        assert gain > 1.5

    def test_bets_on_the_variance_alone_miss_more_than_allowed(self):
        """Zeros of probability .017 among values of .8: too few of them are certified away."""
        values, weights, units, c = (0.0, 0.8), (0.017, 0.983), 2000, 20.0
        mu, missed = expected(values, weights), {psi: 0.0, half: 0.0}
        for counts, chance in samples(weights, units):
            if chance > 1e-30:
                for remainder in missed:
                    reached = wealth(values, counts, mu, c, remainder=remainder) >= math.exp(c)
                    missed[remainder] += chance * reached
        assert missed[psi] <= math.exp(-c)
        assert missed[half] > 2 * math.exp(-c)

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.integers(0, 50), min_size=2, max_size=60), st.floats(0.05, 12))
    def test_ends_are_where_the_bets_say(self, levels, c):
        """Each end is rejected by the bets on the values themselves; a little inside is not."""
        units, values = len(levels), [x / 50 for x in levels]
        sums = (sum(levels), sum(x * x for x in levels), units, 50, c)
        low, high = moments_interval(*sums)
        mean, ones = sum(values) / units, [1] * units
        for end, xs in ((low, values), (1 - high, [1 - x for x in values])):
            if end > 0:
                inside = end + 1e-6 * (sum(xs) / units - end)
                assert math.log(wealth(xs, ones, end, c)) >= c - 1e-9
                assert math.log(wealth(xs, ones, inside, c)) < c
        assert low <= mean <= high


def levels_of(draw_total, spread, units, resolution):
    """Sums of levels that exist: a part of the units at the top level, the others alike."""
    high, low = round(draw_total * units), round(spread * resolution)
    total = high * resolution + (units - high) * low
    return total, high * resolution**2 + (units - high) * low**2


sums = st.tuples(
    st.floats(0, 1), st.floats(0, 1), st.integers(1, 2**40), st.sampled_from([1, 7, 1000, 2**20])
)


class TestForms:
    @settings(max_examples=150, deadline=None)
    @given(sums, st.floats(1, 40), st.floats(1, 40), st.sampled_from(["mean", "blocks"]))
    def test_wider_for_a_larger_bracket_and_around_the_mean(self, facts, first, second, kind):
        """For brackets from 1 on: the moments' bets move with c, and below .14 that can show."""
        units, resolution = facts[2:]
        total, squares = levels_of(*facts)
        given = {"kind": kind, "total": total, "squares": squares, "units": units}
        smaller, larger = sorted((first, second))
        narrow = closing_interval(**given, resolution=resolution, bracket=smaller)
        wide = closing_interval(**given, resolution=resolution, bracket=larger)
        assert 0 <= wide[0] <= narrow[0] + 1e-11
        assert narrow[1] - 1e-11 <= wide[1] <= 1
        assert narrow[0] <= total / (units * resolution) <= narrow[1]

    @settings(max_examples=100, deadline=None)
    @given(st.integers(1, 2**40), st.floats(0, 1), st.floats(1, 40), st.floats(1, 40))
    def test_exact_is_wider_for_a_larger_bracket(self, units, mean, first, second):
        successes = round(mean * units)
        smaller, larger = sorted((first, second))
        narrow = exact_interval(successes, units, smaller)
        wide = exact_interval(successes, units, larger)
        assert 0 <= wide[0] <= narrow[0] + 1e-11
        assert narrow[0] <= successes / units <= narrow[1]
        assert narrow[1] - 1e-11 <= wide[1] <= 1

    @settings(max_examples=100, deadline=None)
    @given(sums, st.floats(0, 40))
    def test_the_sides_mirror_each_other(self, facts, c):
        units, resolution = facts[2:]
        total, squares = levels_of(*facts)
        span = units * resolution
        low, high = moments_interval(total, squares, units, resolution, c)
        mirrored = resolution * (span - 2 * total) + squares
        other = moments_interval(span - total, mirrored, units, resolution, c)
        assert other == pytest.approx((1 - high, 1 - low), abs=1e-12)

    @pytest.mark.parametrize("units", [1, 2, 3, 1000, 2**40])
    @pytest.mark.parametrize("kind", ["zero_one", "mean", "blocks"])
    def test_all_or_nothing(self, units, kind):
        facts = {"kind": kind, "units": units, "resolution": 10}
        nothing = closing_interval(total=0, squares=0, bracket=9.0, **facts)
        whole = closing_interval(total=10 * units, squares=100 * units, bracket=9.0, **facts)
        assert nothing[0] == 0
        assert whole[1] == 1
        rounding = 0.05 if kind != "zero_one" else 0.0
        edge = -math.expm1(-9 / units) + rounding
        assert min(1.0, edge) <= nothing[1] + 1e-12
        assert nothing[1] <= min(1.0, -math.expm1(-(9 + math.log(10)) / units) + rounding + 1e-9)
        assert whole[0] == pytest.approx(1 - nothing[1], abs=1e-9)

    @pytest.mark.parametrize("c", [1e3, 1e12, 1e308, math.inf])
    @pytest.mark.parametrize("kind", ["mean", "blocks"])
    def test_huge_brackets(self, c, kind):
        facts = {"units": 10, "resolution": 10, "bracket": c}
        low, high = closing_interval(kind=kind, total=50, squares=250, **facts)
        assert (low, high) == (0.0, 1.0)

    def test_values_that_are_all_alike(self):
        """Without variance the moments are far inside KL."""
        facts = {"total": 3 * 10**6, "units": 10**5, "resolution": 100, "bracket": 9.0}
        low, high = closing_interval(kind="mean", squares=9 * 10**7, **facts)
        plain = closing_interval(kind="mean", squares=None, **facts)
        assert low < 0.3 < high
        assert high - low < 0.01 + 1.2e-3  # rounding to levels is .01 of it
        assert plain[1] - plain[0] > 0.01 + 1e-2

    def test_kinds(self):
        facts = {"total": 2000, "units": 100, "resolution": 100, "bracket": 5.0}
        by_kl = kl_interval(0.2, 0.05)
        widened = pytest.approx((by_kl[0] - 0.005, by_kl[1] + 0.005), abs=1e-12)
        assert closing_interval(kind="blocks", squares=None, **facts) == widened
        assert closing_interval(kind="mean", squares=None, **facts) == widened
        exact = closing_interval(kind="zero_one", squares=200_000, **facts)
        assert exact == exact_interval(20, 100, 5.0)
        combined = closing_interval(kind="mean", squares=60_000, **facts)
        assert combined == combined_interval(2000, 60_000, 100, 100, 5.0)


@pytest.mark.parametrize(
    "change",
    [
        {"total": 7250},  # not a multiple of the resolution
        {"squares": 719_999},  # not all at the ends
        {"squares": None},
        {"total": 7250, "squares": 725_000},
        {"squares": 720_001},
        {"total": 10_001},
        {"total": -1},
        {"squares": -1},
        {"squares": 518_399, "kind": "mean"},  # less than the mean's own square
        {"kind": "soft"},
        {"units": 0},
        {"resolution": 0},
        {"bracket": -1.0},
        {"bracket": float("nan")},
        {"total": 7200.0},
        {"total": True},
    ],
)
def test_sums_that_cannot_be_are_refused_and_not_shown(change):
    facts = {"kind": "zero_one", "total": 7200, "squares": 720_000, "units": 100}
    facts |= {"resolution": 100, "bracket": 9.0}
    closing_interval(**facts)
    with pytest.raises(InvalidArgumentError) as caught:
        closing_interval(**facts | change)
    for secret in ("72", "719", "518"):
        assert secret not in str(caught.value)
