"""The walk is long enough, and no longer than it has to be."""

from fractions import Fraction
from math import comb

import pytest
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.nearest.walk import WALK_ERROR, walk


def missing(places, rate, votes):
    """The exact probability of fewer heads than votes."""
    rate = Fraction(rate)
    return sum(
        comb(places, heads) * rate**heads * (1 - rate) ** (places - heads) for heads in range(votes)
    )


@pytest.mark.parametrize(
    ("rate", "votes"), [(0.3, 1), (0.5, 30), (0.2, 60), (0.9, 5), (0.05, 3), (0.99, 200)]
)
def test_it_is_the_shortest_that_is_long_enough(rate, votes):
    places = walk(rate, votes)
    assert missing(places, rate, votes) <= WALK_ERROR < missing(places - 1, rate, votes)


def test_without_sampling_only_those_that_vote_are_looked_at():
    assert walk(1.0, 7) == 7


def test_a_walk_that_would_never_end_is_refused():
    with pytest.raises(InvalidArgumentError, match="larger rate or a smaller k"):
        walk(0.001, 60_000)
