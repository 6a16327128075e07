"""Each member gives each query one vote, whatever it says."""

import math

import pytest
import torch
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.mechanisms import (
    vote_table,
)

NAN, INF = float("nan"), float("inf")


class TestVotes:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("classes", [2, 3, 10, 257])
    def test_against_a_loop(self, dtype, classes):
        generator = torch.Generator().manual_seed(classes)
        outputs = torch.randint(-3, 4, (7, 40, classes), generator=generator).to(dtype)
        odd = torch.randint(0, 20, outputs.shape, generator=generator)
        outputs = outputs.masked_fill(odd == 0, INF).masked_fill(odd == 1, -INF)
        outputs[:, :10] = outputs[:, :10].masked_fill(odd[:, :10] == 2, NAN)
        outputs[3, 0], outputs[4, 0] = -INF, NAN
        expected = torch.zeros(40, classes, dtype=torch.int64)
        for member in outputs.tolist():
            for query, scores in enumerate(member):
                bad = any(math.isnan(s) for s in scores)
                expected[query, 0 if bad else scores.index(max(scores))] += 1
        assert vote_table(outputs).equal(expected)

    def test_whatever_the_layout(self):
        outputs = torch.randn(5, 8, 4)
        assert vote_table(outputs.permute(2, 0, 1).contiguous().permute(1, 2, 0)).equal(
            vote_table(outputs)
        )
        assert vote_table(outputs.requires_grad_()).requires_grad is False
        assert vote_table(torch.randn(5, 0, 4)).shape == (0, 4)

    def test_every_member_has_one_vote(self):
        table = vote_table(torch.full((9, 3, 5), NAN))
        assert table.tolist() == [[9, 0, 0, 0, 0]] * 3
        assert vote_table(torch.zeros(9, 3, 5)).tolist() == [[9, 0, 0, 0, 0]] * 3

    @pytest.mark.parametrize("shape", [(3, 4), (3, 4, 1), (2, 3, 4, 5), (3,)])
    def test_wrong_shapes(self, shape):
        with pytest.raises(InvalidArgumentError, match=r"Expected .* but got .*\. Stack"):
            vote_table(torch.zeros(shape))

    @pytest.mark.parametrize("dtype", [torch.bool, torch.complex64])
    def test_wrong_numbers(self, dtype):
        with pytest.raises(InvalidArgumentError, match="real numbers"):
            vote_table(torch.zeros(2, 3, 4, dtype=dtype))
