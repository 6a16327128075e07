"""A board's statistics: those of scikit-learn where both have a value, and total."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from torch_holdout._noise.fixed import fixed_integers
from torch_holdout.service.server.config import StatisticSection
from torch_holdout.service.server.statistics import (
    arguments,
    auroc,
    cross_entropy,
    macro_f1,
    statistic,
)

CLASSES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(CLASSES)
def test_macro_f1_is_that_of_scikit_learn(rows):
    predictions, target = np.array(rows).T
    own = macro_f1(torch.from_numpy(predictions), torch.from_numpy(target))
    assert float(own) == pytest.approx(metrics.f1_score(target, predictions, average="macro"))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=1, max_size=40))
def test_auroc_is_that_of_scikit_learn_or_has_no_value(rows):
    scores, target = np.array(rows).T
    own = float(auroc(torch.from_numpy(scores).double(), torch.from_numpy(target)))
    if len(set(target)) == 2:
        assert own == pytest.approx(metrics.roc_auc_score(target, scores))
    else:
        assert np.isnan(own)


def test_cross_entropy_is_that_of_torch():
    logits = torch.linspace(-3, 3, 60).reshape(20, 3)[:, torch.tensor([2, 0, 1])]
    target = fixed_integers(3, (20,), seed=1)
    own = cross_entropy(logits.softmax(1).numpy(), target.numpy())
    theirs = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    assert own == pytest.approx(theirs.numpy(), rel=1e-5)


@pytest.mark.parametrize(
    ("section", "predictions", "target", "mean"),
    [
        ({"kind": "accuracy"}, np.array([1, 2, 0]), np.array([1, 0, 0]), 2 / 3),
        ({"kind": "accuracy"}, np.eye(3, dtype=np.float32), np.array([0, 1, 1]), 2 / 3),
        ({"kind": "cross_entropy", "high": 5.0}, np.eye(2), np.array([0, 0]), 2.5),
        ({"kind": "mse", "low": 0.0, "high": 4.0}, np.array([1e300, 1.0]), np.zeros(2), 2.5),
        ({"kind": "auroc", "blocks": 2}, np.array([0.1, 0.2, 0.3, 0.4]), np.ones(4, int), 0.0),
        ({"kind": "f1_macro", "blocks": 2}, np.array([0, 1, 1, 0]), np.array([0, 1, 1, 0]), 1.0),
    ],
    ids=["accuracy", "accuracy of chances", "log loss", "mse", "auroc", "f1"],
)
def test_what_has_no_value_counts_as_the_worse_bound(section, predictions, target, mean):
    own = StatisticSection(**section)
    made, given_values = statistic(own), arguments(own, predictions, target)
    values = given_values if isinstance(given_values, tuple) else (given_values,)
    if made.needs_order:
        level = made.total(values, 1000) / made.units(len(target))
    else:
        level = float(made.levels(values, {}, 1000).double().mean())
    assert made.to_user(level / 1000) == pytest.approx(mean, abs=1e-3)
