"""A fixed part of a dataset."""

import pytest
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError

from support.builders.guarded import IN_A_TRAINER, data

pytestmark = IN_A_TRAINER


def test_fixed_subset_is_fixed():
    dataset = data(50)
    first = th.fixed_subset(dataset, 10, seed=3)
    assert first.indices == th.fixed_subset(dataset, 10, seed=3).indices
    assert first.indices != th.fixed_subset(dataset, 10, seed=4).indices
    assert len(set(first.indices)) == 10
    for size in (0, 51, 2.5):
        with pytest.raises(InvalidArgumentError, match="size"):
            th.fixed_subset(dataset, size, seed=0)
