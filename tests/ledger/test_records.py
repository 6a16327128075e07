import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import Ledger, verify
from torch_holdout.ledger.schema import SCHEMA_VERSION
from torchmetrics import MeanMetric

from support.contracts.records_contract import RecordsContract, register, spend

ASSETS = Path(__file__).parent.parent / "assets"


class TestSqliteRecords(RecordsContract):
    @pytest.fixture
    def address(self, tmp_path):
        return f"sqlite:///{tmp_path}/private.db"


class TestMemoryRecords(RecordsContract):
    @pytest.fixture
    def address(self, request):
        keep = Ledger(f"memory://{request.node.name[:40]}")
        request.node.keep = keep  # a named ledger lives as long as somebody holds it
        return keep.address


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE th_records SET spent = 0",
        "UPDATE th_records SET queries = 0",
        "UPDATE th_records SET variation = 0",
        "UPDATE th_charges SET variation = 0",
        "UPDATE th_charges SET charge = 1 WHERE position = 1",
        "UPDATE th_charges SET purpose = 'validation'",
        "DELETE FROM th_charges WHERE position = 2",
        "UPDATE th_records SET registration = '{'",
    ],
)
def test_edits_are_noticed(tmp_path, edit):
    path = tmp_path / "private.db"
    ledger = Ledger(f"sqlite:///{path}")
    account = register(ledger)
    spend(ledger, account, 10)
    spend(ledger, account, 20)
    connection = sqlite3.connect(path)
    connection.execute(edit)
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="fit together"):
        register(Ledger(f"sqlite:///{path}"))
    with pytest.raises(LedgerError, match="fit together"):
        Ledger(f"sqlite:///{path}").records_summary(account, check=True)


def old_ledger(tmp_path, version=1):
    path = tmp_path / "old.db"
    shutil.copy(ASSETS / f"ledger_v{version}.db", path)
    path.chmod(0o600)
    return path


def holdout_of(path):
    return th.ReusableHoldout(
        f"sqlite:///{path}",
        name="val",
        size=4,
        statistics={"val_acc": th.ZeroOne()},
        mechanism=th.Thresholdout(threshold=0.1, sigma=0.01, guess="last"),
        budget=3,
        seed=7,
    )


def version_of(path):
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT schema_version FROM th_ledger").fetchall()
    connection.close()
    return found


def test_a_ledger_of_version_1_is_opened_with_its_answers_and_its_budget(tmp_path):
    path = old_ledger(tmp_path)
    assert version_of(path) == [(1,)]
    holdout = holdout_of(path)
    sums = holdout.accumulator("val_acc")
    sums.update(torch.tensor([True, True, False, True]))
    answer = holdout.release("val_acc", sums, query="a")
    assert (answer.value, answer.kind, answer.budget_left) == (0.75, "repeat", 1)
    assert holdout.status().queries == 3
    assert version_of(path) == [(SCHEMA_VERSION,)]
    account = register(Ledger(f"sqlite:///{path}"))
    spend(Ledger(f"sqlite:///{path}"), account, 10)


def test_a_ledger_of_version_2_goes_on_with_names_of_runs(tmp_path):
    path = old_ledger(tmp_path, version=2)
    assert version_of(path) == [(2,)]
    holdout = holdout_of(path)
    sums = holdout.accumulator("val_acc")
    sums.update(torch.tensor([False, False, False, False]))
    with th.named_run("later"):
        assert holdout.release("val_acc", sums, query="b").kind == "repeat"
        assert holdout.release("val_acc", sums, query="d").kind == "release"
        assert holdout.release("val_acc", sums, query="e").kind == "exhausted"
    assert version_of(path) == [(SCHEMA_VERSION,)]
    ledger = Ledger(f"sqlite:///{path}")
    account = ledger.accounts()["val"]
    assert [found.run for found in ledger.answers(account)] == [None, None, None, "later"]
    assert [(found.run, found.count) for found in ledger.refusals(account)] == [("later", 1)]
    assert [found.queries for found in ledger.charges(ledger.records_accounts()["records"])] == [3]
    assert verify(f"sqlite:///{path}").findings == []


def rows_of(path):
    connection = sqlite3.connect(path)
    content = list(connection.iterdump())
    connection.close()
    return content


def test_a_ledger_of_version_3_answers_again_and_stays_what_it_is(tmp_path):
    path = old_ledger(tmp_path, version=3)
    address, before = f"sqlite:///{path}", rows_of(path)
    rule = th.Thresholdout(threshold=0.05, sigma=0.01, guess="last")
    acc, loss = th.ZeroOne(), th.BoundedMean(0, 5)
    blocks = th.Blockwise(MeanMetric(), blocks=5, low=0, high=1)
    val = th.ReusableHoldout(
        address,
        name="val",
        statistics={"val_loss": loss, "val_acc": acc},
        mechanism=rule,
        budget=5,
        size=50,
    )
    ladder = th.ReusableHoldout(
        address,
        name="ladder",
        statistics={"val_acc": acc},
        mechanism=th.Ladder(step=0.05),
        budget=2,
        size=50,
    )
    cut = th.ReusableHoldout(
        address,
        name="blocks",
        statistics={"val_auroc": blocks},
        mechanism=th.LaplaceMechanism(epsilon=1.0),
        budget=3,
        size=50,
    )
    assert [holdout.budget_left for holdout in (val, ladder, cut)] == [0, 0, 2]
    for query, value in (("e0", 0.1875), ("e1", 0.1875), ("e2", 0.59375), ("e3", 0.90625)):
        answer = val.recall("val_acc", query)
        assert (answer.value, answer.kind) == (value, "repeat")
    assert [ladder.recall("val_acc", query).value for query in ("e0", "e1")] == [0.1875, 0.40625]
    assert (val.status().queries, val.status().exhausted) == (7, True)
    assert len(val.intervals()) == 7
    assert not cut.certificate().one_sided_guesses
    ledger = Ledger(address)
    assert ledger.records_summary(ledger.records_accounts()["patients"], check=True).queries == 8
    assert verify(address).findings == []
    lost = [line for line in before if line not in rows_of(path)]
    assert [line.split(" VALUES")[0] for line in lost] == ['INSERT INTO "th_ledger"']  # its version


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_an_upgraded_ledger_has_headers_of_all_its_accounts(tmp_path, version):
    path = old_ledger(tmp_path, version)
    address = f"sqlite:///{path}"
    Ledger(address).names()
    ledger = Ledger(address)
    names = [*ledger.accounts(), *ledger.records_accounts()]
    with closing(sqlite3.connect(path)) as connection:
        assert [row[0] for row in connection.execute("SELECT name FROM th_headers")] == names
        connection.execute("UPDATE th_holdouts SET fingerprint = 'f' WHERE id = 1")
        connection.commit()
    (finding,) = verify(address).findings
    assert (finding.account, "fingerprint" in finding.problem) == (names[0], True)


def test_reading_a_ledger_of_version_1_twice_at_once(tmp_path):
    address = f"sqlite:///{old_ledger(tmp_path)}"
    first, second = Ledger(address), Ledger(address)
    assert first.names() == second.names() == ["val", "other"]
    assert first.records_accounts() == second.records_accounts() == {}


def test_a_ledger_of_version_1_that_lost_a_table_is_refused(tmp_path):
    path = old_ledger(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE th_secret_thresholds")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(f"sqlite:///{path}").names()
    assert version_of(path) == [(1,)]


def test_looking_for_an_account_makes_no_file(tmp_path):
    assert Ledger(f"sqlite:///{tmp_path}/none.db").find_records("records") is None
    assert list(tmp_path.iterdir()) == []
