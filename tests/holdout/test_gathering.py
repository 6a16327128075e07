"""What the ranks send arrives as it was meant, and what follows from it."""

from dataclasses import asdict, replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_holdout._fingerprints.weights import LANES
from torch_holdout.holdout.gathering import Count, Gathered, RankRow

NUMBER = st.integers(-(2**63), 2**63 - 1)
EXAMPLES = st.integers(0, 2**40)
COUNT = st.builds(Count, NUMBER, EXAMPLES, EXAMPLES, NUMBER, NUMBER, NUMBER)
LOOK = st.tuples(*[NUMBER] * LANES)


@st.composite
def rank_rows(draw):
    """A row of a rank, for one to four statistics."""
    counts = st.lists(COUNT, min_size=(size := draw(st.integers(1, 4))), max_size=size)
    return RankRow(
        holdout=tuple(draw(counts)),
        guess=tuple(draw(counts)),
        lanes=draw(LOOK),
        confirm=draw(LOOK),
        structure=draw(st.integers(0, 2**60 - 1)),
        failed=draw(st.booleans()),
    )


def packed(row):
    """The row as a rank sends it: sums are tensors on the device."""
    return RankRow.pack(
        holdout=[torch.tensor(count) for count in row.holdout],
        guess=[torch.tensor(count) for count in row.guess],
        lanes=torch.tensor(row.lanes),
        confirm=torch.tensor(row.confirm),
        structure=row.structure,
        failed=row.failed,
    )


class TestWire:
    @given(rank_rows())
    def test_what_is_packed_is_unpacked(self, row):
        sent = packed(row)
        assert sent.dtype == torch.int64
        assert RankRow.unpack(sent.tolist(), len(row.holdout)) == row

    @given(rank_rows(), rank_rows())
    def test_the_length_depends_on_the_number_of_statistics_only(self, one, other):
        same = len(one.holdout) == len(other.holdout)
        assert (len(packed(one)) == len(packed(other))) == same

    def test_a_row_of_another_length_is_noticed(self):
        numbers = packed(row_of((1, 2, 3))).tolist()
        with pytest.raises(ValueError, match="longer"):
            RankRow.unpack([*numbers, 0], 1)
        with pytest.raises((StopIteration, TypeError)):
            RankRow.unpack(numbers[:-1], 1)

    @pytest.mark.parametrize("field", ["holdout", "guess", "lanes", "confirm", "structure"])
    def test_twin_that_swaps_a_field_is_caught(self, field):
        counts = (Count(1, 2, 3, 4, 5, 6),), (Count(7, 8, 9, 10, 11, 12),)
        row = RankRow(*counts, (7, 8), (9, 10), 11, True)
        partner = {"holdout": "guess", "guess": "holdout", "lanes": "confirm", "confirm": "lanes"}
        other = getattr(row, partner[field]) if field in partner else 12
        assert RankRow.unpack(packed(replace(row, **{field: other})).tolist(), 1) != row

    def test_it_goes_to_the_device_that_one_part_is_on(self):
        parts = dict.fromkeys(("lanes", "confirm"), torch.zeros(LANES, dtype=torch.int64))
        count = torch.zeros(len(Count._fields), dtype=torch.int64)
        away = count.to("meta")
        sent = RankRow.pack(holdout=[count], guess=[away], **parts, structure=0, failed=False)
        assert sent.device.type == "meta"

    def test_nothing_of_a_row_is_shown(self):
        row = row_of((731, 2, 3))
        for shown in (repr(row), repr(row.holdout), repr(Gathered(["a"], [row]))):
            assert "731" not in shown
        assert asdict(row)["holdout"][0][0] == 731  # it was there


def row_of(holdout, guess=(0, 0, 0), **changes):
    nothing = (0,) * LANES
    row = RankRow((Count(*holdout),), (Count(*guess),), nothing, nothing, 0, False)
    return replace(row, **changes)


