"""Boards on the loopback; what a client remembers stays in the test's own folder."""

import logging

import numpy as np
import pytest

from support.machines.board_stand_in import TOKEN, BoardStandIn


@pytest.fixture(autouse=True)
def own_memory(tmp_path, monkeypatch):
    """Keep what is remembered of boards in a folder of its own, and no token in the environment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TORCH_HOLDOUT_TOKEN", raising=False)
    return tmp_path / "state" / "torch_holdout" / "boards.json"


@pytest.fixture
def token(monkeypatch):
    """The team's token, in the environment."""
    monkeypatch.setenv("TORCH_HOLDOUT_TOKEN", TOKEN)
    return TOKEN


@pytest.fixture
def board(token):
    """A ladder board of 40 rows and 10 classes; row i is of class i % 10."""
    stand_in = BoardStandIn(np.arange(40) % 10)
    yield stand_in
    stand_in.stop()


@pytest.fixture
def quiet_lightning():
    """Leave out what Lightning says of every Trainer."""
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
