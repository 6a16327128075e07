import os

import pytest
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import Ledger

from support.contracts.ledger_contract import LedgerContract


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    def address(self):
        keeper = Ledger("memory://")
        yield keeper.address
        del keeper


def test_without_a_label_every_ledger_is_new():
    assert Ledger("memory://").address != Ledger("memory://").address


def test_a_forked_process_has_no_second_budget():
    ledger = Ledger("memory://")
    ledger.register(
        "val", {"statistics": {}, "budget": 1}, budget=1, private=True, fingerprint=None
    )
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ledger.names()
            outcome = b"answered"
        except LedgerError:
            outcome = b"refused"
        os.write(write, outcome)
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"refused"
    assert ledger.names() == ["val"]
