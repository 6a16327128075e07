"""Values that are not one of each example are refused by their layout, and nothing is counted."""

import re

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError

VALUES = torch.rand(8, generator=torch.Generator().manual_seed(0))
EXPANDED = {
    "expand": VALUES.mean().expand(8),
    "expand_as": VALUES.mean().expand_as(VALUES),
    "broadcast_to": torch.broadcast_to(VALUES.mean(), (8,)),
    "detached": VALUES.mean().expand(8).detach(),
    "a part": VALUES.mean().expand(16)[4:12],
    "of flags": (VALUES > 0.5).all().expand(8),
    "of integers": (VALUES > 0.5).sum().expand(8),
}
OWN = {
    "values": VALUES,
    "every second": torch.rand(16)[::2],
    "a column": torch.rand(8, 3)[:, 1],
    "compared": VALUES.mean() < VALUES,
    "compared with an expanded one": VALUES[0].expand(8) == VALUES,
    "constant": torch.full((8,), 0.5),
    "one example": VALUES[:1].mean().expand(1),
    "no example": VALUES.mean().expand(0),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_a_batch_mean_expanded_to_the_batch_is_refused(name):
    values = EXPANDED[name]
    takes = [th.BoundedMean(0.0, 1.0)] + [th.ZeroOne()] * (not values.is_floating_point())
    for statistic in takes:
        sums = statistic.accumulator(2**16)
        with pytest.raises(InvalidArgumentError, match="one number expanded to the batch"):
            sums.update(values)
        assert sums._seen == 0
    by_function = th.BoundedMean(0.0, 1.0, per_example=lambda preds: values)
    with pytest.raises(InvalidArgumentError, match='reduction="none"'):
        by_function.accumulator(2**16).update(VALUES)


@pytest.mark.parametrize("place", [0, 1])
def test_no_column_of_a_blockwise_statistic_may_be_expanded(place):
    statistic = th.Blockwise(lambda p, t: (p - t).mean(), 2, 0.0, 1.0)
    rows = [VALUES, VALUES]
    rows[place] = EXPANDED["expand"]
    sums = statistic.accumulator(2**16)
    with pytest.raises(InvalidArgumentError, match="one number expanded to the batch"):
        sums.update(*rows)
    wide = VALUES.mean().expand(8, 3), VALUES
    with pytest.raises(InvalidArgumentError, match="one number expanded to the batch"):
        sums.update(*wide)
    sums.update(VALUES, VALUES.view(8, 1).expand(8, 3)[:, 0])  # along another dimension


@pytest.mark.parametrize("name", OWN)
def test_values_of_each_example_are_taken(name):
    sums = th.BoundedMean(0.0, 1.0).accumulator(2**16)
    sums.update(OWN[name])
    assert sums._seen == len(OWN[name])


def test_the_refusal_does_not_depend_on_values():
    """A batch whose values happen to be equal is one of the layouts that are taken."""
    said = set()
    for value in (0.0, 0.25, 1.0):
        with pytest.raises(InvalidArgumentError) as caught:
            th.BoundedMean(0.0, 1.0).accumulator(4).update(torch.tensor(value).expand(5))
        said.add(str(caught.value))
    assert len(said) == 1
    th.BoundedMean(0.0, 1.0).accumulator(4).update(torch.tensor([0.25] * 5))


@pytest.mark.parametrize(
    ("statistic", "arguments"),
    [
        (th.BoundedMean(0, 1), (torch.rand(84, 37),)),
        (th.BoundedMean(0, 1, per_example=lambda p, t: p), (torch.rand(84), torch.rand(37))),
        (th.BoundedMean(0, 1, per_example=lambda p, t: p - t), (torch.rand(84), torch.rand(37))),
        (th.BoundedMean(0, 1, per_example=lambda p: p[:37]), (torch.rand(84),)),
        (th.ZeroOne(), (torch.rand(84, 3), torch.zeros(37).long())),
        (th.ZeroOne(), (torch.rand(84, 37, 2), torch.zeros(84, 37, 2).long())),
        (th.CrossEntropy(5.0), (torch.rand(84, 3), torch.zeros(37).long())),
        (th.Blockwise(lambda p, t: p.mean(), 2, 0, 1), (torch.rand(84), torch.rand(37))),
    ],
)
def test_an_error_does_not_tell_how_many_rows_came(statistic, arguments):
    """A filter, ``values[mask]``, makes a count a value."""
    with pytest.raises(InvalidArgumentError) as caught:
        statistic.accumulator(2**16).update(*arguments)
    assert not {"84", "37"} & set(re.findall(r"\d+", str(caught.value)))


def test_sums_do_not_tell_how_many_rows_they_have():
    for statistic in (th.ZeroOne(), th.Blockwise(lambda p: p.float().mean(), 2, 0, 1)):
        sums = statistic.accumulator(2**16)
        shown = repr(sums)
        sums.update(torch.rand(84) > 0.5)
        assert repr(sums) == str(sums) == f"{sums}" == shown == "<sealed sum>"
        public = [getattr(sums, name) for name in dir(sums) if not name.startswith("_")]
        assert 84 not in [value for value in public if isinstance(value, int)]
