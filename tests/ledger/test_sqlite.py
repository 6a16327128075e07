import random
import re
import sqlite3
import stat
import traceback

import pytest
from torch_holdout.errors import HoldoutError, HoldoutWarning, LedgerError
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.schema import SCHEMA_VERSION
from torch_holdout.ledger.sqlite import logs

from support.contracts.ledger_contract import REGISTRATION, LedgerContract, entry

NAME = "nightly"  # a word that the schema does not contain


class TestSqliteLedger(LedgerContract):
    @pytest.fixture
    def address(self, tmp_path):
        return f"sqlite:///{tmp_path}/holdout.db"


@pytest.fixture
def ledger(path):
    ledger = Ledger(f"sqlite:///{path}")
    record(ledger, entry("a", "guess", opened=True), 4711)
    return ledger


def register(ledger):
    return ledger.register(NAME, REGISTRATION, budget=3, private=True, fingerprint=None)


def record(ledger, row, threshold):
    with ledger.account(register(ledger)) as account:
        account.record(row, threshold)


def reopen(path):
    ledger = Ledger(f"sqlite:///{path}")
    return ledger.summary(register(ledger))


def edit(path, statement):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_settings_of_the_file(ledger, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with ledger._transaction() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "secure_delete", "busy_timeout")
        }
        # While a transaction is open its side files are there, as private as the file itself.
        for side in path.parent.iterdir():
            assert stat.S_IMODE(side.stat().st_mode) == 0o600
    assert pragmas == {
        "journal_mode": "wal",
        # Its commits are made durable by us (tests/ledger/test_logs.py), or else by SQLite.
        "synchronous": 0 if logs._CAN_PIN else 2,
        "secure_delete": 1,
        "busy_timeout": 60_000,
    }


def test_a_finished_secret_is_not_left_in_the_file(ledger, path):
    secret = 0x0123_4567_89AB
    record(ledger, entry("b", "guess"), secret)
    assert secret.to_bytes(6, "big") in path.read_bytes()
    record(ledger, entry("c"), None)
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert secret.to_bytes(6, "big") not in left


def test_relative_and_absolute_paths_are_one_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = Ledger("sqlite:///holdout.db")
    assert relative.address == f"sqlite:///{tmp_path}/holdout.db"


@pytest.mark.parametrize("keep", [0, 10, 100, 4096, 5_000, 30_000, -1])
def test_a_truncated_file_is_refused_and_left_alone(ledger, path, keep):
    content = path.read_bytes()[:keep]
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"damaged|cut off"):
        reopen(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("flip", [False, True], ids=["pages", "bits"])
def test_damage_never_reads_as_a_fresh_budget(ledger, path, flip):
    """Overwrite a page, or flip a bit: the ledger is refused, or opens with all it knew."""
    for query in "bcd":
        record(ledger, entry(query), None)
    whole = path.read_bytes()
    places = random.Random(0).sample(range(len(whole)), 150) if flip else range(0, len(whole), 4096)
    refused = 0
    for place in places:
        if flip:
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        else:
            path.write_bytes(whole[:place] + b"\x5a" * 4096 + whole[place + 4096 :])
        try:
            found = reopen(path)
        except HoldoutError:
            refused += 1
            continue
        assert (found.queries, found.releases) == (4, 3)
    assert refused > 0


def test_a_name_lost_from_the_index_is_refused(ledger, path):
    """The account is there, but its index says it is not: that must not make a new one."""
    for query in "bcd":
        record(ledger, entry(query), None)
    content = path.read_bytes()
    places = [m.start() for m in re.finditer(NAME.encode(), content)]
    refused = 0
    for place in places:
        path.write_bytes(content[:place] + b"nightlz" + content[place + len(NAME) :])
        try:
            assert reopen(path).queries == 4  # in the header, which only verify reads
        except HoldoutError:
            refused += 1
    assert (len(places), refused) == (3, 2)  # the account, its index and its header


def test_a_foreign_database_is_refused_and_left_alone(path):
    edit(path, "CREATE TABLE studies (id INTEGER)")
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="another program"):
        reopen(path)
    assert path.read_bytes() == before


def test_some_other_file_is_refused_and_left_alone(path):
    path.write_text("epoch,val_loss\n1,0.5\n" * 1000)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="something"):
        reopen(path)
    assert path.read_bytes() == before


def test_a_folder_is_refused(path):
    path.mkdir()
    with pytest.raises(LedgerError, match="is not a file"):
        reopen(path)


