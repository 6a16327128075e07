"""Prices of a board's symbols: counts and Kraft sums by enumeration, against every asker."""

import math
from functools import cache
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.accounting.picos import PICO
from torch_holdout.bounds.closing import exact_interval
from torch_holdout.bounds.codes import (
    Flags,
    answer_price,
    board_bracket,
    flag_price,
    in_picos,
    interleaved_transcripts,
    record_flag_price,
    step_price,
    told_interval,
)
from torch_holdout.bounds.symbols import kt_price, rank_price, record_price
from torch_holdout.errors import InvalidArgumentError


@cache
def most_transcripts(left, better, releases):
    """The most transcripts with b releases in some positions, whoever asks next, adaptively.

    ``better`` has, for each ladder, how many values are better than its best.
    """
    if releases > left:
        return 0
    if not left:
        return 1
    most = 0
    for ladder, values in enumerate(better):
        count = most_transcripts(left - 1, better, releases)
        if releases:
            for after in range(values):
                rest = tuple(sorted((*better[:ladder], after, *better[ladder + 1 :])))
                count += most_transcripts(left - 1, rest, releases - 1)
        most = max(most, count)
    return most


CASES = [
    (ladders, answers, position, releases)
    for ladders, answers, position in product(range(1, 5), range(1, 5), range(1, 8))
    for releases in range(position)
]


class TestTheCount:
    def test_interleaved_ladders_have_no_more_transcripts(self):
        """All cases of 1 to 4 ladders, 1 to 4 values and 7 positions, every adaptive asker."""
        exceeded = 0
        for ladders, answers, position, releases in CASES:
            count = most_transcripts(position - 1, (answers,) * ladders, releases)
            bound = interleaved_transcripts(
                position=position, releases=releases, ladders=ladders, answers=answers
            )
            exceeded += count > math.exp(bound) * (1 + 1e-9)
        assert (exceeded, len(CASES)) == (0, 448)

    def test_it_is_reached_by_one_ladder(self):
        for answers, position in product(range(1, 5), range(1, 8)):
            for releases in range(min(answers, position - 1) + 1):
                bound = interleaved_transcripts(
                    position=position, releases=releases, ladders=1, answers=answers
                )
                count = most_transcripts(position - 1, (answers,), releases)
                assert count == round(math.exp(bound))

    def test_a_twin_that_counts_one_ladder_is_exceeded(self):
        """3 ladders of 3 values: 45 transcripts with 4 releases, where one ladder has none."""
        one = {"position": 5, "releases": 4, "ladders": 1, "answers": 3}
        assert interleaved_transcripts(**one) == -math.inf
        assert most_transcripts(4, (3, 3, 3), 4) == 45
        exceeded = sum(
            most_transcripts(position - 1, (answers,) * ladders, releases)
            > math.comb(position - 1, releases) * math.comb(answers, releases)
            for ladders, answers, position, releases in CASES
        )
        assert exceeded > 100


@cache
def worst_sum(left, better, flags, records=False, law=flag_price):
    """The largest sum of Q over the transcripts of some positions, whoever asks, adaptively."""
    if not left:
        return 1.0
    sums = []
    for ladder, values in enumerate(better):
        chances = [math.exp(-price) for price in flag_prices(flags, records, law)]
        silent = flags.after(False, records=records)
        total = chances[0] * worst_sum(left - 1, better, silent, records, law)
        told = flags.after(True, records=records)
        for steps in range(1, values + 1):
            after = tuple(sorted((*better[:ladder], values - steps, *better[ladder + 1 :])))
            chance = chances[1] * math.exp(-step_price(values, steps))
            total += chance * worst_sum(left - 1, after, told, records, law)
        sums.append(total)
    return max(sums)


def flag_prices(flags, records, law):
    if records:
        return [record_flag_price(*flags, bit) for bit in (False, True)]
    return [law(flags.ones, flags.zeros, bit) for bit in (False, True)]


class TestKraft:
    @pytest.mark.parametrize(("ladders", "answers"), [(1, 4), (2, 3), (3, 2), (3, 4)])
    def test_own_ladders_sum_to_at_most_one_whoever_asks(self, ladders, answers):
        sums = [worst_sum(left, (answers,) * ladders, Flags()) for left in range(7)]
        assert sums[0] == 1.0
        assert all(later <= before for before, later in pairwise(sums))
        assert 0.3 < sums[-1] < 1.0

    @pytest.mark.parametrize("answers", [2, 4])
    def test_one_ladder_for_all_with_the_law_of_records(self, answers):
        sums = [worst_sum(left, (answers,), Flags(), True) for left in range(8)]
        assert all(0.2 < total <= 1.0 for total in sums)

    @pytest.mark.parametrize("records", [False, True])
    def test_flags_alone_sum_to_one(self, records):
        total = 0.0
        for bits in product([False, True], repeat=9):
            flags, nats = Flags(), 0.0
            for bit in bits:
                nats += flag_prices(flags, records, flag_price)[bit]
                flags = flags.after(bit, records=records)
            total += math.exp(-nats)
        assert total == pytest.approx(1.0, abs=1e-12)

    @pytest.mark.parametrize("better", [1, 2, 7, 512])
    def test_steps_sum_to_less_than_one(self, better):
        total = math.fsum(math.exp(-step_price(better, j)) for j in range(1, better + 1))
        assert total == pytest.approx(1 - 1 / (2 * (better + 1)), abs=1e-12)

    def test_a_twin_that_takes_the_cheaper_of_two_laws_sums_to_more(self):
        """The law of each symbol is fixed before it is drawn: never the smaller of two codes."""

        def cheaper(ones, zeros, bit):
            first = 1 / (ones + zeros + 2)
            by_rank = -math.log(first if bit else 1 - first)
            return min(flag_price(ones, zeros, bit), by_rank)

        assert worst_sum(6, (4, 4, 4), Flags(), law=cheaper) > 1.0


