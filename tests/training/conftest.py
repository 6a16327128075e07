"""What the guard's tests share."""

import logging

import pytest


@pytest.fixture
def quiet_lightning():
    """Leave out what Lightning says of every Trainer."""
    for name in ("lightning.pytorch", "pytorch_lightning", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
