"""The sum of squared levels is kept beside the sum: exact, sealed, and only where it fits."""

import copy
import pickle

import pytest
import torch
import torch_holdout as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_holdout.errors import SealedValueError
from torch_holdout.statistics.sealed_sums import JoinedLevels

from support.oracles.host_reads import HostReads
from support.oracles.squares import levels_of, squares_of

LEVELS = 65536
LOSS = th.BoundedMean(-1.0, 3.0)


def added(statistic, batches, resolution=LEVELS, size=1000):
    """The sums after some batches."""
    sums = statistic.accumulator(resolution, size=size)
    for batch in batches:
        sums.update(batch)
    return sums


def differs(statistic, values, batch, resolution=LEVELS):
    """Whether sum or squares are not those that numpy and Python's integers give."""
    sums = added(statistic, values.split(batch), resolution, len(values))
    levels = levels_of(statistic, values, resolution)
    return (int(sums._sealed), int(sums._squares)) != (sum(levels), squares_of(levels))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.integers(1, 40),
    st.sampled_from([1, 3, 1000, LEVELS, 2**24]),
    st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    st.sampled_from(["min", "max"]),
)
def test_squares_are_those_of_an_independent_computation(values, batch, resolution, dtype, mode):
    statistic = th.BoundedMean(-1.0, 3.0, mode=mode)
    assert not differs(statistic, torch.tensor(values, dtype=dtype), batch, resolution)


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batching_does_not_matter(batch, dtype):
    values = torch.rand(1000, generator=torch.Generator().manual_seed(0)) * 5 - 1.5
    assert not differs(LOSS, values.to(dtype), batch)


def of_the_batch_sum(self, *arguments, **named):
    """A broken twin: the square of the sum, not the sum of squares."""
    levels = self._levels(arguments, named, self.resolution)
    self._sealed = (self._sealed or 0) + levels.sum()
    self._squares = (self._squares or 0) + levels.sum() ** 2


def in_single_precision(self, *arguments, **named):
    """A broken twin: squares that were rounded."""
    levels = self._levels(arguments, named, self.resolution)
    self._sealed = (self._sealed or 0) + levels.sum()
    self._squares = (self._squares or 0) + (levels.float() ** 2).sum()


@pytest.mark.parametrize("twin", [of_the_batch_sum, in_single_precision])
def test_broken_twins_are_caught(twin, monkeypatch):
    monkeypatch.setattr(JoinedLevels, "update", twin)
    values = torch.rand(1000, generator=torch.Generator().manual_seed(0)) * 5 - 1.5
    assert differs(LOSS, values, 64)


def test_zeros_and_ones_have_the_squares_of_their_sum():
    """What closing checks: S2 = L S1."""
    right = torch.rand(500, generator=torch.Generator().manual_seed(1)) < 0.3
    sums = added(th.ZeroOne(), right.split(64))
    assert int(sums._squares) == LEVELS * int(sums._sealed) == LEVELS**2 * int(right.sum())


def test_counted_values_have_the_squares_of_each_example():
    values, counts = torch.tensor([0.1, 2.5, 9.0]), torch.tensor([3, 0, 4])
    sums = LOSS.accumulator(LEVELS, size=7)
    sums.update_counted(values, counts, 7)
    one_by_one = added(LOSS, [values.repeat_interleave(counts)], size=7)
    assert int(sums._squares) == int(one_by_one._squares)
    assert LOSS.accumulator(LEVELS).update_counted(values, counts, 7) is None


