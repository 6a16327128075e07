"""Formulas that have moved are still found under their old paths, with a warning."""

import importlib

import pytest
from torch_holdout import accounting, bounds
from torch_holdout.accounting import _MOVED
from torch_holdout.bounds import published

OLD = [
    *((bounds, name, published.__name__) for name in published.__all__),
    *((accounting, name, home) for name, home in _MOVED.items()),
]


@pytest.mark.parametrize(("module", "name", "home"), OLD, ids=[name for _, name, _ in OLD])
def test_an_old_name_warns_where_it_is_used(module, name, home):
    with pytest.warns(DeprecationWarning, match=f"use {home}.{name}") as caught:
        value = getattr(module, name)
    assert value is getattr(importlib.import_module(home), name)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("old", "name"),
    [
        ("bounds.sample_sizes", "lecture_size"),
        ("bounds.thresholdout", "ThresholdoutPlan"),
        ("bounds.ladder", "ladder_error"),
        ("bounds.counting", "counting_fixed"),
        ("bounds.prediction", "convex_regulariser"),
        ("accounting.loss", "PrivacyLoss"),
        ("accounting.cap", "epsilon_cap"),
        ("accounting.composition", "compose_basic"),
        ("accounting.zcdp", "rho_for"),
    ],
)
def test_an_old_module_warns(old, name):
    module = importlib.import_module(f"torch_holdout.{old}")
    with pytest.warns(DeprecationWarning, match=name):
        assert callable(getattr(module, name))


def test_no_other_name_is_found():
    with pytest.raises(AttributeError, match="nothing"):
        _ = bounds.nothing
    with pytest.raises(AttributeError, match="nothing"):
        _ = accounting.nothing


def test_few_names_are_exported():
    assert len(bounds.__all__) == 23
    assert len(accounting.__all__) == 26
