import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.bounds import laplace_tail
from torch_holdout.bounds.published import counting_anytime
from torch_holdout.errors import InvalidArgumentError

from support.oracles.laws import discrete_laplace


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


@pytest.mark.parametrize(
    "change", [{"units": 0}, {"position": 0}, {"releases_before": 9}, {"answers": 0}]
)
def test_bad_counts(change):
    values = {"units": 5, "position": 3, "releases_before": 1, "answers": 4} | change
    with pytest.raises(InvalidArgumentError):
        counting_anytime(values.pop("units"), **values, failure=0.1)
