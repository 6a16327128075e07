"""What a vote costs as it is, against a loop over all neighbours."""

import math

import pytest
import torch
from torch_holdout.accounting import (
    soft_majority_rdp,
)
from torch_holdout.prediction.mechanisms import (
    SoftMajority,
    vote_table,
)

from support.oracles.prediction_laws import (
    soft_majority,
)


class TestPrivateLoss:
    """The loss of the votes as they are: written out for every member that could change."""

    @pytest.mark.parametrize("eta", [0.05, 0.5, 3.0])
    @pytest.mark.parametrize("order", [1.1, 2.0, 30.0])
    def test_against_a_loop(self, eta, order):
        queries = [[5, 0, 0], [3, 1, 1], [2, 2, 1], [0, 4, 1]]

        def divergence(votes, other):
            p, q = soft_majority(votes, eta), soft_majority(other, eta)
            return math.log(math.fsum(p[k] ** order * q[k] ** (1 - order) for k in p)) / (order - 1)

        total = 0.0
        for votes in queries:
            found = []
            for a, b in [(a, b) for a in range(3) for b in range(3) if a != b and votes[a]]:
                moved = list(votes)
                moved[a], moved[b] = moved[a] - 1, moved[b] + 1
                found += [divergence(votes, moved), divergence(moved, votes)]
            total += max(found)
        loss = SoftMajority(eta=eta).private_loss(torch.tensor(queries), [order, 2 * order])
        assert loss.shape == (2,)
        assert loss[0].item() == pytest.approx(total, rel=1e-9)

    def test_never_above_the_worst_case(self):
        table = vote_table(torch.randn(12, 300, 5))
        worst = soft_majority_rdp(0.2, 12, 5)
        loss = SoftMajority(eta=0.2).private_loss(table, [1.5, 10.0, 1e5])
        for found, order in zip(loss.tolist(), (1.5, 10.0, 1e5), strict=True):
            assert 0 < found <= 300 * worst(order)
