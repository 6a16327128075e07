"""One thread, because the models are tiny; a ledger in a file for each test that asks."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that wait for each other are slower than none."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def address(tmp_path):
    return f"sqlite:///{tmp_path}/private.db"