class TestWhereTheyFit:
    @pytest.mark.parametrize(
        ("size", "resolution", "keeps"),
        [
            (None, LEVELS, False),
            (1, 1, True),
            (2**30 - 1, LEVELS, True),
            (2**30, LEVELS, False),  # 2^62
            (2**14 - 1, 2**24, True),
            (2**14, 2**24, False),
            (2**40, 2**11 - 1, True),
            (2**40, 2**11, False),
        ],
    )
    def test_by_the_registered_size(self, size, resolution, keeps):
        sums = added(th.BoundedMean(0, 1), [torch.tensor([0.5, 2.0])], resolution, size)
        sums.update_counted(torch.tensor([1.0]), torch.tensor([1]), 1)
        assert sums.keeps_squares == keeps == (sums._squares is not None)
        assert int(sums._sealed) > 0

    def test_the_largest_sum_does_not_overflow(self):
        size = 2**30 - 1
        sums = th.BoundedMean(0, 1).accumulator(LEVELS, size=size)
        sums.update_counted(torch.ones(1), torch.tensor([size]), size)
        assert int(sums._squares) == size * LEVELS**2 < 2**62

    def test_rows_of_blocks_have_none(self):
        sums = th.Blockwise(lambda p: p.mean(), 2, 0, 1).accumulator(LEVELS, size=8)
        sums.update(torch.rand(8))
        assert not sums.keeps_squares
        assert sums._squares is None


@pytest.mark.parametrize("size", [7, 8, 100])
@pytest.mark.parametrize("world", [2, 3])
def test_padding_is_kept_apart(size, world):
    values = torch.rand(size, generator=torch.Generator().manual_seed(2)) * 4 - 1
    share = -(-size // world)
    padded = torch.cat([values, values])[: share * world]
    own, beyond = 0, 0
    for rank in range(world):
        sums = LOSS.accumulator(LEVELS, size=size, rank=rank, world=world)
        for batch in padded[rank::world].split(3):
            sums.update(batch)
        own += int(sums._squares)
        beyond += 0 if sums._squares_beyond is None else int(sums._squares_beyond)
    assert own == squares_of(levels_of(LOSS, values, LEVELS))
    assert beyond == squares_of(levels_of(LOSS, padded[size:], LEVELS))


class TestDevice:
    def test_nothing_is_read_back(self):
        sums = LOSS.accumulator(LEVELS, size=9, rank=0, world=3)
        values, counts = torch.rand(4), torch.ones(4, dtype=torch.int64)
        with HostReads() as reads:
            for _ in range(3):
                sums.update(values)
            sums.update_counted(values, counts, 4)
            assert reads.count == 0
        assert sums._squares_beyond is not None

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_they_stay_on_the_device(self, dtype):
        with FakeTensorMode():
            sums = LOSS.accumulator(LEVELS, size=9, rank=0, world=3)
            for _ in range(3):
                sums.update(torch.empty(4, device="cuda", dtype=dtype))
            for total in (sums._squares, sums._squares_beyond):
                assert (total.device.type, total.dtype) == ("cuda", torch.int64)

    def test_no_graph_and_inference_mode(self):
        values = torch.rand(3, requires_grad=True)
        sums = LOSS.accumulator(LEVELS, size=6)
        with torch.inference_mode():
            sums.update(values)
        sums.update(values)
        assert not sums._squares.requires_grad


class TestSeal:
    @pytest.fixture
    def sums(self):
        sums = th.BoundedMean(0, 1).accumulator(LEVELS, size=3, rank=0, world=2)
        sums.update(torch.tensor([0.731, 0.731, 0.4]))
        return sums

    @pytest.mark.parametrize("look", [copy.copy, copy.deepcopy, pickle.dumps, vars, float, int])
    def test_no_way_to_look(self, sums, look):
        with pytest.raises((SealedValueError, TypeError)) as caught:
            look(sums)
        for secret in (sums._squares, sums._squares_beyond):
            assert str(int(secret)) not in str(caught.value)

    def test_no_text_and_no_public_attribute_has_them(self, sums):
        secrets = {int(sums._squares), int(sums._squares_beyond)}
        assert len(secrets) == 2
        public = [getattr(sums, name) for name in dir(sums) if not name.startswith("_")]
        assert not any(isinstance(value, torch.Tensor) for value in public)
        assert secrets.isdisjoint(value for value in public if isinstance(value, int))
        for text in (repr(sums), str(sums), f"{sums}"):
            assert text == "<sealed sum>"

    def test_torch_save_is_refused(self, sums, tmp_path):
        with pytest.raises(SealedValueError):
            torch.save({"sums": sums}, tmp_path / "sums.pt")
