"""Binomial tails, and the exact interval that inverts them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_holdout.bounds import kl_interval
from torch_holdout.bounds.binomial_tails import log_at_least, log_remainder
from torch_holdout.bounds.closing import exact_interval


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 10**5), st.data(), st.floats(0.01, 0.999))
def test_tails_and_slopes(trials, data, part):
    """The tail is scipy's; the slope is the beta density over the tail."""
    successes = data.draw(st.integers(1, trials))
    p = part * successes / trials
    log_tail, slope = log_at_least(successes, trials, p)
    known = stats.binom.logsf(successes - 1, trials, p)
    if known > -600:
        assert log_tail == pytest.approx(known, rel=1e-11, abs=1e-11)
        density = stats.beta.logpdf(p, successes, trials - successes + 1)
        assert math.log(slope) == pytest.approx(density - known, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("r", [-3.0, -0.5, -0.01001, -0.00999, -1e-9, 1e-9, 0.00999, 0.01001, 0.9])
def test_remainder_by_its_integral(r):
    """psi(r) is the mean of t/(1 - r t) over t in [0, 1], here by the midpoint rule."""
    steps = 20_000
    points = ((k + 0.5) / steps for k in range(steps))
    assert log_remainder(r) == pytest.approx(
        math.fsum(t / (1 - r * t) for t in points) / steps, rel=1e-6
    )


def test_the_remainder_is_smooth_where_the_series_ends():
    below, above = log_remainder(0.01 - 1e-12), log_remainder(0.01 + 1e-12)
    assert above == pytest.approx(below, rel=1e-11)


class TestExact:
    @settings(max_examples=200, deadline=None)
    @given(st.integers(1, 5000), st.data(), st.floats(1, 300))
    def test_tails_are_just_used_up(self, trials, data, c):
        successes = data.draw(st.integers(1, trials))
        low, _ = exact_interval(successes, trials, c)
        _, high = exact_interval(trials - successes, trials, c)
        assert high == pytest.approx(1 - low, abs=1e-15)
        if low > 1e-280:
            tail = stats.binom.logsf(successes - 1, trials, low)
            assert tail == pytest.approx(-c, abs=1e-6 * c)
            # scipy's own tails are right to about 1e-12.
            assert tail <= -c * (1 - 1e-11)

    @pytest.mark.parametrize("trials", [1, 2, 5, 12])
    @pytest.mark.parametrize("c", [0.8, 2.0, 5.0])
    def test_misses_at_most_as_allowed(self, trials, c):
        ends = [exact_interval(k, trials, c) for k in range(trials + 1)]
        worst = 0.0
        for truth in (k / 200 for k in range(1, 200)):
            weights = stats.binom.pmf(range(trials + 1), trials, truth)
            below = sum(w for w, end in zip(weights, ends, strict=True) if end[0] > truth)
            above = sum(w for w, end in zip(weights, ends, strict=True) if end[1] < truth)
            worst = max(worst, below, above)
            assert max(below, above) <= math.exp(-c) * (1 + 1e-12)
        assert worst > math.exp(-c) / 2

    def test_very_many_trials(self):
        """At 2^40 trials the tail is that of a normal law, but for its skewness."""
        trials = 2**40
        low, high = exact_interval(trials // 4, trials, 9.143298)
        z, deviation = -stats.norm.ppf(math.exp(-9.143298)), math.sqrt(3 / 16 / trials)
        assert (0.25 - low) / deviation == pytest.approx(z, rel=1e-5)
        assert (high - 0.25) / deviation == pytest.approx(z, rel=1e-5)

    @pytest.mark.parametrize("c", [800.0, 1e6, 1e300])
    def test_brackets_whose_failure_is_no_float(self, c):
        low, high = exact_interval(3, 10, c)
        assert 0 <= low < 1e-100
        assert high > 1 - 1e-15
        assert exact_interval(0, 10, c)[0] == 0
        low, high = exact_interval(500_000, 10**6, 800.0)
        kl = kl_interval(0.5, 800.0 / 10**6)
        assert kl[0] < low < 0.5 < high < kl[1]
