"""A quotient's two sums: exact, whatever the batches and ranks, and never better for a NaN."""

import copy
import math
import pickle
from fractions import Fraction

import pytest
import torch
import torch_holdout as th
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_holdout.bounds.ratios import Quotient
from torch_holdout.errors import InvalidArgumentError, SealedValueError

LEVELS = 65536
LOSS = th.Ratio(th.BoundedMean(0.0, 128.0), th.BoundedMean(1, 33), low=0.0, high=8.0)
GROUP = th.Ratio(th.ZeroOne(), th.ZeroOne(), low=0.0, high=1.0, mode="max")


def totals(statistic, *arguments, resolution=LEVELS):
    """The raw sums of numerators and denominators; only tests look into the seal."""
    sums = statistic.accumulator(resolution)
    sums.update(*arguments)
    return sums._sealed.tolist()


def quotient(statistic, *arguments):
    above, below = totals(statistic, *arguments)
    return Quotient.of(statistic.identity()).value(above, below, len(arguments[0]) * LEVELS)


def test_both_sums_are_of_the_clipped_values():
    found = totals(LOSS, torch.tensor([64.0, 200.0]), torch.tensor([17, 1]))
    assert found == [LEVELS // 2 + LEVELS, LEVELS // 2]


def test_it_is_no_mean_of_quotients():
    """The twin divides example by example: 1 token counts as much as 33."""
    losses, tokens = torch.tensor([8.0, 33.0]), torch.tensor([1, 33])
    assert quotient(LOSS, losses, tokens) == pytest.approx(41 / 34, abs=1e-3)
    assert float((losses / tokens).mean()) == pytest.approx(4.5)


def test_a_groups_accuracy_counts_its_examples():
    right = torch.tensor([True, True, False, True])
    member = torch.tensor([True, False, True, False])
    assert quotient(GROUP, right & member, member) == 0.5
    with pytest.raises(InvalidArgumentError, match=r"Drop .float\(\)"):
        GROUP.accumulator(LEVELS).update((right & member).float(), member)


@pytest.mark.parametrize("batch", [1, 3, 7, 50])
def test_batches_do_not_matter(batch):
    generator = torch.Generator().manual_seed(batch)
    losses, tokens = torch.rand(50, generator=generator) * 130, torch.arange(50)
    sums = LOSS.accumulator(LEVELS)
    for pair in zip(losses.split(batch), tokens.split(batch), strict=True):
        sums.update(*pair)
    assert sums._sealed.tolist() == totals(LOSS, losses, tokens)


def test_one_changed_example_moves_each_sum_by_at_most_the_resolution():
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        losses = 400 * torch.rand(9, generator=generator) - 100
        tokens = 100 * torch.rand(9, generator=generator) - 20
        before = totals(LOSS, losses, tokens)
        losses[3], tokens[3] = torch.randn(2, generator=generator) * 1000
        after = totals(LOSS, losses, tokens)
        assert all(abs(a - b) <= LEVELS for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("bounds", [(0.0, 128.0), (-128.0, 0.0), (-256.0, -128.0)])
@pytest.mark.parametrize("broken", ["numerator", "denominator"])
def test_what_is_not_finite_gives_the_worst_quotient(bad, mode, bounds, broken):
    """No finite value in its place would have been worse."""
    statistic = th.Ratio(th.BoundedMean(*bounds), th.BoundedMean(1, 33), -300.0, 300.0, mode=mode)
    losses = torch.linspace(*bounds, 9, dtype=torch.float64)
    tokens = torch.linspace(1, 33, 9, dtype=torch.float64)
    place = losses if broken == "numerator" else tokens
    place[4] = bad
    found = quotient(statistic, losses, tokens)
    low, high = bounds if broken == "numerator" else (1, 33)
    for value in torch.linspace(low, high, 20, dtype=torch.float64):
        place[4] = value
        other = quotient(statistic, losses, tokens)
        assert other <= found if mode == "min" else other >= found


@pytest.mark.parametrize(("mode", "worse"), [("min", 8.0), ("max", 0.0)])
def test_without_a_denominator_it_is_the_worse_bound(mode, worse):
    statistic = th.Ratio(th.BoundedMean(0, 9), th.BoundedMean(0, 9), 0.0, 8.0, mode=mode)
    assert quotient(statistic, torch.tensor([3.0, 4.0]), torch.tensor([0.0, 0.0])) == worse


def test_it_is_cut_to_its_bounds():
    assert quotient(LOSS, torch.tensor([128.0]), torch.tensor([1])) == 8.0
    assert quotient(LOSS, torch.tensor([-5.0]), torch.tensor([1])) == 0.0


def test_shares_of_ranks_have_sums_beyond_their_own_examples():
    tokens = torch.arange(1, 12)
    sums = LOSS.accumulator(LEVELS, size=11, rank=1, world=2)
    sums.update(tokens * 2.0, tokens)  # every rank has all rows
    assert (sums._kept, sums._seen) == (5, 11)
    whole = [a + b for a, b in zip(sums._sealed.tolist(), sums._beyond.tolist(), strict=True)]
    assert whole == totals(LOSS, tokens * 2.0, tokens)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((torch.ones(3),), "two arrays"),
        ((torch.ones(3), torch.ones(3), torch.ones(3)), "two arrays"),
        ((torch.ones(3), torch.ones(2)), "as many denominators as numerators"),
        ((torch.ones(3, 4), torch.ones(3)), r"shape \[B\]"),
        ((torch.ones(()), torch.ones(3)), "one value per example"),
        ((torch.ones(1).expand(3), torch.ones(3)), "value of its own"),
    ],
)
def test_what_cannot_be_divided_is_refused(arguments, said):
    sums = LOSS.accumulator(LEVELS)
    with pytest.raises(InvalidArgumentError, match=said):
        sums.update(*arguments)
    assert sums._seen == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((th.BoundedMean(0, 1), th.BoundedMean(-1, 1), 0, 1), "never negative"),
        ((th.CrossEntropy(5.0), th.ZeroOne(), 0, 1), "th.BoundedMean"),
        ((0.5, th.ZeroOne(), 0, 1), "float"),
        ((th.ZeroOne(), th.BoundedMean(0, 1, per_example=torch.abs), 0, 1), "per_example"),
        ((th.ZeroOne(), th.BoundedMean(1, 2), 2, 1), "smaller than `high`"),
        ((th.BoundedMean(1, 2), th.BoundedMean(1, 2), 3, 4), "own units"),
        ((th.BoundedMean(-2, -1), th.BoundedMean(0, 2), 0, 4), "own units"),
        ((th.ZeroOne(), th.ZeroOne(), 0, 1, "best"), "mode"),
    ],
)
def test_what_is_no_ratio_is_refused(arguments, said):
    with pytest.raises(InvalidArgumentError, match=said):
        th.Ratio(*arguments)


