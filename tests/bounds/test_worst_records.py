"""The dearest sequence of record bits, against all of them."""

from itertools import product

import pytest
from torch_holdout.bounds.symbols import (
    kt_price,
    rank_price,
    record_price,
    worst_kt_price,
    worst_record_price,
)


@pytest.mark.parametrize("said", [(), (True,), (False, False), (True, False, True)])
@pytest.mark.parametrize("more", range(8))
def test_no_sequence_costs_more_and_one_costs_as_much(said, more):
    compared = range(2, 2 + len(said))
    ones = sum(said)
    bound = worst_record_price(
        rank_price(said, compared), ones, len(said) - ones, compared=2 + len(said), more=more
    )
    every = [
        record_price([*said, *later], range(2, 2 + len(said) + more))
        for later in product((True, False), repeat=more)
    ]
    assert bound == pytest.approx(max(every), rel=1e-12)


@pytest.mark.parametrize("ones", range(5))
@pytest.mark.parametrize("more", range(7))
def test_bits_cost_most_if_they_are_half_and_half(ones, more):
    every = [kt_price(ones + later, 2 + more - later) for later in range(more + 1)]
    assert worst_kt_price(ones, 2, more) == max(every)


def test_a_billion_bits_are_no_more_work():
    few = worst_record_price(0.0, 0, 0, compared=2, more=10**3)
    assert few < worst_record_price(0.0, 0, 0, compared=2, more=10**9) < 10**9
