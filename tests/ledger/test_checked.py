"""Marks of what was replayed: what opening leaves out, and that no mark gives budget back."""

import shutil
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
import torch
import torch_holdout as th
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import Ledger, replay, schema, verify
from torch_holdout.ledger.checked import Marks, Reached
from torch_holdout.ledger.postgres.backend import PostgresBackend
from torch_holdout.ledger.records import ChargeEntry
from torch_holdout.ledger.sqlite import backend as sqlite_backend

from support.builders.board_holdouts import MODES, make_board, submit, with_teams
from support.contracts.ledger_contract import REGISTRATION, entry

ASSETS = Path(__file__).parent.parent / "assets"
OFTEN, ROWS = 5, 12


@pytest.fixture(autouse=True)
def marks_are_made_often(monkeypatch):
    monkeypatch.setattr(replay, "OFTEN", OFTEN)


@pytest.fixture
def address(address, tmp_path):
    """The same one for every handle: a throw-away ledger is shared by its label, while one is."""
    if address == "memory://":
        address = f"memory://{tmp_path.name}"
    kept = Ledger(address)
    yield address
    del kept


@pytest.fixture
def replayed(monkeypatch):
    """The positions that replays have looked at."""
    seen, problems = [], replay.Chain.problems

    def watched(chain, row):
        seen.append(row["position"])
        return problems(chain, row)

    monkeypatch.setattr(replay.Chain, "problems", watched)
    return seen


def attach(url, name="val", budget=100):
    registration = REGISTRATION | {"budget": budget}
    return Ledger(url).register(name, registration, budget=budget, private=True, fingerprint=None)


def charge(url, *queries, name="val", **changes):
    ledger, account = Ledger(url), attach(url, name)
    for query in queries:
        with ledger.account(account) as opened:
            opened.record(entry(query, **changes), None)


def filled(url, name="val"):
    """An account with twelve charges, and a mark after them."""
    charge(url, *(f"query {number}" for number in range(ROWS)), name=name)
    return attach(url, name)


def test_opening_replays_what_came_after_the_last_mark(address, replayed):
    filled(address)
    assert replayed == list(range(1, ROWS + 1))
    replayed.clear()
    attach(address)
    assert replayed == []
    charge(address, "a", "b", "c")
    attach(address)
    assert replayed == [ROWS + 1, ROWS + 2, ROWS + 3]
    ledger = Ledger(address, reads_only=True)
    replayed.clear()
    assert ledger.summary(ledger.accounts()["val"], check=True).queries == ROWS + 3
    assert replayed == [ROWS + 1, ROWS + 2, ROWS + 3]
    replayed.clear()
    assert verify(address).findings == []
    assert replayed == list(range(1, ROWS + 4))


def test_records_and_boards_go_on_from_a_mark_too(address, replayed):
    fixed = {"epsilon": 1.0, "delta": 1e-6, "derived": {"order": None}}

    def open_records():
        return Ledger(address).register_records("r", fixed, capacity=10**12, fingerprint=None)

    account = open_records()
    for _ in range(ROWS):
        row = ChargeEntry(
            purpose="prediction", detail="{}", queries=2, charge=5, variation=1, seeded=False
        )
        with Ledger(address).records(account) as opened:
            opened.charge(row)
    board = with_teams(make_board(address, name="board"))
    for count in (500, 600, 605, 700):
        for analyst in ("alpha", "beta"):
            submit(board, count, f"{count}", analyst)
    open_records()
    make_board(address, name="board").attach()
    replayed.clear()
    open_records()
    make_board(address, name="board").attach()
    assert replayed == []
    submit(make_board(address, name="board"), 800, "800", "alpha")
    make_board(address, name="board").attach()
    assert replayed == [11]
    assert verify(address).findings == []


def test_an_account_with_few_rows_is_replayed_whole_each_time(address, replayed):
    charge(address, "a", "b")
    attach(address)
    replayed.clear()
    attach(address)
    assert replayed == [1, 2]


