"""``ZeroOne`` takes zeros and ones, and is registered as such."""

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError

from support.builders.holdouts import make_holdout

LEVELS = 65536
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
WHOLE = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def total(*arguments):
    sums = th.ZeroOne().accumulator(LEVELS)
    sums.update(*arguments)
    return int(sums._sealed)


def test_it_is_a_kind_of_its_own():
    assert th.ZeroOne().identity() == {"kind": "zero_one", "low": 0.0, "high": 1.0, "mode": "max"}
    soft = th.BoundedMean(0.0, 1.0, mode="max")
    assert soft.identity() == th.ZeroOne().identity() | {"kind": "bounded_mean"}
    assert th.ZeroOne() == th.ZeroOne() != soft


@pytest.mark.parametrize("dtype", WHOLE)
def test_booleans_and_integers_are_taken(dtype):
    assert total(torch.tensor([1, 0, 1, 1]).to(dtype)) == 3 * LEVELS


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
def test_other_integers_count_as_the_nearer_of_0_and_1(dtype):
    """Never anything between: the exact interval depends on it."""
    values = torch.tensor([-3, -1, 0, 1, 2, 100], dtype=dtype)
    levels = th.ZeroOne().levels((values,), {}, LEVELS)
    assert levels.tolist() == [0, 0, 0, LEVELS, LEVELS, LEVELS]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("values", [[1.0, 0.0], [0.731, 0.2], [float("nan")], []])
def test_floats_are_refused_whatever_their_values(dtype, values):
    sums = th.ZeroOne().accumulator(LEVELS)
    with pytest.raises(InvalidArgumentError) as caught:
        sums.update(torch.tensor(values, dtype=dtype))
    said = str(caught.value)
    assert said == (
        f"Expected booleans or integers, one for each example, but got {dtype}. Drop .float():\n"
        "-    (logits.argmax(1) == y).float()\n"
        "+    logits.argmax(1) == y\n"
        "For soft values use th.BoundedMean(0.0, 1.0, mode='max'). Nothing was charged."
    )
    assert (sums._seen, sums._sealed) == (0, None)


def test_a_careless_pass_is_refused_and_nothing_is_charged():
    holdout = make_holdout()
    metric = th.ReusableHoldoutMetric(holdout, "val_acc", model=torch.nn.Linear(2, 2).eval())
    right = torch.arange(50) < 30
    with pytest.raises(InvalidArgumentError, match=r"Drop \.float\(\)"):
        metric.update(right.float())
    sums = holdout.accumulator("val_acc")
    with pytest.raises(InvalidArgumentError, match="soft values"):
        sums.update_counted(torch.tensor([0.5]), torch.tensor([50]), 50)
    assert holdout.status().queries == 0
    metric.update(right)
    assert metric.compute() >= 0


def test_a_batch_mean_is_refused():
    right = torch.tensor([True, False])
    for mean in (right.float().mean(), right.all(), right.sum()):
        with pytest.raises(InvalidArgumentError):
            total(mean)


def test_logits_and_targets_of_every_type_stay():
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    target = torch.tensor([0, 1, 1])
    for dtype in FLOATS:
        assert total(logits.to(dtype), target) == 2 * LEVELS
        assert total(logits, target.to(dtype)) == 2 * LEVELS


def test_sums_of_soft_values_are_not_taken_for_it():
    """Nor with the owner's mark: the registered kind decides."""
    holdout = make_holdout()
    own = holdout.accumulator("val_acc")
    soft = th.BoundedMean(0.0, 1.0, mode="max").accumulator(LEVELS, owner=own.owner, size=50)
    soft.update(torch.full((50,), 0.5))
    with pytest.raises(InvalidArgumentError, match="another holdout, statistic or role"):
        holdout.release("val_acc", soft, query="a")
    assert holdout.status().queries == 0
