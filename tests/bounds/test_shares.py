import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.bounds.shares import share, share_sum
from torch_holdout.errors import InvalidArgumentError


def by_hand(position, planned):
    """The share as an exact fraction."""
    inside = Fraction(9, 10 * planned) if position <= planned else Fraction(0)
    return inside + Fraction(1, 10 * position * (position + 1))


@pytest.mark.parametrize("planned", [1, 2, 7, 200])
def test_shares_of_any_number_of_positions_sum_to_at_most_one(planned):
    shares = [share(k, planned) for k in range(1, 3001)]
    assert math.fsum(shares) <= 1 + 1e-12
    assert math.fsum(shares) == pytest.approx(1 - 0.1 / 3001, abs=1e-12)


def test_a_plan_that_may_be_exceeded_for_nothing_is_caught():
    """Without the tenth that is kept back, what comes after the plan is too much."""
    assert math.fsum(max(share(k, 10), 1 / 10 if k <= 10 else 0) for k in range(1, 3001)) > 1


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 400), st.integers(0, 400), st.integers(1, 300))
def test_the_sum_is_that_of_the_shares(first, last, planned):
    exact = sum((by_hand(k, planned) for k in range(first, last + 1)), Fraction(0))
    assert share_sum(first, last, planned) == pytest.approx(float(exact), rel=1e-14, abs=0)
    assert share(first, planned) == pytest.approx(float(by_hand(first, planned)), rel=1e-14)


def test_far_beyond_the_plan():
    assert share_sum(1, 2**62, 2**40) == pytest.approx(1, abs=1e-12)
    assert share(2**62, 1) == pytest.approx(0.1 / 2**124, rel=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: share(0, 5),
        lambda: share(1, 0),
        lambda: share(1.5, 5),
        lambda: share_sum(0, 4, 5),
        lambda: share_sum(1, -1, 5),
        lambda: share_sum(1, 4, True),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(InvalidArgumentError):
        call()
