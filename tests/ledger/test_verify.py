"""``verify`` says what is wrong and where, several things at once, and changes nothing."""

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
import torch_holdout as th
from torch_holdout.cli import app
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import Ledger, holdouts, replay, verify
from typer.testing import CliRunner

from support.builders.holdouts import ask, make_holdout
from support.contracts.ledger_contract import Fingerprint
from support.contracts.records_contract import register, spend

ASSETS = Path(__file__).parent.parent / "assets"
MECHANISM = th.Thresholdout(threshold=0.2, sigma=0.01, guess="last")


def fill(url):
    """Two holdouts and an account of training records; 'val' has an open round."""
    for name in ("val", "other"):
        holdout = make_holdout(url, name=name, mechanism=MECHANISM, seed=3)
        for count, query in ((30, "a"), (31, "b"), (5, "c"), (6, "d")):
            ask(holdout, count, query)
    ledger = Ledger(url)
    records = register(ledger)
    for amount in (10, 20, 30):
        spend(ledger, records, amount)
    return url


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("verify") / "holdout.db"
    fill(f"sqlite:///{path}")
    return path


@pytest.fixture
def path(original, tmp_path):
    copy = tmp_path / "holdout.db"
    shutil.copy(original, copy)
    copy.chmod(0o600)
    return copy


def edit(path, *statements):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def found(path):
    return [(f.account, f.position, f.problem) for f in verify(f"sqlite:///{path}").findings]


def test_an_intact_ledger(path):
    result = verify(f"sqlite:///{path}")
    assert result.findings == []
    assert (result.holdouts, result.records, result.rows) == (2, 1, 11)


def row(position, change):
    return f"UPDATE th_queries SET {change} WHERE holdout_id = 1 AND position = {position}"


def gone(position):
    return f"DELETE FROM th_queries WHERE holdout_id = 1 AND position = {position}"


def own(change):
    return f"UPDATE th_holdouts SET {change} WHERE id = 1"


def registered(old, new):
    return own(f"registration = replace(registration, '{old}', '{new}')")


HOLDOUT_EDITS = {
    "value": (row(2, "value = 0.1"), 2, "edited"),
    "charge": (row(2, "charge = 1"), 2, "edited"),
    "time": (row(3, "asked_at = ''"), 3, "edited"),
    "kind": (row(2, "kind = 'gift'"), 2, "neither a release"),
    "statistic": (row(2, "statistic = 'x'"), 2, "not registered"),
    "attempt": (row(2, "attempt = 4"), 2, "not numbered in order"),
    "deleted": (gone(2), 2, "deleted"),
    "first deleted": (gone(1), 1, "deleted"),
    "last deleted": (gone(4), None, "ends with"),
    "inserted": (
        "INSERT INTO th_queries SELECT holdout_id, 5, statistic, 'new', attempt, kind, grid_index, "
        "value, compared, opened, units, charge, seeded, asked_at, version, chain FROM th_queries "
        "WHERE holdout_id = 1 AND position = 4",
        5,
        "inserted",
    ),
    "budget": (own("budget = 9"), None, "not the registered one"),
    "registered budget": (registered('"budget":5', '"budget":9'), None, "not the registered one"),
    "registered noise": (registered('"sigma":0.01', '"sigma":0.02'), 1, "mechanism costs"),
    "registered mechanism": (registered("thresholdout", "magic"), None, "mechanism cannot be read"),
    "registered size": (registered('"size":50', '"size":51'), None, "registered size"),
    "registered bounds": (registered('"high":1.0', '"high":2.0'), 1, "registered grid"),
    "registration": (own("registration = '{'"), None, "cannot be read"),
    "queries": (own("queries = 1"), None, "'queries'"),
    "releases": (own("releases = 0"), None, "'releases'"),
    "spent": (own("spent = 0"), None, "'spent'"),
    "rounds": (own("rounds = 7"), None, "'rounds'"),
    "last release": (own("last_release = 2"), None, "'last_release'"),
    "chain": (own("chain = 'x'"), None, "ends with"),
    "secret lost": (
        "DELETE FROM th_secret_thresholds WHERE holdout_id = 1",
        None,
        "lost its secret threshold",
    ),
    "secret too many": (
        "INSERT INTO th_secret_thresholds VALUES (1, 77, 123456789)",
        None,
        "no round is open",
    ),
    "type": (row(2, "charge = x'00'"), None, "unreadable: a value has the wrong type"),
    "fingerprint": (own("fingerprint = 'f'"), None, "fingerprint, sketch or cut was edited"),
    "registered relation": (registered("replace-one", "add-one"), None, "parameters"),
    "created": (own("created_at = ''"), None, "time of creation"),
    "sketch": (
        "INSERT INTO th_sketches SELECT account, 4, 9, x'00' FROM th_holdouts WHERE id = 1",
        None,
        "fingerprint, sketch or cut was edited",
    ),
}


