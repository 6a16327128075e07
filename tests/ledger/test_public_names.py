"""Eight names are public; those that were exported before are found for one release."""

import importlib

import pytest
from torch_holdout import ledger

OLD = ("Account", "ChargeEntry", "Charged", "Debit", "Purpose", "RecordsAccount", "RecordsSummary")


def test_eight_names_are_public():
    assert len(ledger.__all__) == 8
    assert {"Entry", "Ledger", "verify"} <= set(ledger.__all__)


@pytest.mark.parametrize("name", [*OLD, "Stored"])
def test_an_old_name_is_found_with_a_warning(name):
    with pytest.warns(DeprecationWarning, match=rf"ledger\.(holdouts|records)\.{name}\.$") as told:
        value = getattr(ledger, name)
    module = str(told[0].message).split()[-1].rpartition(".")[0].rpartition(".")[0]
    assert value is getattr(importlib.import_module(module), name)


def test_another_name_is_none():
    with pytest.raises(AttributeError, match="nothing_like_this"):
        ledger.nothing_like_this  # noqa: B018
