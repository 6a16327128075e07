"""What several files about ledgers share."""

import pytest


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def address(request, tmp_path):
    """The URL of an empty ledger, on each backend."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres").new_url()
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/holdout.db"
