import math

import pytest
import torch_holdout as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout import bounds as tb
from torch_holdout.accounting import PrivacyLoss, Pure
from torch_holdout.bounds import laplace_tail
from torch_holdout.bounds import published as pb
from torch_holdout.bounds.certificate import (
    COUNTING,
    PLANNED,
    Transcript,
    answer_interval,
    certify_transcript,
)
from torch_holdout.bounds.channels import Channel
from torch_holdout.errors import InvalidArgumentError

from support.builders.holdouts import make_holdout


def channel(**changes):
    values = {
        "units": 10_000, "resolution": 65536, "grid": 512, "sigma": 1e-4, "threshold": 0.02,
    }  # fmt: skip
    return Channel(**{**values, **changes})


def transcript(**changes):
    values = {"queries": 40, "releases": 5, "last_release": 30, "budget": 20, "rounds": 20}
    return Transcript(**{**values, **changes})


def certify(facts=None, failure=0.05, **channels):
    return certify_transcript(facts or transcript(), channels or {"x": channel()}, failure)


def anytime(units, position, before, sequences, failure):
    bracket = tb.bracket_anytime(
        position=position, releases_before=before, sequences=sequences, failure=failure
    )
    return tb.hoeffding_tolerance(bracket, units)


class TestTolerance:
    def test_terms_of_a_release(self):
        found = certify().tolerance
        sampling = anytime(10_000, 30, 4, tb.any_sequences(513), 0.025)
        noise = laplace_tail(1e-4 * 10_000 * 65536, 0.025 / 20, two_sided=True) / (10_000 * 65536)
        assert found == pytest.approx(sampling + noise + 0.5 / 512 + 0.5 / 65536)
        assert noise == pytest.approx(1e-4 * math.log(20 / 0.025), rel=0.01)

    def test_terms_of_a_guess(self):
        found = certify().guess_tolerance
        levels, beta = 10_000 * 65536, 0.05 / 4
        sampling = anytime(10_000, 40, 5, tb.any_sequences(513), 0.025)
        threshold = 2e-4 * math.log(20 / (2 * beta))
        comparison = 4e-4 * math.log(math.pi**2 * 40**2 / (12 * beta))
        total = sampling + 0.02 + threshold + comparison + 0.5 / 65536 + 1 / levels
        assert found == pytest.approx(total, rel=1e-3)
        assert found >= total - 1e-9

    def test_without_noise_only_counting_remains(self):
        found = certify(x=channel(sigma=0.0)).tolerance
        sampling = anytime(10_000, 30, 4, tb.any_sequences(513), 0.05)
        assert found == pytest.approx(sampling + 0.5 / 512 + 0.5 / 65536)

    def test_before_the_first_release_it_speaks_of_the_next_query_only(self):
        found = certify(transcript(releases=0, last_release=0, queries=7))
        assert found.tolerance < certify().tolerance
        assert "the next value, if it is released" in str(found)

    def test_the_worst_statistic_counts(self):
        both = certify(x=channel(), y=channel(units=50, width=3.0))
        assert both.tolerance == certify(y=channel(units=50)).tolerance
        assert both.user_tolerance["y"] == pytest.approx(3 * both.tolerance)
        assert both.user_tolerance["x"] == pytest.approx(certify().tolerance)

    def test_grows_with_every_release_and_query(self):
        tolerances = [
            certify(transcript(releases=r, last_release=30)).tolerance for r in range(1, 20)
        ]
        assert tolerances == sorted(tolerances)
        assert certify(transcript(last_release=40)).tolerance > certify().tolerance

    def test_confidence_is_not_rounded_up(self):
        assert "99.99 % confidence" in str(certify(failure=1e-4))

    def test_says_when_it_is_empty(self):
        assert "nothing useful" in str(certify(x=channel(units=20)))

    def test_small_holdouts_certify_little(self):
        """The README's figure: n = 1000 and 20 releases give about +-0.3."""
        facts = transcript(queries=50, releases=20, last_release=50)
        found = certify(facts, x=channel(units=1000, grid=128)).tolerance
        assert found == pytest.approx(0.3, abs=0.05)


