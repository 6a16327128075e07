"""Quotients of intervals and of means, against every corner of what is known about both."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch_holdout.bounds.brackets import hoeffding_tolerance
from torch_holdout.bounds.channels import Channel
from torch_holdout.bounds.ratios import Part, Quotient, quotient_interval, quotient_tolerance
from torch_holdout.errors import InvalidArgumentError

ENDS = st.floats(-100, 100)
SOME = settings(max_examples=300, deadline=None)


def interval(first, second):
    return min(first, second), max(first, second)


@SOME
@given(ENDS, ENDS, ENDS, ENDS, st.floats(0, 1), st.floats(0, 1))
def test_the_interval_has_every_quotient(n1, n2, d1, d2, where_n, where_d):
    above, below = interval(n1, n2), interval(d1, d2)
    numerator = above[0] + where_n * (above[1] - above[0])
    denominator = below[0] + where_d * (below[1] - below[0])
    assume(above[0] <= numerator <= above[1] and below[0] <= denominator <= below[1])
    assume(denominator != 0)
    low, high = quotient_interval(above, below, -5.0, 7.0)
    exact = Fraction(numerator) / Fraction(denominator)
    assert low <= min(max(exact, Fraction(-5)), Fraction(7)) <= high
    assert -5.0 <= low <= high <= 7.0


@pytest.mark.parametrize(
    ("above", "below", "found"),
    [
        ((1, 2), (4, 5), (0.2, 0.5)),
        ((-1, 2), (4, 5), (-0.25, 0.5)),
        ((-2, -1), (4, 5), (-0.5, -0.2)),
        ((1, 2), (-5, -4), (-0.5, -0.2)),
        ((1, 2), (0, 5), (-9.0, 9.0)),
        ((1, 2), (-1, 1), (-9.0, 9.0)),
        ((50, 60), (1, 2), (9.0, 9.0)),
        ((0, 0), (1, 2), (0.0, 0.0)),
        ((1e-300, 1e300), (1e-320, 1), (1e-300, 9.0)),
    ],
)
def test_signs(above, below, found):
    assert quotient_interval(above, below, -9.0, 9.0) == pytest.approx(found)


@pytest.mark.parametrize("bad", [((2, 1), (1, 2)), ((1, 2), (2, 1)), ((math.nan, 1), (1, 2))])
def test_no_interval_is_refused(bad):
    with pytest.raises(InvalidArgumentError):
        quotient_interval(*bad, 0.0, 1.0)


PARTS = st.tuples(st.floats(-50, 50), st.floats(0.5, 100))


@SOME
@given(PARTS, st.floats(0.125, 10), st.floats(0.5, 50), PARTS, st.data())
def test_the_tolerance_has_every_population(numerator, smallest, width, bounds, data):
    """Exact: whatever both means of population and holdout are, as far apart as is claimed."""
    quotient = Quotient(
        Part(numerator[0], sum(numerator)), Part(smallest, smallest + width), bounds[0], sum(bounds)
    )
    shares = [Fraction(data.draw(st.floats(0, 1))) for _ in range(4)]
    held = [exact(part, share) for part, share in zip(parts(quotient), shares[:2], strict=True)]
    true = [exact(part, share) for part, share in zip(parts(quotient), shares[2:], strict=True)]
    s, t = (abs(a - b) for a, b in zip(held, true, strict=True))
    low, high = Fraction(quotient.low), Fraction(quotient.high)
    published, population = (min(max(n / d, low), high) for n, d in (held, true))
    # In exact arithmetic; the function itself rounds.
    assert abs(published - population) <= (s + t * abs(published)) / Fraction(smallest)
    claimed = quotient_tolerance(float(s), float(t), float(published), smallest)
    assert abs(float(published - population)) <= claimed * (1 + 1e-12) + 1e-12


def parts(quotient):
    return quotient.numerator, quotient.denominator


def exact(part, share):
    return Fraction(part.low) + (Fraction(part.high) - Fraction(part.low)) * share


def test_forgetting_the_denominator_is_caught():
    """The twin's claim is that of the numerator alone: half of the holdout's tokens are missing."""
    held, true = (3.0, 1.0), (3.0, 2.0)
    distance = abs(held[0] / held[1] - true[0] / true[1])
    assert distance <= quotient_tolerance(0.0, 1.0, held[0] / held[1], smallest=1.0)
    assert distance > quotient_tolerance(0.0, 0.0, held[0] / held[1], smallest=1.0)


LOSS = Quotient(Part(0.0, 1280.0), Part(64.0, 128.0), 0.0, 10.0)


def test_two_sums_pay_ln_2_more_than_one():
    mean = hoeffding_tolerance(9.0 + math.log(2), 10_000) + 0.5 / 65536
    expected = (1280 * mean + 10 * 64 * mean) / 64
    assert LOSS.tolerance(9.0, 10_000, 65536) == pytest.approx(expected)
    near = (1280 * mean + 3 * 64 * mean) / 64
    assert LOSS.tolerance(9.0, 10_000, 65536, near=3.0) == pytest.approx(near)


def test_nothing_is_claimed_beyond_the_range_or_for_a_denominator_from_0():
    assert LOSS.tolerance(9.0, 10, 65536) == 10.0
    unknown = Quotient(LOSS.numerator, Part(0.0, 128.0), 0.0, 10.0)
    assert unknown.may_be_undefined
    assert unknown.tolerance(1e-9, 10**12, 65536) == 10.0
    channel = Channel(
        units=10**6, resolution=65536, grid=64, sigma=0.0, width=10.0, quotient=unknown
    )
    low, high = channel.quotient_interval(0.3, 0.01, 5.0)
    assert low <= 0 < 1 <= high


@SOME
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=2, max_size=20))
def test_the_whole_number_orders_as_the_quotient_does(sums):
    """What rules compare; quotients closer than one of all the levels are ties."""
    largest = 1000
    found = sorted((LOSS.exact(*pair, largest), LOSS.total(*pair, largest)) for pair in sums)
    for (small, low), (large, high) in itertools.pairwise(found):
        assert low <= high
        assert abs(Fraction(high - low, largest) * 10 - (large - small)) <= Fraction(10, largest)
        assert 0 <= low <= largest


def test_what_a_ledger_has_registered_is_read_back():
    part = {"kind": "bounded_mean", "low": 0, "high": 1280}
    below = {"kind": "zero_one", "low": 0.0, "high": 1.0}
    content = {"low": 0.0, "high": 10.0, "mode": "max", "numerator": part, "denominator": below}
    found = Quotient.of(content)
    assert found == Quotient(Part(0.0, 1280.0), Part(0.0, 1.0, "zero_one"), 0.0, 10.0, mode="max")
    with pytest.raises(KeyError):
        Quotient.of({**content, "numerator": {**part, "kind": "blockwise"}})
