"""What a rank has of a dataset that is dealt out to all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_holdout._shared.distributed import share_of


def dealt(size, rank, world):
    """Deal the examples out, one by one."""
    return len(list(range(size))[rank::world])


@given(st.integers(1, 500), st.integers(1, 40))
def test_a_share_is_what_dealing_out_gives(size, world):
    shares = [share_of(size, rank, world) for rank in range(world)]
    assert shares == [dealt(size, rank, world) for rank in range(world)]
    assert sum(shares) == size


@pytest.mark.parametrize(("size", "rank", "world"), [(2**40, 0, 3), (2**40, 2, 3), (1, 3, 4)])
def test_at_the_ends(size, rank, world):
    assert share_of(size, rank, world) == (size - rank + world - 1) // world


def test_twin_that_gives_every_rank_as_much_is_caught():
    padded = [-(-10 // 4)] * 4
    assert padded != [dealt(10, rank, 4) for rank in range(4)]