def test_a_path_in_place_of_a_url_is_told_what_to_write():
    with pytest.raises(LedgerError, match="For a file write sqlite:/// before its name"):
        Ledger("holdout.db")


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 0])
def test_a_ledger_of_another_schema_is_refused(ledger, path, version):
    edit(path, f"UPDATE th_ledger SET schema_version = {version}")
    with pytest.raises(LedgerError, match="Update torch_holdout"):
        reopen(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM th_queries",
        "DELETE FROM th_queries WHERE position = 1",
        "UPDATE th_holdouts SET queries = 0",
        "UPDATE th_holdouts SET budget = 9",
        "UPDATE th_holdouts SET rounds = 0",
        "UPDATE th_holdouts SET registration = '{'",
        "UPDATE th_holdouts SET registration = '{}'",
        "UPDATE th_holdouts SET chain = 'x'",
        "UPDATE th_queries SET kind = 'release'",
        "UPDATE th_queries SET charge = 5",
        "UPDATE th_queries SET value = 0.5",
        "UPDATE th_queries SET chain = 'x'",
        "UPDATE th_queries SET asked_at = 'never'",
        "UPDATE th_queries SET charge = 'x'",
        "UPDATE th_holdouts SET last_release = 0",
        """UPDATE th_holdouts SET registration = '{"statistics": {"a": {}}, "budget": 3}'""",
        """UPDATE th_holdouts SET registration = '{"statistics": {"a": 5}, "budget": 3}'""",
        "INSERT INTO th_secret_thresholds VALUES (1, 10, 5)",
    ],
)
def test_edited_rows_are_refused(ledger, path, statement):
    record(ledger, entry("b"), None)  # its release has closed the open round
    edit(path, statement)
    with pytest.raises(LedgerError, match="fit together"):
        reopen(path)


@pytest.mark.parametrize(
    "table",
    ["th_ledger", "th_holdouts", "th_queries", "th_secret_keys", "th_secret_thresholds"],
)
def test_a_missing_table_is_refused(ledger, path, table):
    edit(path, f"DROP TABLE {table}")
    with pytest.raises(LedgerError, match=r"damaged|without"):
        reopen(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM th_holdouts",
        "DELETE FROM th_secret_keys",
        "DROP INDEX th_latest",
        "CREATE TRIGGER t AFTER INSERT ON th_queries BEGIN DELETE FROM th_queries; END",
        "CREATE VIEW v AS SELECT 1",
    ],
)
def test_a_ledger_with_other_parts_is_refused(ledger, path, statement):
    edit(path, statement)
    with pytest.raises(LedgerError, match="damaged"):
        reopen(path)


@pytest.mark.parametrize("change", ["INSERT ON th_queries", "UPDATE ON th_holdouts"])
def test_a_database_that_quietly_writes_nothing_is_noticed(ledger, path, change):
    edit(path, f"CREATE TRIGGER t BEFORE {change} BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(LedgerError, match=r"1 row of the ledger, but it changed 0.*Nothing was"):
        record(ledger, entry("b"), None)
    edit(path, "DROP TRIGGER t")
    assert reopen(path).queries == 1


def test_a_lost_secret_threshold_is_noticed(ledger, path):
    edit(path, "DELETE FROM th_secret_thresholds")
    with pytest.raises(LedgerError, match="fit together"):
        reopen(path)


def test_a_read_only_file_is_refused(ledger, path):
    path.chmod(0o400)
    with pytest.raises(LedgerError, match="read-only"):
        reopen(path)


def test_a_file_others_can_read_is_warned_about(ledger, path):
    path.chmod(0o644)
    with pytest.warns(HoldoutWarning, match="chmod 600"):
        reopen(path)


def test_a_ledger_deleted_under_a_running_process_does_not_come_back_empty(ledger, path):
    path.unlink()
    with pytest.raises(LedgerError, match="nothing was released"):
        register(ledger)
    assert not path.exists()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(LedgerError, match="create it"):
        reopen(tmp_path / "none" / "holdout.db")


def test_no_draft_stays_behind(ledger, path):
    endings = {file.name.removeprefix("holdout.db") for file in path.parent.iterdir()}
    assert {"", ".lock"} <= endings <= {"", ".lock", "-wal", "-shm"}


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///x.db?mode=ro", "without options"),
        ("sqlite:///a?b.db", "without options"),
        ("sqlite:///a\0b.db", "Expected"),
        ("sqlite:///" + "x" * 5000, "usable path"),
        ("sqlite:///~nobody-here/x.db", "usable path"),
        ("memory://a/b", "Expected a ledger URL"),
        ("memory://user@a", "Expected a ledger URL"),
        ("memory://a:99", "Expected a ledger URL"),
        ("memory://a?b=c", "Expected a ledger URL"),
        ("mysql://host/db", "Expected a ledger URL"),
        ("holdout.db", "Expected a ledger URL"),
        ("", "Expected a ledger URL"),
        (None, "Expected a ledger URL"),
        (5, "Expected a ledger URL"),
    ],
)
def test_bad_urls_are_refused(url, word):
    with pytest.raises(LedgerError, match=word):
        Ledger(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://user:hunter2@host/db",
        "postgresql+psycopg://user:a@hunter2@host/db",
        "postgresql+psycopg://user:a@b/hunter2@host/db",
        "postgresql+psycopg://user@host/db;password=hunter2",
        "postgresql+psycopg://user@host/dbname=x password=hunter2",
        "mysql://user:a@hunter2@host/db",
    ],
)
def test_a_password_is_refused_and_not_shown(url):
    with pytest.raises(LedgerError) as caught:
        Ledger(url)
    assert "hunter2" not in str(caught.value)


def test_sql_errors_do_not_carry_parameters(ledger):
    secret = 987654 * 1000 + 321
    with pytest.raises(LedgerError, match="UNIQUE constraint") as caught:
        record(ledger, entry("a", "guess"), secret)  # the query exists
    assert str(secret) not in "".join(traceback.format_exception(caught.value))