def test_identity_names_both_parts():
    assert LOSS.identity() == {
        **{"kind": "ratio", "low": 0.0, "high": 8.0, "mode": "min"},
        "numerator": {"kind": "bounded_mean", "low": 0.0, "high": 128.0},
        "denominator": {"kind": "bounded_mean", "low": 1.0, "high": 33.0},
    }
    assert pickle.loads(pickle.dumps(LOSS)) == LOSS
    assert b"statistics.ratio" not in pickle.dumps(LOSS)  # public paths only


def test_its_sums_stay_sealed():
    sums = LOSS.accumulator(LEVELS)
    sums.update(torch.ones(3), torch.ones(3))
    for look in (float, int, pickle.dumps, copy.deepcopy):
        with pytest.raises(SealedValueError):
            look(sums)
    assert repr(sums) == "<sealed sum>"
    with pytest.raises(InvalidArgumentError, match="two arrays"):
        sums.update_counted(torch.ones(3), torch.ones(3), 3)


@pytest.mark.parametrize("tokens", ["cpu", "cuda"])
def test_nothing_is_read_from_the_device(tokens):
    """Fake tensors have no data: whatever reads the device raises."""
    with FakeTensorMode():
        sums = LOSS.accumulator(LEVELS, size=70)
        for _ in range(10):
            sums.update(torch.empty(7, device="cuda"), torch.empty(7, device=tokens))
        assert sums._sealed.device.type == sums._squares.device.type == "cuda"
        assert sums._sealed.shape == (2,)


def test_the_quotient_is_exact():
    above, below = totals(LOSS, torch.arange(50.0), torch.arange(1, 51))
    means = LOSS.numerator, LOSS.denominator
    mean = [
        Fraction(own.low) + (Fraction(own.high) - Fraction(own.low)) * Fraction(n, 50 * LEVELS)
        for own, n in zip(means, (above, below), strict=True)
    ]
    assert quotient(LOSS, torch.arange(50.0), torch.arange(1, 51)) == float(mean[0] / mean[1])
