"""Prices of what an account says on request: published numbers, and Kraft's sum of all of them."""

import math
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.bounds import hoeffding_tolerance
from torch_holdout.bounds.sealed_runs import evaluation_bracket
from torch_holdout.bounds.symbols import (
    kt_price,
    rank_price,
    record_mixture,
    record_price,
    winner_price,
)
from torch_holdout.errors import InvalidArgumentError


class TestNumbers:
    def test_twenty_runs_of_fixed_length_with_five_records(self):
        """Before the last of 20 runs, 200 evaluations, 10,000 units: 10.2 nats, .0334."""
        compared = range(2, 20)
        said = record_price([run in (2, 6, 12, 16) for run in compared], compared)
        assert said == pytest.approx(10.2, abs=0.05)
        bracket = evaluation_bracket(
            failure=0.05, run=20, runs=20, evaluation=200, evaluations=200, statistics=1,
            others=said,
        )  # fmt: skip
        assert hoeffding_tolerance(bracket, 10_000) == pytest.approx(0.0334, abs=0.00005)

    def test_if_every_run_is_a_record(self):
        compared = range(2, 21)
        assert rank_price([True] * 19, compared) == pytest.approx(42.3, abs=0.05)
        assert record_price([True] * 19, compared) == pytest.approx(2.7, abs=0.05)

    def test_krichevsky_trofimov_bit_by_bit(self):
        bits, price, ones = [1, 1, 0, 1, 0, 0, 0, 1, 1, 1], 0.0, 0
        for before, bit in enumerate(bits):
            one = (ones + 0.5) / (before + 1)
            price -= math.log(one if bit else 1 - one)
            ones += bit
            assert kt_price(ones, before + 1 - ones) == pytest.approx(price, rel=1e-12)

    def test_the_mixture_is_at_most_ln_2_above_each_law(self):
        for records in product([False, True], repeat=8):
            compared = range(2, 10)
            price, ones = record_price(records, compared), sum(records)
            better = min(rank_price(records, compared), kt_price(ones, 8 - ones))
            assert better - 1e-12 <= price <= better + math.log(2) + 1e-12

    def test_long_sequences_keep_their_digits(self):
        assert record_mixture(1e6, 0, 10**6) == pytest.approx(
            kt_price(0, 10**6) + math.log(2), rel=1e-12
        )

    def test_the_winner_of_some_runs(self):
        assert winner_price(1) == 0.0
        assert winner_price(20) == pytest.approx(math.log(20), rel=1e-15)


def bit_sum(depth, price, choices):
    """The largest sum of exp(-price) over the prefixes at which one evaluation can happen.

    At each moment the analyst evaluates, or asks one more bit, of one of ``choices`` kinds.
    """

    @cache
    def best(bits):
        options = [math.exp(-price(bits))]
        if len(bits) < depth:
            options += [
                sum(best((*bits, (bit, choice))) for bit in (False, True)) for choice in choices
            ]
        return max(options)

    return best(())


def record_bits(bits):
    return record_price([bit for bit, _ in bits], [runs for _, runs in bits])


class TestKraft:
    @pytest.mark.parametrize("choices", [(2,), (2, 3, 7), (5, 50), (10**6,)], ids=str)
    def test_record_bits_of_any_numbers_of_runs(self, choices):
        assert bit_sum(5, record_bits, choices) == pytest.approx(1, abs=1e-12)

    def test_record_bits_of_one_run_after_the_other(self):
        """Whatever is evaluated when: each bit splits the weight of what was said before."""
        for length in range(11):
            compared = range(2, length + 2)
            bits = product([False, True], repeat=length)
            whole = math.fsum(math.exp(-record_price(each, compared)) for each in bits)
            assert whole == pytest.approx(1, abs=1e-12)

    def test_keeps(self):
        def price(bits):
            ones = sum(bit for bit, _ in bits)
            return kt_price(ones, len(bits) - ones)

        assert bit_sum(10, price, (2,)) == pytest.approx(1, abs=1e-12)

    def test_winners(self):
        assert sum(math.exp(-winner_price(9)) for _ in range(9)) == pytest.approx(1, abs=1e-12)

    def test_bits_that_are_not_charged_are_caught(self):
        assert bit_sum(7, lambda bits: 0.0, (2,)) == 2**7

    def test_the_cheaper_of_two_laws_is_caught(self):
        """The minimum of two codes is not a code."""

        def cheaper(bits):
            records, compared = [bit for bit, _ in bits], [runs for _, runs in bits]
            return min(rank_price(records, compared), kt_price(sum(records), records.count(False)))

        assert bit_sum(7, cheaper, (7,)) > 1.1

    def test_a_law_of_another_number_of_runs_is_caught(self):
        """A record charged as one of two, where it is known to be one of many, is no one's law."""

        def favourable(bits):
            return math.fsum(-math.log(0.5 if bit else 1 - 1 / runs) for bit, runs in bits)

        assert bit_sum(5, favourable, (9,)) > 3


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(2, 10**9)), max_size=40), st.integers(2, 99))
def test_one_more_bit_costs_something_and_both_are_a_law(bits, runs):
    before = record_bits(bits)
    more = [record_bits([*bits, (bit, runs)]) - before for bit in (False, True)]
    assert min(more) > 0
    assert sum(math.exp(-price) for price in more) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: record_price([True], [1]),
        lambda: record_price([True], []),
        lambda: rank_price([True], [0]),
        lambda: record_mixture(-1.0, 1, 1),
        lambda: record_mixture(float("nan"), 1, 1),
        lambda: kt_price(-1, 0),
        lambda: kt_price(0, 2.5),
        lambda: winner_price(0),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(InvalidArgumentError):
        call()
