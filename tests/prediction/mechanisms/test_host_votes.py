"""Votes of many members on the processor are those of torch's own search, row by row."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_holdout.prediction.mechanisms import host_votes, vote_table
from torch_holdout.prediction.mechanisms.votes import count_votes, preferred_classes


def row_by_row(scores):
    best, label = scores.max(dim=-1)
    label = label.masked_fill(best.isnan(), 0)
    classes = range(scores.shape[-1])
    return torch.stack([(label == each).sum(dim=0) for each in classes], dim=1)


def hard_scores(members, queries, classes, dtype=torch.float32, seed=0):
    """Whole numbers, so that many are equal, zeros of both signs, infinities and NaN anywhere."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(high):
        return torch.randint(high, (members, queries, classes), generator=generator)

    scores = (drawn(4) - 1).to(dtype)
    if dtype.is_floating_point:
        special = drawn(40)
        for place, value in enumerate((-0.0, torch.inf, -torch.inf, torch.nan)):
            scores[special == place] = value
        scores[0, :3] = torch.tensor([-torch.inf, torch.nan, torch.inf])[:, None]
    return scores


def test_votes_are_those_of_a_search_row_by_row():
    for members, queries, classes in ((50, 1000, 10), (3, 2001, 2), (600, 13, 3), (1, 4099, 32)):
        for dtype in (torch.float32, torch.float64, torch.int64):
            scores = hard_scores(members, queries, classes, dtype)
            assert host_votes.on_host(scores, members * queries, classes)
            assert torch.equal(vote_table(scores), row_by_row(scores))
            assert preferred_classes(scores).dtype == torch.uint8


def test_parts_of_a_larger_tensor_and_several_parts(monkeypatch):
    monkeypatch.setattr(host_votes, "_AT_ONCE", 700)  # so that queries are taken in parts
    scores = hard_scores(40, 300, 14)
    for part in (scores[3:33, 7:290, 1:11], scores.transpose(0, 1), scores.flip(2)):
        assert torch.equal(vote_table(part), row_by_row(part))
    learned = scores.double().requires_grad_()
    assert torch.equal(vote_table(learned), row_by_row(scores))
    with torch.inference_mode():
        assert torch.equal(vote_table(scores + 0), row_by_row(scores))


def test_more_members_than_a_byte_counts():
    labels = torch.zeros(1000, 9, dtype=torch.uint8)
    labels[:, 4] = 2
    labels[:511, 5] = 1
    assert count_votes(labels, 3)[3:6].tolist() == [[1000, 0, 0], [0, 0, 1000], [489, 511, 0]]


def test_twins_that_take_the_last_of_equals_or_let_a_nan_vote_are_caught():
    scores = hard_scores(50, 1000, 10)
    best = scores.nan_to_num(nan=-torch.inf).max(dim=-1).values
    last = 9 - (scores.flip(2) == best[..., None]).to(torch.uint8).argmax(dim=-1)
    table = torch.stack([(last == each).sum(dim=0) for each in range(10)], dim=1)
    assert not torch.equal(table, vote_table(scores))
    voting = scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
    assert not torch.equal(row_by_row(voting), vote_table(scores))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_numbers_few_rows_and_followed_tensors_take_torchs_way(dtype):
    scores = hard_scores(50, 100, 10, dtype)
    assert not host_votes.on_host(scores, 5000, 10)
    assert torch.equal(vote_table(scores), row_by_row(scores))
    assert not host_votes.on_host(scores.float(), 5, 10)
    assert not host_votes.on_host(scores.float(), 5000, 33)
    with FakeTensorMode():
        fake = torch.zeros(50, 1000, 10)
        assert not host_votes.on_host(fake, 50_000, 10)
        assert vote_table(fake).shape == (1000, 10)
