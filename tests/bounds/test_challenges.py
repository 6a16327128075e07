"""Paired tests: exact tails, the published table of power, and exact probabilities of a keep."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch_holdout.bounds.challenges import (
    challenge_bracket,
    gain_low,
    sign_test,
    sign_test_keeps,
    smallest_keep,
)
from torch_holdout.bounds.closing import moments_interval
from torch_holdout.errors import InvalidArgumentError

LEVELS = 65536


def kt(ones, zeros):
    """Krichevsky and Trofimov's law, bit after bit."""
    price = 0.0
    for before in range(ones):
        price -= math.log((before + 0.5) / (before + 1))
    for before in range(zeros):
        price -= math.log((before + 0.5) / (ones + before + 1))
    return price


class TestBracket:
    def test_it_is_the_failure_the_share_and_what_was_said(self):
        share = 0.9 / 60 + 0.1 / (7 * 8)
        expected = math.log(20) - math.log(share) + 12.5
        assert challenge_bracket(run=7, runs=60, said=12.5) == pytest.approx(expected, rel=1e-14)

    def test_shares_of_all_challenges_sum_to_at_most_the_failure(self):
        spent = (math.exp(-challenge_bracket(run=k, runs=20, said=0.0)) for k in range(1, 3000))
        assert 0.049 < math.fsum(spent) <= 0.05

    @pytest.mark.parametrize(
        "wrong", [{"run": 0}, {"runs": 0}, {"said": -0.1}, {"said": math.nan}, {"failure": 0.0}]
    )
    def test_wrong_arguments_are_refused(self, wrong):
        with pytest.raises(InvalidArgumentError):
            challenge_bracket(**{"run": 1, "runs": 5, "said": 0.0} | wrong)


class TestSignTest:
    @pytest.mark.parametrize("differing", [1, 2, 7, 40])
    def test_it_is_the_exact_tail_of_a_coin(self, differing):
        for wins in range(differing + 1):
            counts = (math.comb(differing, k) for k in range(wins, differing + 1))
            exact = Fraction(sum(counts), 2**differing)
            losses = differing - wins
            found = sign_test(wins, losses)
            if wins > losses:
                assert found == pytest.approx(math.log(exact), abs=1e-12)
            else:
                assert found >= math.log(exact)  # rounded up to 1: no such challenger is kept

    @settings(max_examples=60, deadline=None)
    @given(st.integers(1, 200_000), st.floats(0.5, 0.6))
    def test_it_agrees_with_scipy(self, differing, rate):
        wins = min(differing, math.ceil(differing * rate) + 1)
        expected = stats.binom.logsf(wins - 1, differing, 0.5)
        if wins > differing - wins and expected > -600:
            assert sign_test(wins, differing - wins) == pytest.approx(expected, rel=1e-7, abs=1e-9)

    @pytest.mark.parametrize(("wins", "losses"), [(0, 0), (3, 3), (3, 9)])
    def test_nothing_is_kept_without_more_wins(self, wins, losses):
        assert not sign_test_keeps(wins, losses, 0.0)

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 3000), st.floats(0.5, 40))
    def test_the_smallest_keep_is_kept_and_one_less_is_not(self, differing, bracket):
        wins = smallest_keep(differing, bracket)
        if wins is None:
            assert not sign_test_keeps(differing, 0, bracket)
        else:
            assert sign_test_keeps(wins, differing - wins, bracket)
            assert not sign_test_keeps(wins - 1, differing - wins + 1, bracket)

    @pytest.mark.parametrize("better", [0.0, 0.01])
    @pytest.mark.parametrize("bracket", [2.0, 4.0])
    def test_a_challenger_that_is_not_better_is_kept_with_at_most_its_share(self, bracket, better):
        """Over all 60 examples; the twin is better by a little, and is kept more often."""
        size, wins_at, losses_at = 60, 0.1 + better * 10, 0.1
        kept = 0.0
        for differing in range(size + 1):
            fewest = smallest_keep(differing, bracket)
            if fewest is not None:
                some = stats.binom.pmf(differing, size, wins_at + losses_at)
                rate = wins_at / (wins_at + losses_at)
                kept += some * stats.binom.sf(fewest - 1, differing, rate)
        assert (kept <= math.exp(-bracket)) == (better == 0.0)