@pytest.mark.parametrize("what", HOLDOUT_EDITS)
def test_an_edited_holdout_is_found_and_placed(path, what):
    statement, position, words = HOLDOUT_EDITS[what]
    edit(path, statement)
    problems = found(path)
    assert any((name, at) == ("val", position) and words in text for name, at, text in problems), (
        problems
    )
    assert all(name == "val" for name, _, _ in problems)


# Charges and values that do not follow from the registration: a mechanism that only its author
# knows must still open, so verify alone looks at these. Headers too: a process of an older version
# that is still running writes none.
VERIFY_ONLY = {
    *("registered noise", "registered mechanism", "registered size", "registered bounds"),
    *("registered relation", "fingerprint", "sketch", "created"),
}


@pytest.mark.parametrize("what", HOLDOUT_EDITS)
def test_opening_refuses_what_the_replay_finds(path, what):
    edit(path, HOLDOUT_EDITS[what][0])
    ledger = Ledger(f"sqlite:///{path}")
    account = ledger.accounts()["val"]
    if what in VERIFY_ONLY:
        assert ledger.summary(account, check=True).queries == 4
    else:
        with pytest.raises(LedgerError, match="fit together"):
            ledger.summary(account, check=True)


def test_a_weaker_replay_is_noticed_by_both(path, monkeypatch):
    """The broken twin: a replay without counters lets the same edit through on both sides."""
    edit(path, "UPDATE th_holdouts SET rounds = 7 WHERE id = 1")
    assert [problem for _, _, problem in found(path)]
    monkeypatch.setattr(replay, "_counter_problems", lambda account, counted: iter(()))
    ledger = Ledger(f"sqlite:///{path}")
    assert found(path) == []
    assert ledger.summary(ledger.accounts()["val"], check=True).rounds == 7


def test_a_registration_without_a_budget_does_not_open(path):
    edit(path, """UPDATE th_holdouts SET registration = '{"statistics":{}}' WHERE id = 1""")
    ledger = Ledger(f"sqlite:///{path}")
    with pytest.raises(LedgerError, match="fit together"):
        ledger.summary(ledger.accounts()["val"], check=True)
    assert ("val", None, "the registration cannot be read") in found(path)


def test_rows_in_another_order(path):
    edit(
        path,
        "UPDATE th_queries SET position = 99 WHERE holdout_id = 1 AND position = 2",
        "UPDATE th_queries SET position = 2 WHERE holdout_id = 1 AND position = 3",
        "UPDATE th_queries SET position = 3 WHERE holdout_id = 1 AND position = 99",
    )
    assert {at for _, at, text in found(path) if "out of order" in text} >= {2, 3}


def test_a_renamed_account_is_found(path):
    edit(path, "UPDATE th_holdouts SET name = 'new' WHERE id = 1")
    assert ("new", 1) in {(name, at) for name, at, _ in found(path)}


DELETED = [
    *("DELETE FROM th_queries WHERE holdout_id = 1", "DELETE FROM th_holdouts WHERE id = 1"),
    "DELETE FROM th_secret_thresholds WHERE holdout_id = 1",
]


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (DELETED, "the account 'val' was deleted"),
        (["DELETE FROM th_charges", "DELETE FROM th_records"], "the account 'records' was deleted"),
        ([*DELETED, "DELETE FROM th_headers WHERE name = 'val'"], "header 2 does not follow"),
        (["DELETE FROM th_headers WHERE position = 3"], "headers at the end changed"),
        (["DELETE FROM th_header_end"], "headers at the end changed"),
        (["UPDATE th_headers SET name = 'x' WHERE position = 2"], "header 2 does not follow"),
        (["INSERT INTO th_sketches VALUES ('x', 4, 9, x'00')"], "a sketch without an account"),
    ],
)
def test_a_deleted_account_and_edited_headers_are_found(path, statements, words):
    edit(path, *statements)
    assert any(words in text for _, _, text in found(path)), found(path)


