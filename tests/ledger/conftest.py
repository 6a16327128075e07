"""What several files about ledgers share."""

import pytest
from torch_holdout.ledger import Ledger


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def address(request, tmp_path):
    """The URL of an empty ledger, on each backend."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres").new_url()
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/holdout.db"


@pytest.fixture
def path(tmp_path):
    """Where a ledger file is to be."""
    return tmp_path / "holdout.db"


@pytest.fixture
def ledger(path):
    """A ledger file, not made yet."""
    return Ledger(f"sqlite:///{path}")
