"""The dearest sequence of record bits, against all of them."""

from itertools import product

import pytest
from torch_holdout.bounds.symbols import rank_price, record_price, worst_record_price


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


def test_a_billion_bits_are_no_more_work():
    few = worst_record_price(0.0, 0, 0, compared=2, more=10**3)
    assert few < worst_record_price(0.0, 0, 0, compared=2, more=10**9) < 10**9