@pytest.mark.parametrize(
    ("size", "challenges", "keeps", "gains"),
    [
        (1_000, 20, 2, (None, 0.034, 0.050, 0.070)),
        (10_000, 50, 5, (0.010, 0.015, 0.021, 0.030)),
        (10_000, 200, 10, (0.013, 0.022, 0.031, 0.044)),
        (100_000, 200, 10, (0.004, 0.007, 0.010, 0.014)),
    ],
)
def test_the_published_power(size, challenges, keeps, gains):
    """The smallest observed gain that the last of some challenges is kept for."""
    said = kt(keeps, challenges - 1 - keeps)
    bracket = challenge_bracket(run=challenges + 1, runs=challenges + 1, said=said)
    found = []
    for disagreement in (0.02, 0.05, 0.1, 0.2):
        differing = round(size * disagreement)
        wins = smallest_keep(differing, bracket)
        found.append(None if wins is None else round((2 * wins - differing) / size, 3))
    assert tuple(found) == gains


class TestGain:
    def test_it_is_the_lower_end_of_moments_on_shifted_differences(self):
        gains = [700, -300, 900, 100, 400] * 400
        total, squares = sum(gains), sum(gain**2 for gain in gains)
        shifted = [gain + 1000 for gain in gains]
        low, _ = moments_interval(sum(shifted), sum(s * s for s in shifted), 2000, 2000, 6.0)
        found = gain_low(total, squares, 2000, 1000, 6.0)
        assert found == pytest.approx(2 * low - 1 - 1 / 1000, abs=1e-12)
        assert found < total / 2000 / 1000

    @pytest.mark.parametrize("better", [0.0, 0.2])
    @pytest.mark.parametrize("bracket", [2.0, 4.0])
    def test_a_challenger_that_is_not_better_is_kept_with_at_most_its_share(self, bracket, better):
        """Gains of the whole range, nothing or minus it, over all outcomes of 120 examples."""
        size, levels = 120, 1
        rates = (0.15 + better, 0.15)
        kept = 0.0
        for differing in range(size + 1):
            some = stats.binom.pmf(differing, size, sum(rates))
            for wins in range(differing + 1) if some > 1e-9 else ():
                # Quantisation would forbid every keep with one level: it is added back.
                low = gain_low(2 * wins - differing, differing, size, levels, bracket)
                if low + 1 / levels >= 0:
                    rate = rates[0] / sum(rates)
                    kept += some * stats.binom.sf(wins - 1, differing, rate)
                    break
        assert (kept <= math.exp(-bracket)) == (better == 0.0)

    def test_rounding_to_levels_is_taken_off(self):
        """Values just below one half of a level, and just above: a gain that is not there."""
        levels = 100
        incumbent, challenger = 0.49999 / levels, 0.50001 / levels
        rounded = round(challenger * levels) - round(incumbent * levels)
        size = 100_000
        found = gain_low(rounded * size, rounded * size, size, levels, 5.0)
        assert rounded == 1
        assert found < challenger - incumbent
        assert found + 1 / levels > challenger - incumbent  # the twin claims a gain of .01

    @pytest.mark.parametrize(
        ("total", "squares"), [(5, 4), (11, 200), (0, 101), (True, 3.5), (0.5, 1), (-3, 2)]
    )
    def test_sums_that_no_differences_have_are_refused_unseen(self, total, squares):
        with pytest.raises(InvalidArgumentError, match="no levels have both") as caught:
            gain_low(total, squares, 1, 10, 3.0)
        assert str(squares) not in str(caught.value)