def test_attaching_asks_as_much_the_thousandth_time_as_the_second(address):
    """A sweep of short trials: each attaches anew and charges once."""
    asked = []

    def trial(number):
        ledger = Ledger(address)
        account = ledger.register(
            "val", REGISTRATION | {"budget": 100}, budget=100, private=True, fingerprint=None
        )
        statements = []
        watched = ledger._connected
        listener = lambda *arguments: statements.append(arguments[2])  # noqa: E731
        sa.event.listen(watched, "before_cursor_execute", listener)
        ledger.register(
            "val", REGISTRATION | {"budget": 100}, budget=100, private=True, fingerprint=None
        )
        sa.event.remove(watched, "before_cursor_execute", listener)
        with ledger.account(account) as opened:
            opened.record(entry(f"query {number}"), None)
        asked.append(len(statements))

    for number in range(4 * OFTEN):
        trial(number)
    assert max(asked[OFTEN:]) <= max(asked[: OFTEN + 2])


def edit(path, *statements):
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    empty_log(connection)
    connection.close()


def empty_log(connection):
    """As SQLite does at the end of an editor, if no process of ours is there."""
    assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


@pytest.fixture
def url(path):
    address = f"sqlite:///{path}"
    filled(address)
    return address


OLDER = "UPDATE th_queries SET value = 0.5 WHERE position = 3"


def test_an_edit_of_an_older_row_is_found_by_verify_and_not_by_opening(path, url):
    edit(path, OLDER)
    attach(url)
    assert {finding.position for finding in verify(url).findings} == {3}