class TestLadder:
    def test_counts_only_sequences_that_never_get_worse(self):
        found = certify(x=channel(rule="improvement", sigma=0.0, threshold=0.001)).tolerance
        sampling = anytime(10_000, 30, 4, tb.monotone_sequences(513), 0.05)
        assert found == pytest.approx(sampling + 0.5 / 512 + 0.5 / 65536)

    def test_strictly_better_needs_a_step_of_the_grid_and_no_noise(self):
        strict = certify(x=channel(rule="improvement", sigma=0.0, threshold=1 / 512)).tolerance
        sampling = anytime(10_000, 30, 4, tb.falling_sequences(513), 0.05)
        assert strict == pytest.approx(sampling + 0.5 / 512 + 0.5 / 65536)
        noisy = certify(x=channel(rule="improvement", sigma=1e-9, threshold=1 / 512)).tolerance
        assert noisy > strict

    def test_two_ladders_share_the_sequences_of_both(self):
        ladder = channel(rule="improvement", sigma=0.0, threshold=1 / 512)
        found = certify(x=ladder, y=ladder).tolerance
        sampling = anytime(10_000, 30, 4, tb.falling_sequences(2 * 513), 0.05)
        assert found == pytest.approx(sampling + 0.5 / 512 + 0.5 / 65536)

    def test_a_ladder_beside_a_thresholdout_gains_nothing(self):
        ladder = channel(rule="improvement", sigma=0.0, threshold=0.02)
        found = certify(x=ladder, y=channel(sigma=0.0)).tolerance
        assert found == certify(x=channel(sigma=0.0)).tolerance

    def test_noise_that_fires_alone_is_paid_for(self):
        """Publishing the better of best and answer may keep a best that noise alone has beaten."""
        step = {"rule": "improvement", "sigma": 1e-3}
        small, large = channel(threshold=0.0, **step), channel(threshold=0.5, **step)
        assert certify(x=small).tolerance > certify(x=large).tolerance + 0.005

    def test_guesses_are_one_sided(self):
        found = certify(x=channel(rule="improvement"))
        assert found.one_sided_guesses
        assert "not worse than the truth by more than" in str(found)
        assert not certify().one_sided_guesses


class TestPlan:
    def test_at_the_end_it_is_nearly_the_fixed_theorem(self):
        quiet = channel(sigma=0.0)
        end = {"queries": 200, "releases": 20, "last_release": 200}
        planned = certify(transcript(planned=200, **end), x=quiet)
        fixed = pb.counting_fixed(10_000, queries=200, budget=20, answers=513, failure=0.05)
        rounding = 0.5 / 512 + 0.5 / 65536
        assert fixed < planned.tolerance - rounding < 1.005 * fixed
        assert planned.theorem == PLANNED
        assert planned.tolerance < certify(transcript(**end), x=quiet).tolerance

    def test_beyond_the_plan_it_still_speaks(self):
        beyond = {"queries": 300, "releases": 20, "last_release": 300}
        planned = certify(transcript(planned=200, **beyond)).tolerance
        unplanned = certify(transcript(**beyond)).tolerance
        assert unplanned < planned < 1.01 * unplanned

    @settings(max_examples=100, deadline=None)
    @given(st.integers(1, 300), st.data(), st.integers(1, 300), st.integers(1, 40))
    def test_never_much_worse_than_either(self, position, data, queries, budget):
        before = data.draw(st.integers(0, min(position, 60) - 1))
        counts = {"sequences": tb.any_sequences(65), "failure": 0.05}
        found = tb.bracket_planned(
            position=position, releases_before=before, queries=queries, budget=budget, **counts
        )
        anytime = tb.bracket_anytime(position=position, releases_before=before, **counts)
        assert found <= anytime + math.log(2) + 1e-9
        if position <= queries and before < budget:
            fixed = tb.bracket_fixed(queries=queries, budget=budget, **counts)
            assert found <= fixed + math.log(2) + 1e-9
            assert found >= min(anytime, fixed) - 1e-9

    def test_shares_of_the_failure_add_up_to_at_most_one(self):
        """The union bound itself, node by node, for a plan and far beyond it."""
        answers, queries, budget = 3, 12, 4
        total = 0.0
        for position in range(1, 400):
            for before in range(min(position, 40)):
                bracket = tb.bracket_planned(
                    position=position,
                    releases_before=before,
                    sequences=tb.any_sequences(answers),
                    failure=0.5,
                    queries=queries,
                    budget=budget,
                )
                nodes = math.comb(position - 1, before) * answers**before
                total += nodes * 2 * math.exp(-bracket)  # both tails of one node
        assert 0.4 < total <= 0.5


LARGE = {
    "queries": 5000,
    "releases": 5000,
    "last_release": 5000,
    "rounds": 5000,
    "budget": 5000,
    "loss": PrivacyLoss((Pure(1 / (1e6 * 0.008), 10_000),)),
}