def test_a_change_does_not_cover_an_edit(path):
    """A statistic that is added later gets a header; not so if the account was edited before."""
    url = f"sqlite:///{path}"
    statistics = {"val_acc": th.ZeroOne(), "more": th.ZeroOne()}
    rest = {"mechanism": MECHANISM, "budget": 5, "size": 50, "seed": 3}
    th.ReusableHoldout(url, name="val", statistics=statistics, **rest).status()
    assert found(path) == []
    edit(path, "UPDATE th_holdouts SET fingerprint = 'f' WHERE id = 2")
    with pytest.raises(LedgerError, match="fit together"):
        th.ReusableHoldout(url, name="other", statistics=statistics, **rest).status()
    assert [name for name, _, _ in found(path)] == ["other"]


def test_an_account_of_an_older_process_gets_its_header_when_it_is_opened(path):
    older = "INSERT INTO th_holdouts SELECT 9, 'a', 'old', registration, NULL, budget, 0, 0, 0, 0, "
    link = hashlib.sha256(b"old").hexdigest()
    edit(path, f"{older} 0, '{link}', created_at FROM th_holdouts WHERE id = 1")
    assert [(name, "no header" in text) for name, _, text in found(path)] == [("old", True)]
    make_holdout(f"sqlite:///{path}", name="old", mechanism=MECHANISM, seed=3).status()
    assert found(path) == []


@pytest.mark.parametrize(
    ("statement", "position", "words"),
    [
        ("UPDATE th_charges SET charge = 1 WHERE position = 2", 2, "edited"),
        ("UPDATE th_charges SET charge = -5 WHERE position = 2", 2, "negative"),
        ("UPDATE th_charges SET detail = '' WHERE position = 1", 1, "edited"),
        ("DELETE FROM th_charges WHERE position = 2", 2, "deleted"),
        ("DELETE FROM th_charges WHERE position = 3", None, "ends with"),
        ("UPDATE th_records SET spent = 1", None, "'spent'"),
        ("UPDATE th_records SET queries = 1", None, "'queries'"),
        ("UPDATE th_records SET charges = 1", None, "'charges'"),
        ("UPDATE th_records SET capacity = 5", None, "more was charged"),
        ("UPDATE th_records SET capacity = 2000000000000", None, "registered epsilon"),
        ("UPDATE th_records SET registration = '{'", None, "cannot be read"),
    ],
)
def test_edited_charges_are_found_and_placed(path, statement, position, words):
    edit(path, statement)
    problems = found(path)
    assert any(at == position and words in text for _, at, text in problems), problems
    assert {name for name, _, _ in problems} <= {"records", None}  # SQLite has a word to say too


def test_orphans_and_lost_keys_are_found(path):
    edit(path, "DELETE FROM th_holdouts WHERE id = 2", "DELETE FROM th_secret_keys")
    words = " ".join(text for _, _, text in found(path))
    assert "4 rows of th_queries without an account" in words
    assert "secret key" in words


def test_twins_are_found(tmp_path):
    """Where the unique index is gone, one data set can have two budgets."""
    path = tmp_path / "holdout.db"
    ledger = Ledger(f"sqlite:///{path}")
    for name in ("one", "two"):
        ledger.register(
            name,
            {"statistics": {}, "budget": 1},
            budget=1,
            private=True,
            fingerprint=Fingerprint(name),
        )
    edit(
        path,
        "CREATE TABLE copy AS SELECT * FROM th_holdouts",
        "DROP TABLE th_holdouts",
        "ALTER TABLE copy RENAME TO th_holdouts",
        "UPDATE th_holdouts SET fingerprint = 'same'",
    )
    problems = [text for _, _, text in found(path)]
    assert "2 accounts in th_holdouts have one fingerprint: 'one', 'two'" in problems


def test_several_problems_are_all_told(path):
    edit(
        path,
        "UPDATE th_queries SET value = 0.1 WHERE holdout_id = 1 AND position = 2",
        "DELETE FROM th_queries WHERE holdout_id = 2 AND position = 3",
        "UPDATE th_charges SET charge = 1 WHERE position = 2",
        "UPDATE th_holdouts SET rounds = 7 WHERE id = 1",
        "DROP INDEX th_latest",
    )
    places = {(name, at) for name, at, _ in found(path)}
    assert {(None, None), ("val", 2), ("val", None), ("other", 3), ("records", 2)} <= places


def test_a_clock_that_goes_backwards_breaks_nothing(tmp_path, monkeypatch):
    times = iter(f"20{90 - n}-01-01T00:00:00.000+00:00" for n in range(50))
    monkeypatch.setattr(holdouts, "now", lambda: next(times))
    url = f"sqlite:///{tmp_path}/holdout.db"
    holdout = make_holdout(url)
    for count, query in ((30, "a"), (5, "b"), (40, "c")):
        ask(holdout, count, query)
    assert ask(make_holdout(url), 30, "a").kind == "repeat"
    assert make_holdout(url).status().queries == 3
    assert verify(url).findings == []


