"""The ranks' squares arrive in the same row and the same host read as their sums."""

import pytest
import torch
import torch_holdout as th
from torch import nn
from torch_holdout._fingerprints.weights import LANES, weights_fingerprint
from torch_holdout.errors import PartialPassError
from torch_holdout.holdout.checks import Question
from torch_holdout.holdout.gathering import (
    Count,
    Gathered,
    RankRow,
    Reading,
    _count,
    _require_whole_pass,
    gather,
)

from support.builders.holdouts import make_holdout
from support.oracles.host_reads import HostReads
from support.oracles.squares import levels_of, squares_of

LEVELS = 65536
LOSS = th.BoundedMean(0.0, 5.0)
STATISTICS = {
    "loss": LOSS,
    "acc": th.ZeroOne(),
    "blocks": th.Blockwise(lambda p: p.mean(), 5, 0.0, 1.0),
}


def values_of(size, dtype=torch.float32, seed=0):
    return (torch.rand(size, generator=torch.Generator().manual_seed(seed)) * 7 - 1).to(dtype)


def shares(values, world, *, padded):
    """The values that each rank of a sampler gets."""
    share = -(-len(values) // world)
    whole = torch.cat([values] * (world + 1))[: share * world] if padded else values
    return [whole[rank::world] for rank in range(world)]


def sent(holdout, parts, batch=3):
    """What the ranks gather: one packed row for each of them, read back."""
    rows = []
    nothing = torch.zeros(LANES, dtype=torch.int64)
    for rank, values in enumerate(parts):
        sums = holdout.accumulator("loss", rank=rank, world=len(parts))
        for part in values.split(batch):
            sums.update(part)
        packed = RankRow.pack(
            holdout=[_count(sums)],
            guess=[_count(None)],
            lanes=nothing,
            confirm=nothing,
            structure=0,
            failed=False,
        )
        assert packed.dtype == torch.int64
        rows.append(RankRow.unpack(packed.tolist(), 1))
    ranks = Gathered(["loss"], rows)
    copied = ["loss"] if ranks.everywhere("loss", holdout.size) else []
    return Gathered(["loss"], rows, copied=copied)


def holdout_of(size):
    return make_holdout(statistics={"loss": LOSS}, size=size)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 10, 31])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shares_add_up_to_the_squares_of_all(world, size, padded, dtype):
    values = values_of(size, dtype)
    holdout = holdout_of(size)
    ranks = sent(holdout, shares(values, world, padded=padded))
    _require_whole_pass(ranks, holdout._registration, "query")
    levels = levels_of(LOSS, values, LEVELS)
    assert (ranks.total("loss"), ranks.squares("loss")) == (sum(levels), squares_of(levels))


@pytest.mark.parametrize("world", [2, 3])
def test_equal_copies_count_once(world):
    values, holdout = values_of(31), holdout_of(31)
    ranks = sent(holdout, [values] * world, batch=5)
    assert ranks.copied == ["loss"]
    _require_whole_pass(ranks, holdout._registration, "query")
    assert ranks.squares("loss") == squares_of(levels_of(LOSS, values, LEVELS))


def test_twin_that_counts_padding_is_caught():
    """A twin of ``squares`` that adds what came after the limit."""
    values = values_of(10)
    ranks = sent(holdout_of(10), shares(values, 3, padded=True))
    twin = sum(row.holdout[0].squares + row.holdout[0].squares_beyond for row in ranks.rows)
    assert ranks.squares("loss") == squares_of(levels_of(LOSS, values, LEVELS)) != twin


def test_copies_of_the_same_sum_and_other_squares_are_other_copies():
    holdout = holdout_of(4)
    one, other = torch.tensor([1.0, 1.0, 2.0, 2.0]), torch.tensor([1.0, 1.0, 1.0, 3.0])
    # 5 is no power of 2: only where the levels' sums agree is the question one of squares.
    assert sum(levels_of(LOSS, one * 1.25, LEVELS)) == sum(levels_of(LOSS, other * 1.25, LEVELS))
    ranks = sent(holdout, [one * 1.25, other * 1.25])
    assert ranks.copied == ["loss"]
    with pytest.raises(PartialPassError, match="they differ"):
        _require_whole_pass(ranks, holdout._registration, "query")


def test_a_rank_without_a_batch_has_squares_of_zero():
    ranks = sent(holdout_of(1), [values_of(1), values_of(0)])
    assert ranks.rows[1].holdout[0].squares == 0
    assert ranks.squares("loss") == ranks.rows[0].holdout[0].squares


def test_one_rank_without_squares_is_enough_for_none():
    rows = [
        RankRow((count,), (Count(0, 0, 0),), (0,) * LANES, (0,) * LANES, 0, False)
        for count in (Count(5, 2, 2, 0, 25, 0), Count(5, 2, 2))
    ]
    assert Gathered(["a"], rows[:1]).squares("a") == 25
    assert Gathered(["a"], rows).squares("a") is None


def question(holdout, values, query):
    given = {"loss": values, "acc": values > 2, "blocks": values}
    sums = {name: holdout.accumulator(name) for name in holdout.statistics}
    for name, own in sums.items():
        for part in given[name].split(64):
            own.update(part)
    return Question(sums=sums, query=query, guesses={}, fresh=False)


@pytest.mark.parametrize("by_weights", [True, False])
def test_readings_have_them_after_one_host_read(by_weights):
    model = nn.Linear(2, 2)
    holdout = make_holdout(statistics=STATISTICS, size=200)
    values = values_of(200)
    holdout.accumulator("blocks").update(values)  # tries the metric out, once in a process
    with HostReads() as reads:
        query = weights_fingerprint(model) if by_weights else "weights 1"
        asked = question(holdout, values, query)
        assert reads.count == 0
        ranks = gather(holdout._registration, holdout.address, asked)
        assert reads.count == 1
    registration = holdout._registration
    assert ranks.reading("loss", registration, asked).squares == squares_of(
        levels_of(LOSS, values, LEVELS)
    )
    accuracy = ranks.reading("acc", registration, asked)
    assert accuracy.squares == LEVELS * accuracy.total == LEVELS**2 * int((values > 2).sum())
    assert ranks.reading("blocks", registration, asked).squares is None


def test_a_holdout_too_large_for_them_has_none():
    holdout = make_holdout(statistics={"loss": LOSS}, size=2**30)
    sums = holdout.accumulator("loss")
    sums.update_counted(torch.ones(1), torch.tensor([2**30]), 2**30)
    asked = Question(sums={"loss": sums}, query="a", guesses={}, fresh=False)
    ranks = gather(holdout._registration, holdout.address, asked)
    assert ranks.squares("loss") is None
    assert ranks.reading("loss", holdout._registration, asked).squares is None


def test_nothing_of_them_is_shown():
    count = Count(731, 2, 2, 0, 7313, 7317)
    row = RankRow((count,), (count,), (0,) * LANES, (0,) * LANES, 0, False)
    for raw in (count, row, Gathered(["a"], [row]), Reading(731, None, "a", 7313)):
        for text in (repr(raw), str(raw), f"{raw}"):
            assert "731" not in text
