"""Bounds are written on the side on which they hold, and not much farther."""

from hypothesis import given
from hypothesis import strategies as st
from torch_holdout._shared.text import outwards, up

bounded = st.floats(-1e12, 1e12).map(lambda value: round(value, 9))


@given(bounded, bounded)
def test_an_interval_only_grows(one, other):
    low, high = sorted((one, other))
    below, above = map(float, outwards(low, high)[1:-1].split(", "))
    largest = max(-low, high)
    slack, step = 1e-11 * largest, 1.0001e-3 * largest
    assert low - step <= below <= low + slack
    assert high - slack <= above <= high + step


def test_nothing_has_no_sign():
    assert outwards(-1.0, -1e-9) == "[-1, 0]"
    assert outwards(-0.0, -0.0) == "[0, 0]"


@given(st.floats(1e-12, 1e12))
def test_a_bound_only_grows(value):
    assert value <= float(up(value)) * (1 + 1e-11)
    assert float(up(value)) <= value * 1.0101