def test_an_edit_while_a_process_uses_the_ledger_is_found_by_opening_too(path, url):
    """The editor cannot empty a log that is held: the file counts as not closed cleanly."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(OLDER)
    connection.close()
    with pytest.raises(LedgerError, match="fit together"):
        attach(url)


@pytest.mark.parametrize(
    "statements",
    [
        ["UPDATE th_holdouts SET releases = releases - 1"],
        ["UPDATE th_holdouts SET queries = queries - 1"],
        ["UPDATE th_holdouts SET spent = 0"],
        ["UPDATE th_holdouts SET rounds = 1"],
        ["UPDATE th_holdouts SET last_release = 1"],
        ["UPDATE th_holdouts SET budget = 1000"],
        ["UPDATE th_holdouts SET chain = (SELECT chain FROM th_queries WHERE position = 3)"],
        ["INSERT INTO th_secret_thresholds VALUES (1, 10, 5)"],
        ["DELETE FROM th_queries WHERE position = 12"],
        ["UPDATE th_queries SET chain = 'x' WHERE position = 12"],
        # An older release is taken back, with its counters.
        [
            "DELETE FROM th_queries WHERE position = 3",
            "UPDATE th_holdouts SET releases = releases - 1, queries = queries - 1",
        ],
        [
            "UPDATE th_queries SET kind = 'guess', charge = 0 WHERE position = 3",
            "UPDATE th_holdouts SET releases = releases - 1",
        ],
        # All is set back to an earlier state, with its own chain.
        [
            "DELETE FROM th_queries WHERE position > 3",
            "UPDATE th_holdouts SET queries = 3, releases = 3, last_release = 3, spent = 0, "
            "chain = (SELECT chain FROM th_queries WHERE position = 3)",
        ],
    ],
)
@pytest.mark.parametrize("later", [False, True], ids=["at the mark", "after it"])
def test_no_edit_gives_budget_back(path, url, statements, later):
    if later:
        charge(url, "later")
    edit(path, *statements)
    with pytest.raises(LedgerError, match="fit together"):
        attach(url)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM th_checked",
        "UPDATE th_checked SET position = 11",
        "UPDATE th_checked SET position = 2",
        "UPDATE th_checked SET position = 'x'",
        "UPDATE th_checked SET state = replace(state, '\"releases\":12', '\"releases\":11')",
        "UPDATE th_checked SET state = '{'",
        "UPDATE th_checked SET mark = 'é'",
        "UPDATE th_checked SET mark = x'00'",
    ],
)
def test_a_mark_that_was_edited_or_deleted_is_as_none(path, url, statement, replayed):
    edit(path, statement)
    replayed.clear()
    attach(url)
    assert replayed == list(range(1, ROWS + 1))
    edit(path, statement, OLDER)
    with pytest.raises(LedgerError, match="fit together"):
        attach(url)


def test_a_mark_of_another_account_or_ledger_does_not_hold(path, url, tmp_path, replayed):
    filled(url, "other")
    own, other = Ledger(url).accounts()["val"], Ledger(url).accounts()["other"]
    filled(f"sqlite:///{tmp_path}/elsewhere.db")
    marks = {
        "another account's": f"SELECT position, state, mark FROM th_checked WHERE account = "
        f"'{other}'",
        "another ledger's": "SELECT position, state, mark FROM elsewhere.th_checked",
    }
    for source in marks.values():
        connection = sqlite3.connect(path)
        connection.execute("ATTACH DATABASE ? AS elsewhere", (f"{tmp_path}/elsewhere.db",))
        with connection:
            connection.execute(
                f"UPDATE th_checked SET (position, state, mark) = ({source}) WHERE account = ?",
                (own,),
            )
        empty_log(connection)
        connection.close()
        replayed.clear()
        attach(url)
        assert replayed == list(range(1, ROWS + 1))


def test_a_copy_is_replayed_whole(path, url, replayed):
    edit(path, OLDER)
    copy = shutil.copy(path, path.with_name("copy.db"))
    replayed.clear()
    with pytest.raises(LedgerError, match="fit together"):
        attach(f"sqlite:///{copy}")
    assert replayed == [1, 2, 3]


def test_a_mark_from_before_a_restored_copy_does_not_hold(path, url, tmp_path, replayed):
    """The mark of twelve rows, in the file of the day when there were three."""
    early = f"sqlite:///{tmp_path}/early.db"
    charge(early, "a", "b", "c")
    copy = (tmp_path / "early.db").read_bytes()
    charge(early, *(f"query {number}" for number in range(ROWS)))
    attach(early)
    mark = sqlite3.connect(tmp_path / "early.db").execute("SELECT * FROM th_checked").fetchone()
    (tmp_path / "early.db").write_bytes(copy)  # the same file, as it was
    connection = sqlite3.connect(tmp_path / "early.db")
    with connection:
        connection.execute("INSERT INTO th_checked VALUES (?, ?, ?, ?)", mark)
    empty_log(connection)
    connection.close()
    replayed.clear()
    attach(early)
    assert replayed == [1, 2, 3]


def test_marks_are_dropped_when_the_file_was_not_closed_cleanly(path, url, replayed):
    """A foreign reader keeps the log from being emptied; a copy of both is as after a crash."""
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN")
    foreign.execute("SELECT count(*) FROM th_queries").fetchone()
    charge(url, "later")
    assert path.with_name("holdout.db-wal").stat().st_size > 0
    for writes in (False, True):  # a reader takes no mark as holding, a writer drops them
        replayed.clear()
        ledger = Ledger(url, reads_only=not writes)
        if writes:
            attach(url)
        else:
            ledger.summary(ledger.accounts()["val"], check=True)
        assert replayed == list(range(1, ROWS + 2))
    foreign.execute("COMMIT")
    assert foreign.execute("SELECT count(*) FROM th_checked").fetchone() == (0,)
    foreign.close()
    attach(url)
    replayed.clear()
    attach(url)
    assert replayed == []


class TestFile:
    @pytest.fixture(autouse=True)
    def asked(self, monkeypatch):
        """Statements that read the whole file."""
        monkeypatch.setattr(sqlite_backend, "_LARGE", 0)
        asked, engine = [], sqlite_backend._file_engine

        def watched(*arguments, **options):
            made = engine(*arguments, **options)
            sa.event.listen(
                made,
                "before_cursor_execute",
                lambda *a: asked.append(a[2]) if "check" in a[2] else 0,
            )
            return made

        monkeypatch.setattr(sqlite_backend, "_file_engine", watched)
        return asked

    def whole(self, asked, action):
        asked.clear()
        action()
        return [text for text in asked if "integrity_check" in text or "key_check" in text] != []

    def test_a_large_one_is_read_whole_once(self, path, url, asked):
        assert not self.whole(asked, lambda: attach(url))
        assert not self.whole(asked, lambda: Ledger(url, reads_only=True).accounts())
        assert self.whole(asked, lambda: verify(url))
        copy = shutil.copy(path, path.with_name("copy.db"))
        assert self.whole(asked, lambda: attach(f"sqlite:///{copy}"))
        edit(path, "DELETE FROM th_checked WHERE account = ''")
        assert self.whole(asked, lambda: attach(url))

    def test_its_tables_are_looked_at_all_the_same(self, path, url, asked):
        edit(path, "DROP INDEX th_latest")
        with pytest.raises(LedgerError, match="damaged"):
            attach(url)

    def test_a_small_one_is_read_whole_every_time(self, url, asked, monkeypatch):
        monkeypatch.setattr(sqlite_backend, "_LARGE", 2**30)
        assert self.whole(asked, lambda: attach(url))

    def test_one_that_was_not_closed_cleanly_is_read_whole(self, path, url, asked):
        foreign = sqlite3.connect(path, isolation_level=None)
        foreign.execute("BEGIN")
        foreign.execute("SELECT count(*) FROM th_queries").fetchone()
        charge(url, "later")
        assert self.whole(asked, lambda: attach(url))
        foreign.close()


def test_a_server_that_was_started_anew_is_replayed_whole(postgres, replayed, monkeypatch):
    url = postgres.new_url()
    filled(url)
    monkeypatch.setattr(PostgresBackend, "life", lambda backend, connection: "later")
    replayed.clear()
    attach(url)
    assert replayed == list(range(1, ROWS + 1))
    replayed.clear()
    attach(url)
    assert replayed == []


def test_an_edit_on_a_server_is_refused_as_in_a_file(postgres):
    url = postgres.new_url()
    filled(url)
    postgres.edit(url, OLDER)
    attach(url)
    assert {finding.position for finding in verify(url).findings} == {3}
    postgres.edit(url, "UPDATE th_holdouts SET releases = releases - 1")
    with pytest.raises(LedgerError, match="fit together"):
        attach(url)


def test_a_ledger_of_schema_7_goes_on_and_gets_marks(tmp_path, replayed):
    path = tmp_path / "old.db"
    shutil.copy(ASSETS / "ledger_v7.db", path)
    path.chmod(0o600)
    url = f"sqlite:///{path}"
    rule = th.Thresholdout(threshold=0.05, sigma=0.01, guess="last")

    def val():
        return th.ReusableHoldout(
            url, name="val", size=50, statistics={"val_acc": th.ZeroOne()}, budget=40,
            mechanism=rule,
        )  # fmt: skip

    assert (val().status().queries, val().budget_left) == (12, 31)
    assert val().certificate().tolerance == pytest.approx(0.7809279594779172, rel=1e-12)
    asked = [val().recall("val_acc", f"e{number}") for number in range(3)]
    assert [answer.value for answer in asked] == [0.0, 0.09375, 0.09375]
    ledger = Ledger(url)
    assert ledger.records_summary(ledger.records_accounts()["records"], check=True).queries == 3
    assert list(ledger.boards()) == list(MODES)
    assert [run.state for run in ledger.runs(ledger.accounts()["sealed"])] == ["stopped"] * 2
    replayed.clear()
    assert val().budget_left == 31
    assert replayed == []
    val().ask("val_acc", torch.arange(50) < 30, query="later")
    checked = verify(url)
    assert (checked.schema_version, checked.findings) == (schema.SCHEMA_VERSION, [])


def test_a_server_of_schema_7_gets_marks(postgres, replayed):
    url = postgres.new_url()
    charge(url, *map(str, range(ROWS)))
    postgres.edit(url, "DROP TABLE th_checked", "UPDATE th_ledger SET schema_version = 7")
    ledger = Ledger(url, reads_only=True)
    assert ledger.summary(ledger.accounts()["val"], check=True).queries == ROWS
    attach(url)
    replayed.clear()
    attach(url)
    assert replayed == []
    assert verify(url).schema_version == schema.SCHEMA_VERSION


def test_a_mark_names_no_count_or_position_that_could_be_changed():
    """Two lives and accounts, four places: sixteen marks."""
    ledger = Ledger("memory://")
    reached = [
        Reached(1, "a", {"counted": {"releases": 1}}),
        Reached(2, "a", {"counted": {"releases": 1}}),
        Reached(1, "b", {"counted": {"releases": 1}}),
        Reached(1, "a", {"counted": {"releases": 0}}),
    ]
    with ledger._transaction() as connection:
        marks = {
            Marks(connection, life)._mark(account, one)
            for life in ("1:2", "1:3")
            for account in ("x", "y")
            for one in reached
        }
    assert len(marks) == 16