class TestLaws:
    def test_flags_are_those_of_krichevsky_and_trofimov(self):
        bits = [1, 0, 0, 1, 1, 0, 0, 0, 0, 1]
        nats, flags = 0.0, Flags()
        for bit in bits:
            nats += flag_price(flags.ones, flags.zeros, bool(bit))
            flags = flags.after(bool(bit))
        assert nats == pytest.approx(kt_price(4, 6), rel=1e-12)

    @given(st.lists(st.booleans(), max_size=60))
    @settings(deadline=None)
    def test_record_flags_are_the_registered_mixture(self, bits):
        """The baseline is one more that was there before: the t-th flag compares t + 1."""
        nats, flags = 0.0, Flags()
        for bit in bits:
            nats += record_flag_price(*flags, bit)
            flags = flags.after(bit, records=True)
        compared = range(2, len(bits) + 2)
        assert flags.rank == pytest.approx(rank_price(bits, compared), rel=1e-9, abs=1e-9)
        assert nats == pytest.approx(record_price(bits, compared), rel=1e-9, abs=1e-9)

    def test_long_sequences_keep_their_digits(self):
        rank = rank_price([False] * 10**5, range(2, 10**5 + 2))
        price = record_flag_price(0, 10**5, rank, False)
        assert 0 < price < 2 / 10**5
        assert record_flag_price(0, 10**5, rank, True) == pytest.approx(12.2, abs=0.1)

    def test_a_useless_account_costs_less_than_a_first_value(self):
        """With a baseline it learns "not better" for about 0.4 nats, instead of a value for 6.2."""
        flags, nats = Flags(), []
        for _ in range(5):
            nats.append(flag_price(flags.ones, flags.zeros, False))
            flags = flags.after(False)
        assert sum(nats) / 5 < 0.4
        assert answer_price(513) == pytest.approx(6.24, abs=0.01)

    def test_improvements_of_a_hundredth(self):
        """On 512 intervals: about 4 nats each, and never more than ln 2g."""
        assert step_price(154, 5) == pytest.approx(3.92, abs=0.01)
        assert max(step_price(154, j) for j in range(1, 155)) < math.log(2 * 154)

    def test_picos_are_rounded_up_and_add_up(self):
        nats = [flag_price(k, 3, True) for k in range(100)]
        picos = sum(map(in_picos, nats))
        assert math.fsum(nats) * PICO <= picos <= math.fsum(nats) * PICO + 101


class TestBracket:
    def test_what_others_were_told_is_paid(self):
        facts = {"position": 10, "planned": 250, "failure": 0.05}
        alone, told = (board_bracket(said=said, **facts) for said in (0.0, 40.0))
        assert told == alone + 40.0

    def test_shares_of_all_submissions_and_statistics_sum_to_the_failure(self):
        """Two sides each: the plan may be exceeded, and costs little if it is kept."""
        for planned in (1, 20):
            brackets = (
                board_bracket(position=k, planned=planned, said=0.0, failure=0.05, statistics=3)
                for k in range(1, 5000)
            )
            total = math.fsum(2 * 3 * math.exp(-bracket) for bracket in brackets)
            assert 0.0499 < total <= 0.05

    def test_an_answer_on_the_grid_has_the_interval_of_all_it_can_stand_for(self):
        """Exactly: of every number of successes that is rounded to it, no other is wider."""
        units, grid, bracket = 1000, 128, 9.0
        low, high = told_interval(
            answer=115 / grid, grid=grid, bracket=bracket, units=units, resolution=1, exact=True
        )
        inside = [s for s in range(units + 1) if (2 * s * grid + units) // (2 * units) == 115]
        ends = [exact_interval(s, units, bracket) for s in inside]
        assert low <= min(end[0] for end in ends) < low + 2 / units
        assert high - 2 / units < max(end[1] for end in ends) <= high

    def test_other_values_have_one_of_divergence(self):
        facts = {"grid": 128, "bracket": 9.0, "units": 1000, "resolution": 100}
        exact = told_interval(answer=0.5, exact=True, **facts)
        wider = told_interval(answer=0.5, exact=False, **facts)
        assert wider[0] < exact[0] < 0.5 < exact[1] < wider[1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: flag_price(-1, 0, True),
        lambda: step_price(3, 4),
        lambda: step_price(0, 1),
        lambda: answer_price(0),
        lambda: in_picos(-1.0),
        lambda: in_picos(math.nan),
        lambda: record_flag_price(0, 0, -1.0, True),
        lambda: board_bracket(position=0, planned=1, said=0.0, failure=0.05),
        lambda: told_interval(answer=1.5, grid=4, bracket=1.0, units=4, resolution=1, exact=True),
        lambda: interleaved_transcripts(position=1, releases=-1, ladders=1, answers=1),
    ],
)
def test_arguments_outside_the_theorems_are_refused(call):
    with pytest.raises(InvalidArgumentError):
        call()