class TestChoice:
    def test_counting_up_to_a_hundred_releases(self):
        for sigma in (1e-4, 1e-3, 1e-2):
            loss = PrivacyLoss((Pure(1 / (10_000 * sigma), 40),))
            assert certify(transcript(loss=loss), x=channel(sigma=sigma)).theorem == COUNTING

    def test_privacy_for_large_budgets_with_enough_noise(self):
        wide = channel(units=1_000_000, grid=4096, sigma=0.008)
        found = certify(transcript(**LARGE), x=wide)
        assert "Rogers" in found.theorem
        counted = certify(transcript(**{**LARGE, "loss": None}), x=wide)
        assert counted.theorem == COUNTING
        assert found.tolerance < counted.tolerance
        assert "guesses by transcript counting" in found.covers

    def test_chosen_before_anything_is_asked(self):
        wide = channel(units=1_000_000, grid=4096, sigma=0.008)
        early = transcript(**{**LARGE, "queries": 1, "releases": 1, "last_release": 1})
        late = transcript(**LARGE)
        assert certify(early, x=wide).theorem == certify(late, x=wide).theorem
        assert certify(early, x=wide).tolerance == certify(late, x=wide).tolerance

    def test_not_for_a_ladder(self):
        wide = channel(units=1_000_000, grid=4096, sigma=0.008, rule="improvement")
        assert certify(transcript(**LARGE), x=wide).theorem == COUNTING

    @pytest.mark.parametrize(
        "change",
        [
            {"mechanism": th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")},
            {"mechanism": th.Ladder(step=0.1)},
            {"seed": 3},
        ],
        ids=["no noise", "a ladder without noise", "a test seed"],
    )
    def test_an_account_whose_privacy_cannot_be_counted_on_claims_none(self, change):
        from torch_holdout.holdout.reading import AccountReading

        for changes, private in ((change, False), ({}, True)):
            holdout = make_holdout(**changes)
            summary = holdout._ledger.summary(holdout._attached())
            reading = AccountReading(summary, holdout.address, holdout.mechanism)
            assert (reading.transcript.loss is not None) == private


def interval(value, kind="release", facts=None, **changes):
    own = channel(**changes)
    return answer_interval(
        facts or transcript(),
        {"x": own},
        statistic="x",
        position=30,
        releases_before=4,
        kind=kind,
        value=value,
        failure=0.05,
    )


class TestInterval:
    @settings(max_examples=60, deadline=None)
    @given(st.floats(0, 1), st.sampled_from(["release", "guess"]))
    def test_never_wider_than_the_tolerance(self, value, kind):
        found = interval(value, kind)
        claim = certify(transcript(queries=30))
        distance = claim.tolerance if kind == "release" else claim.guess_tolerance
        assert value in found
        assert value - distance - 1e-9 <= found.low
        assert found.high <= value + distance + 1e-9

    def test_about_half_of_it_for_small_error_rates(self):
        found = interval(0.05)
        assert found.high - 0.05 < 0.6 * certify().tolerance

    def test_user_units(self):
        plain = interval(0.25)
        scaled = interval(2.25, low=2.0, width=1.0)
        assert (scaled.low, scaled.high) == pytest.approx((2 + plain.low, 2 + plain.high))

    def test_a_ladders_guess_bounds_one_side(self):
        ladder = {"rule": "improvement", "kind": "guess"}
        assert interval(0.3, **ladder).high == 1.0
        assert interval(0.3, **ladder).low > 0.2
        assert interval(0.3, mode="max", **ladder).low == 0.0
        assert interval(0.3, rule="improvement").high < 0.4

    def test_under_a_theorem_about_privacy_it_is_symmetric(self):
        facts = transcript(**LARGE)
        found = interval(0.5, facts=facts, units=1_000_000, grid=4096, sigma=0.008)
        assert found.high - 0.5 == pytest.approx(0.5 - found.low)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 10**6), st.integers(1, 200), st.data(), st.sampled_from([0.0, 1e-4, 1e-2]),
    st.sampled_from(["both", "improvement"]), st.floats(1e-6, 0.5),
)  # fmt: skip
def test_no_certificate_is_below_the_bound_of_one_query(units, queries, data, sigma, rule, failure):
    releases = data.draw(st.integers(0, queries))
    last = data.draw(st.integers(max(1, releases), queries)) if releases else 0
    facts = transcript(queries=queries, releases=releases, last_release=last, budget=200)
    found = certify(facts, failure, x=channel(units=units, sigma=sigma, rule=rule))
    assert found.tolerance >= tb.hoeffding(units, failure)
    assert found.guess_tolerance >= tb.hoeffding(units, failure)


@pytest.mark.parametrize("failure", [0, 1, -0.1, float("nan"), "x", None, True])
def test_bad_failure(failure):
    with pytest.raises(InvalidArgumentError, match="failure"):
        certify(failure=failure)