class TestDerived:
    def test_sums_run_over_ranks(self):
        ranks = Gathered(["a"], [row_of((5, 2, 3), (3, 1, 1)), row_of((7, 2, 2), (4, 2, 2))])
        assert ranks.total("a") == 12
        assert ranks.guess("a", resolution=10) == Fraction(7, 30)

    def test_without_training_examples_there_is_no_guess(self):
        assert Gathered(["a"], [row_of((5, 2, 3))]).guess("a", resolution=10) is None

    @pytest.mark.parametrize(
        ("counts", "size", "complete"),
        [
            ([(5, 5)], 5, True),
            ([(5, 9)], 5, True),  # one rank has no padding to drop
            ([(4, 4)], 5, False),
            ([(3, 3), (2, 3)], 5, True),  # padded
            ([(3, 3), (2, 2)], 5, True),
            ([(3, 3), (2, 4)], 5, False),  # a part was seen twice
            ([(2, 2), (3, 3)], 5, False),  # the wrong rank's share
            ([(3, 3), (3, 3)], 5, False),
            ([(1, 1), (0, 1), (0, 1)], 1, True),
        ],
    )
    def test_a_pass_is_complete_if_each_rank_had_its_share(self, counts, size, complete):
        rows = [row_of((0, kept, seen)) for kept, seen in counts]
        assert Gathered(["a"], rows).complete("a", size) == complete

    @pytest.mark.parametrize(
        ("seen", "size", "per_example"),
        [
            ([35 * 5], 5, 35),
            ([10], 5, 2),
            ([5], 5, 1),
            ([9], 5, None),
            ([0], 5, None),
            ([9, 6], 5, 3),  # without padding
            ([9, 9], 5, 3),  # with it
            ([9, 7], 5, None),
        ],
    )
    def test_an_exact_multiple_is_values_per_example(self, seen, size, per_example):
        rows = [row_of((0, 0, count)) for count in seen]
        assert Gathered(["a"], rows).values_per_example("a", size) == per_example

    @pytest.mark.parametrize(
        ("counts", "size", "everywhere"),
        [
            ([(7, 3, 5, 2), (4, 2, 5, 5)], 5, True),
            ([(7, 3, 5, 2), (4, 2, 4, 5)], 5, False),
            ([(7, 3, 3, 0), (4, 2, 3, 0)], 5, False),  # shares, one of them padded
            ([(7, 1, 1, 0), (0, 0, 1, 7)], 1, False),  # a share is all there is
            ([(7, 5, 5, 0)], 5, False),  # one rank
        ],
    )
    def test_every_rank_has_all_rows(self, counts, size, everywhere):
        ranks = Gathered(["a"], [row_of(count) for count in counts])
        assert ranks.everywhere("a", size) == everywhere

    def test_equal_copies_are_one(self):
        rows = [row_of((7, 3, 5, 2)), row_of((4, 2, 5, 5))]
        ranks = Gathered(["a"], rows, copied=["a"])
        assert (ranks.alike("a"), ranks.total("a")) == (True, 9)
        assert not Gathered(["a"], [rows[0], row_of((4, 2, 5, 6))], copied=["a"]).alike("a")

    def test_weights_are_steady_if_all_looks_agree(self):
        look = {"lanes": (1, 2), "confirm": (1, 2), "structure": 3}
        rows = [row_of((0, 1, 1), **look)] * 2
        assert Gathered(["a"], rows).steady
        assert Gathered(["a"], rows).lanes == [1, 2]
        for change in ({"lanes": (1, 3)}, {"confirm": (1, 3)}, {"structure": 4}):
            assert not Gathered(["a"], [rows[0], replace(rows[1], **change)]).steady
            both = [replace(row, **change) for row in rows]
            assert Gathered(["a"], both).steady == ("structure" in change)

    def test_one_failed_rank_is_enough(self):
        rows = [row_of((0, 1, 1)), row_of((0, 1, 1), failed=True)]
        assert Gathered(["a"], rows).failed
        assert not Gathered(["a"], rows[:1]).failed
