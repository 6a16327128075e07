"""A fixed part of a dataset, and how ranks share its batches."""

import numpy as np
import pytest
import torch_holdout as th
from torch.utils.data import IterableDataset
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.training.guesses import dealt

from support.builders.guarded import IN_A_TRAINER, data

pytestmark = IN_A_TRAINER


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


class Unsized:
    def __len__(self):
        raise NotImplementedError


def test_fixed_subset_is_fixed():
    dataset = data(50)
    first = th.fixed_subset(dataset, 10, seed=3)
    assert first.indices == th.fixed_subset(dataset, 10, seed=3).indices
    assert first.indices != th.fixed_subset(dataset, 10, seed=4).indices
    assert len(set(first.indices)) == 10
    for size in (0, 51, 2.5):
        with pytest.raises(InvalidArgumentError, match="size"):
            th.fixed_subset(dataset, size, seed=0)


@pytest.mark.parametrize(
    ("dataset", "size", "seed"),
    [
        (None, 1, 0), (3, 1, 0), (iter([1, 2]), 1, 0), (Stream(), 1, 0), (Unsized(), 1, 0),
        ([1, 2], "1", 0), ([1, 2], None, 0), ([1, 2], True, 0), ([1, 2], 10**40, 0), ([], 1, 0),
        ([1, 2], 1, "0"), ([1, 2], 1, None), ([1, 2], 1, 0.5), ([1, 2], 1, 2**64),
        ([1, 2], 1, float("nan")), ([1, 2], [1], 0),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_wrong_types_are_refused_in_words(dataset, size, seed):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        th.fixed_subset(dataset, size, seed)


def test_any_whole_number_will_do():
    expected = th.fixed_subset(range(20), 3, 7).indices
    assert th.fixed_subset(range(20), np.int32(3), np.int8(7)).indices == expected


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("count", range(9))
def test_all_ranks_make_as_many_passes_and_each_batch_counts_once(world, count):
    ranks = [list(dealt(range(count), rank, world)) for rank in range(world)]
    assert {len(own) for own in ranks} == {-(-count // world)}
    counted = sorted(batch for own in ranks for batch, counts in own if counts)
    assert counted == list(range(count))
