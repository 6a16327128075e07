import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.bounds import counting_anytime, laplace_tail
from torch_holdout.bounds.certificate import Channel, Transcript, certify_transcript
from torch_holdout.errors import InvalidArgumentError

from support.laws import discrete_laplace


def by_hand(u, i, b, g, beta):
    """The formula of the anytime bound with exact binomials."""
    bracket = (
        math.log(2 / beta) + math.log(math.comb(i - 1, b)) + b * math.log(g)
        + math.log(math.pi**4 / 36) + 2 * math.log(i) + 2 * math.log(b + 1)
    )  # fmt: skip
    return math.sqrt(bracket / (2 * u))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 10**6), st.integers(1, 500), st.data(), st.integers(1, 4096),
    st.floats(1e-6, 0.5),
)  # fmt: skip
def test_formula(u, i, data, g, beta):
    b = data.draw(st.integers(0, i - 1))
    found = counting_anytime(u, position=i, releases_before=b, answers=g, failure=beta)
    assert found == pytest.approx(by_hand(u, i, b, g, beta), rel=1e-9)


def test_weaker_than_knowing_the_budget_but_not_by_much():
    """Known m = 50 and B = 5 at n = 1000 give 0.140 (grid chosen for that case)."""
    anytime = counting_anytime(1000, position=50, releases_before=4, answers=17, failure=0.05)
    assert 0.140 < anytime < 0.155


def test_holds_for_an_analyst_who_hunts():
    """A thousand fixed coin-flip queries on 200 examples, the luckiest claimed: 400 repetitions.

    With probability at least 0.95 each claim holds; more than 47 failures of 400 would happen with
    probability below 1e-6. The bound without the count of positions must fail far more often.
    """
    import numpy as np

    generator = np.random.default_rng(0)
    u, queries, repetitions = 200, 1000, 400
    tau = counting_anytime(u, position=queries, releases_before=0, answers=1, failure=0.05)
    naive = math.sqrt(math.log(2 / 0.05) / (2 * u))
    worst = np.abs(generator.binomial(u, 0.5, (repetitions, queries)) / u - 0.5).max(axis=1)
    assert (worst > tau).sum() <= 47
    assert (worst > naive).sum() > 47


@pytest.mark.parametrize("scale", [0.0, 0.2, 1.0, 7.3, 60.0])
@pytest.mark.parametrize("failure", [0.4, 0.05, 1e-4])
@pytest.mark.parametrize("two_sided", [True, False])
def test_tail_is_the_smallest_that_suffices(scale, failure, two_sided):
    found = laplace_tail(scale, failure, two_sided=two_sided)
    if scale == 0:
        assert found == 0
        return
    law = discrete_laplace(scale)

    def beyond(k):
        return math.fsum(p for x, p in law.items() if (abs(x) if two_sided else x) > k)

    assert beyond(found) <= failure * (1 + 1e-9)
    assert found == 0 or beyond(found - 1) > failure * (1 - 1e-9)


def channel(**changes):
    values = {
        "units": 10_000, "resolution": 65536, "grid": 512, "sigma": 1e-4, "threshold": 0.02,
        "width": 1.0,
    }  # fmt: skip
    return Channel(**{**values, **changes})


def transcript(**changes):
    values = {
        "queries": 40, "releases": 5, "last_release": 30, "budget": 20, "rounds": 20, "answers": 513
    }  # fmt: skip
    return Transcript(**{**values, **changes})


def certify(facts=None, failure=0.05, **channels):
    return certify_transcript(facts or transcript(), channels or {"x": channel()}, failure)


class TestCertificate:
    def test_terms_of_a_release(self):
        found = certify().tolerance
        sampling = by_hand(10_000, 30, 4, 513, 0.025)
        noise = laplace_tail(1e-4 * 10_000 * 65536, 0.025 / 20, two_sided=True) / (10_000 * 65536)
        assert found == pytest.approx(sampling + noise + 0.5 / 512 + 0.5 / 65536)
        assert noise == pytest.approx(1e-4 * math.log(20 / 0.025), rel=0.01)

    def test_terms_of_a_guess(self):
        found = certify().guess_tolerance
        levels, beta = 10_000 * 65536, 0.05 / 3
        sampling = by_hand(10_000, 40, 5, 513, beta)
        threshold = 2e-4 * math.log(20 / (2 * beta))
        comparison = 4e-4 * math.log(math.pi**2 * 40**2 / (12 * beta))
        total = sampling + 0.02 + threshold + comparison + 0.5 / 65536 + 1 / levels
        assert found == pytest.approx(total, rel=1e-3)
        assert found >= total - 1e-9

    def test_without_noise_only_counting_remains(self):
        found = certify(x=channel(sigma=0.0)).tolerance
        assert found == pytest.approx(by_hand(10_000, 30, 4, 513, 0.05) + 0.5 / 512 + 0.5 / 65536)

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
        later = certify(transcript(last_release=40))
        assert later.tolerance > certify().tolerance

    def test_confidence_is_not_rounded_up(self):
        assert "99.99 % confidence" in str(certify(failure=1e-4))

    def test_says_when_it_is_empty(self):
        assert "nothing useful" in str(certify(x=channel(units=20)))

    def test_small_holdouts_certify_little(self):
        """The README's figure: n = 1000 and 20 releases give about +-0.3."""
        facts = transcript(queries=50, releases=20, last_release=50, answers=129)
        assert certify(facts, x=channel(units=1000, grid=128)).tolerance == pytest.approx(
            0.3, abs=0.05
        )


@pytest.mark.parametrize("failure", [0, 1, -0.1, float("nan"), "x", None])
def test_bad_failure(failure):
    with pytest.raises(InvalidArgumentError, match="failure"):
        certify(failure=failure)


@pytest.mark.parametrize(
    "change", [{"units": 0}, {"position": 0}, {"releases_before": 9}, {"answers": 0}]
)
def test_bad_counts(change):
    values = {"units": 5, "position": 3, "releases_before": 1, "answers": 4} | change
    with pytest.raises(InvalidArgumentError):
        counting_anytime(values.pop("units"), **values, failure=0.1)
