"""Repeated queries have the same answer, free, for each tenant."""

import pytest
import torch
from torch import nn
from torch_holdout.errors import (
    BudgetExhaustedError,
)
from torch_holdout.prediction import PrivacyBudget
from torch_holdout.prediction.mechanisms import (
    SoftMajority,
)

from support.builders.members import Members, abstained, queries
from support.builders.predictors import make


def test_repeats_are_the_same_and_free():
    predictor = make(SoftMajority(eta=0.01), cache=100, budget=PrivacyBudget(epsilon=1.0))
    x = queries(10)
    first = predictor(x)
    for _ in range(3):
        assert torch.equal(predictor(x.clone()), first)
    assert predictor.status().queries == 10
    assert torch.equal(predictor(x.flip(0)), first.flip(0))
    assert predictor.status().queries == 10


def test_a_full_repeat_asks_the_models_nothing():
    class Strict(Members):
        def output_chunks(self, inputs):
            return super().output_chunks(inputs.view(inputs.size(0), -1))  # refuses zero rows

    predictor = make(ensemble=Strict(), cache=10)
    first = predictor(queries(3))
    assert torch.equal(predictor(queries(3)), first)


def test_the_same_query_twice_in_a_batch():
    cached, plain = make(cache=10), make()
    x = queries(1).repeat(6, 1)
    assert len(set(cached(x).tolist())) == 1
    assert cached.status().queries == 1
    plain(x)
    assert plain.status().queries == 6


def test_each_tenant_has_a_cache_of_its_own():
    predictor = make(cache=100)
    x = queries(3)
    predictor(x, tenant="a")
    predictor(x, tenant="b")
    assert predictor.status().queries == 6
    predictor(x, tenant="a")
    assert predictor.status().queries == 6


def test_retraining_clears_the_cache_and_abstentions_are_not_kept():
    predictor = make(cache=100, on_exhausted="abstain")
    x = queries(2)
    predictor(x)
    with torch.no_grad():
        predictor.ensemble.weight.mul_(2)
    predictor(x)
    assert predictor.status().queries == 4
    assert abstained(predictor(queries(10_000, seed=3)))
    assert not abstained(predictor(queries(10_000, seed=3)[:2]))


def test_weights_at_the_address_of_others_are_others():
    """What is freed is used again: new weights are often where the old ones were."""
    predictor, x = make(cache=100, budget=PrivacyBudget(epsilon=100.0)), queries(1)
    predictor(x)
    for number in range(20):
        shape = predictor.ensemble.weight.shape
        del predictor.ensemble.weight
        predictor.ensemble.weight = nn.Parameter(torch.zeros(shape))
        predictor(x)
        assert predictor.status().queries == number + 2


def test_cached_answers_last_beyond_the_budget():
    predictor = make(cache=1000)
    bought = predictor.plan().queries
    x = queries(bought)
    first = predictor(x)
    assert torch.equal(predictor(x), first)
    with pytest.raises(BudgetExhaustedError):
        predictor(queries(1, seed=5))