def digest(folder):
    files = [file for file in folder.iterdir() if not file.name.endswith((".lock", "-shm"))]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_nothing_is_changed(path):
    before = digest(path.parent)
    verify(f"sqlite:///{path}")
    assert digest(path.parent) == before


@pytest.mark.parametrize(
    ("version", "holdouts"), [(1, 2), (2, 1), (3, 3), (4, 3), (5, 4), (6, 7), (7, 3)]
)
def test_a_ledger_of_an_older_version_is_checked_and_stays_one(tmp_path, version, holdouts):
    path = tmp_path / "old.db"
    shutil.copy(ASSETS / f"ledger_v{version}.db", path)
    path.chmod(0o600)
    before = digest(tmp_path)
    result = verify(f"sqlite:///{path}")
    assert (result.schema_version, result.holdouts, result.findings) == (version, holdouts, [])
    assert digest(tmp_path) == before


def test_a_copy_that_cannot_be_written_is_checked(path):
    path.chmod(0o400)
    assert found(path) == []


def test_an_earlier_schema_version_is_not_claimed_by_a_later_ledger(path):
    edit(path, "UPDATE th_ledger SET schema_version = 1")
    assert any(name is None for name, _, _ in found(path))


@pytest.mark.parametrize("content", [b"", b"hello", None])
def test_what_is_no_ledger_cannot_be_opened(tmp_path, content):
    path = tmp_path / "x.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LedgerError):
        verify(f"sqlite:///{path}")
    assert path.exists() == (content is not None)


class TestCommand:
    def call(self, *arguments):
        return CliRunner().invoke(app, ["verify", *arguments])

    def test_fine(self, path):
        result = self.call(str(path))
        assert result.exit_code == 0
        assert "intact (2 holdouts, 1 account of training records, 11 rows" in result.stdout

    def test_wrong(self, path):
        edit(path, "UPDATE th_queries SET value = 0.125 WHERE holdout_id = 1 AND position = 2")
        result = self.call(str(path))
        assert result.exit_code == 1
        assert "'val', position 2: edited" in result.stdout
        assert "0.125" not in result.stdout

    def test_json(self, path):
        edit(path, "UPDATE th_holdouts SET spent = 0")
        result = self.call(str(path), "--json")
        content = json.loads(result.stdout)
        assert result.exit_code == 1
        assert not content["intact"]
        assert {f["account"] for f in content["findings"]} == {"val", "other"}

    def test_neither_values_nor_secrets_are_shown(self, path):
        connection = sqlite3.connect(path)
        secrets = [
            str(row[0]) for row in connection.execute("SELECT threshold FROM th_secret_thresholds")
        ]
        connection.close()
        edit(path, "UPDATE th_secret_thresholds SET units = 3", "UPDATE th_queries SET units = 3")
        shown = self.call(str(path)).stdout + self.call(str(path), "--json").stdout
        assert secrets
        assert not any(secret in shown for secret in secrets)

    def test_cannot_be_opened(self, tmp_path):
        result = self.call(str(tmp_path / "none.db"))
        assert result.exit_code == 2
        assert "Traceback" not in result.output


@pytest.mark.integration
def test_on_a_server(postgres):
    url = fill(postgres.new_url())
    assert verify(url).findings == []
    postgres.edit(
        url,
        "UPDATE th_queries SET value = 0.1 WHERE holdout_id = 1 AND position = 2",
        "DELETE FROM th_queries WHERE holdout_id = 2 AND position = 3",
        "UPDATE th_charges SET charge = 1 WHERE position = 2",
        "DELETE FROM th_secret_thresholds",
        "ALTER TABLE th_queries ADD COLUMN note text",
    )
    places = {(f.account, f.position) for f in verify(url).findings}
    assert {(None, None), ("val", 2), ("val", None), ("other", 3), ("records", 2)} <= places
    with pytest.raises(LedgerError, match="has none"):
        verify(postgres.new_url())


@pytest.mark.parametrize("table", ["th_holdouts", "th_records"])
def test_a_name_that_is_not_text_is_a_finding(path, table):
    edit(path, f"UPDATE {table} SET name = x'ff' WHERE id = 1")
    assert any("wrong type" in problem for _, _, problem in found(path))
