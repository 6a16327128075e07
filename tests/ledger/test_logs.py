"""The log of an SQLite ledger: two fsyncs a charge, and no moment at which one could be lost."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import Ledger, verify
from torch_holdout.ledger.sqlite import file_locks, logs

from support.contracts.ledger_contract import REGISTRATION, entry

pytestmark = pytest.mark.skipif(not logs._CAN_PIN, reason="open file description locks")
PAGE = 4096
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.fixture
def account(ledger):
    registration = REGISTRATION | {"budget": 1000}
    return ledger.register("val", registration, budget=1000, private=True, fingerprint=None)


@pytest.fixture
def log(path, ledger, account):
    """The log, held by this process since its first charge."""
    charge(ledger, account, "first")
    return path.with_name("holdout.db-wal")


def charge(ledger, account, query, threshold=None):
    with ledger.account(account) as opened:
        opened.record(entry(query, "guess" if threshold else "release"), threshold)


def charged(path):
    """Open a ledger whose process is gone; return how many charges it has, all in order."""
    url = f"sqlite:///{path}"
    assert verify(url).findings == []
    return Ledger(url).summary(Ledger(url).accounts()["val"], check=True).queries


def in_a_process(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip


FOREIGN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM th_queries").fetchone()
connection.close()
"""


class Syncs:
    """Stands between the ledger and the disk: what the files held whenever one was made durable."""

    def __init__(self, path, log):
        self._files = {path.stat().st_ino: "ledger", log.stat().st_ino: "log"}
        self._path, self._log = path, log
        self.asked, self.contents = [], []

    def __call__(self, handle):
        self.asked.append(self._files[os.fstat(handle).st_ino])
        self.contents.append((self._path.read_bytes(), self._log.read_bytes()))


def test_a_charge_makes_the_log_durable_then_the_ledger(path, ledger, account, log, monkeypatch):
    syncs, settings = Syncs(path, log), []
    monkeypatch.setattr(os, "fdatasync", syncs)
    monkeypatch.setattr(logs, "_sync_folder", lambda folder: syncs.asked.append("folder"))
    for query in "ab":
        with ledger.account(account) as opened:
            setting = opened._connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
            settings.append(setting)
            opened.record(entry(query), None)
    assert syncs.asked == ["log", "ledger"] * 2
    assert settings == [0, 0]  # so that SQLite adds none of its own
    assert log.stat().st_size == 0


def test_a_new_log_has_its_name_made_durable(path, ledger, account, log, monkeypatch):
    log.unlink()
    named = []
    monkeypatch.setattr(logs, "_sync_folder", named.append)
    for query in "ab":
        charge(ledger, account, query)
    assert named == [path.parent]


def test_who_only_reads_syncs_nothing_and_leaves_no_file(path, ledger, account, monkeypatch):
    with file_locks.turn_of(path).hold(reads_only=False) as turn:
        turn.forget_log()
    ledger.summary(account)
    monkeypatch.setattr(os, "fdatasync", None)
    ledger.summary(account)
    ledger.answers(account)
    verify(ledger.address)
    assert {file.name for file in path.parent.iterdir()} == {"holdout.db", "holdout.db.lock"}


def test_the_ledger_alone_has_every_charge_and_no_finished_secret(path, ledger, account, log):
    secret = 0x0123_4567_89AB
    with ledger.account(account) as opened:
        opened.record(entry("a", "guess", opened=True, compared=True), secret)
    assert secret.to_bytes(6, "big") in path.read_bytes()
    charge(ledger, account, "b")
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert secret.to_bytes(6, "big") not in left
    (path.parent / "copy").mkdir()
    copy = shutil.copy(path, path.parent / "copy" / "holdout.db")
    assert charged(copy) == 3


class TestPowerLoss:
    """What a disk may hold if the power goes at any moment of the third charge."""

    @pytest.fixture
    def moments(self, path, ledger, account, log, monkeypatch):
        charge(ledger, account, "second")
        before = path.read_bytes()
        syncs = Syncs(path, log)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", syncs)
            charge(ledger, account, "third")
        (untouched, logged), (written, still) = syncs.contents
        assert untouched == before  # the log is durable before the ledger changes
        assert (written, still) != (before, b"")
        assert path.read_bytes() == written  # and the ledger before the log is emptied
        return before, logged, written

    @pytest.fixture
    def found(self, tmp_path):
        made = iter(range(10_000))

        def after(ledger, log):
            folder = tmp_path / f"disk{next(made)}"
            folder.mkdir()
            for name, content in (("holdout.db", ledger), ("holdout.db-wal", log)):
                (folder / name).write_bytes(content)
                (folder / name).chmod(0o600)
            return charged(folder / "holdout.db")

        return after

    def test_before_the_log_is_durable(self, moments, found):
        before, logged, _ = moments
        cuts = random.Random(0).sample(range(len(logged)), 8)
        assert {found(before, logged[:cut]) for cut in cuts} == {2}
        assert found(before, logged) == 3

    def test_before_the_ledger_is_durable(self, moments, found):
        before, logged, written = moments
        for mix in self.mixes(before, written):
            assert found(mix, logged) == 3

    def test_after_both_whether_or_not_the_log_was_emptied(self, moments, found):
        _, logged, written = moments
        assert found(written, logged) == found(written, b"") == 3

    def test_a_log_emptied_too_early_is_noticed_here(self, moments, found):
        """The broken twin: without the log a half-written ledger is damaged, or lacks a charge."""
        before, _, written = moments

        def is_whole(mix):
            try:
                return found(mix, b"") == 3
            except (AssertionError, LedgerError):
                return False

        assert not all(map(is_whole, self.mixes(before, written)))

    def mixes(self, before, written):
        generator = random.Random(0)
        pages = len(written) // PAGE
        old = before + bytes(len(written) - len(before))
        for _ in range(6):
            chosen = [generator.choice((old, written)) for _ in range(pages)]
            yield b"".join(c[n * PAGE : (n + 1) * PAGE] for n, c in enumerate(chosen))


@pytest.mark.parametrize("pinned", [True, False], ids=["held", "not held"])
def test_no_one_else_removes_a_log_that_is_held(path, ledger, account, log, monkeypatch, pinned):
    """The twin lets go of it: then SQLite's last connection removes it, as ever."""
    known = log.stat().st_ino
    if not pinned:
        with file_locks.turn_of(path).hold(reads_only=False) as turn:
            turn.forget_log()
    thread = threading.Thread(target=lambda: path.open("rb").close())  # drops all POSIX locks
    thread.start()
    thread.join()
    assert in_a_process(FOREIGN, path).returncode == 0
    assert (log.exists() and log.stat().st_ino == known) == pinned
    charge(ledger, account, "second")
    assert charged(path) == 2


def test_where_it_cannot_be_held_sqlite_does_it_all(path, ledger, monkeypatch):
    monkeypatch.setattr(logs, "_CAN_PIN", False)
    account = ledger.register("val", REGISTRATION, budget=3, private=True, fingerprint=None)
    with ledger.account(account) as opened:
        assert opened._connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
        opened.record(entry("a"), None)
    assert {file.name for file in path.parent.iterdir()} == {"holdout.db", "holdout.db.lock"}
    assert charged(path) == 1


def test_a_log_that_cannot_be_made_durable_fails_the_charge(ledger, account, log, monkeypatch):
    def broken(handle):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", broken)
        with pytest.raises(LedgerError, match="log could not be kept"):
            charge(ledger, account, "second")
    charge(ledger, account, "third")
    assert verify(ledger.address).findings == []
    assert ledger.summary(account, check=True).queries == 3  # charged, and not handed out


def test_a_ledger_that_cannot_be_made_durable_keeps_its_log(
    path, ledger, account, log, monkeypatch
):
    synced = os.fdatasync

    def broken(handle):
        if os.fstat(handle).st_ino == path.stat().st_ino:
            raise OSError(5, "Input/output error")
        synced(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", broken)
        charge(ledger, account, "second")
    assert log.stat().st_size > 0
    charge(ledger, account, "third")
    assert log.stat().st_size == 0
    assert charged(path) == 3


def test_a_log_that_is_removed_while_it_is_written_loses_nothing(path, ledger, account, log):
    with ledger.account(account) as opened:
        opened.record(entry("second"), None)
        log.unlink()
    charge(ledger, account, "third")
    assert charged(path) == 3


def test_a_removed_log_and_a_reader_in_the_way_fail_the_charge(path, ledger, account, log):
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN")
    foreign.execute("SELECT count(*) FROM th_queries").fetchone()

    def charge_and_remove():
        with ledger.account(account) as opened:
            opened.record(entry("second"), None)
            log.unlink()

    with pytest.raises(LedgerError, match=r"log was removed.*nothing was released"):
        charge_and_remove()
    foreign.close()
    charge(ledger, account, "third")
    assert verify(ledger.address).findings == []


def test_another_journal_is_left_to_sqlite(path, ledger, account):
    with file_locks.turn_of(path).hold(reads_only=False) as turn:
        turn.forget_log()
    foreign = sqlite3.connect(path)
    assert foreign.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    foreign.close()
    with ledger.account(account) as opened:
        assert opened._connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
        opened.record(entry("second"), None)
    assert charged(path) == 1
    foreign = sqlite3.connect(path)
    assert foreign.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    foreign.close()
    charge(ledger, account, "third")
    foreign = sqlite3.connect(path, timeout=0)  # while its log is held no one changes it
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        foreign.execute("PRAGMA journal_mode = DELETE").fetchone()
    foreign.close()
    assert charged(path) == 2


def test_a_foreign_reader_in_the_way_is_waited_for_by_a_later_charge(path, ledger, account, log):
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN")
    foreign.execute("SELECT count(*) FROM th_queries").fetchone()
    charge(ledger, account, "second")
    assert foreign.execute("SELECT count(*) FROM th_queries").fetchone() == (1,)
    foreign.execute("COMMIT")
    foreign.close()
    charge(ledger, account, "third")
    assert log.stat().st_size == 0
    assert charged(path) == 3


def test_a_process_with_many_ledgers_holds_few_of_their_logs(tmp_path, monkeypatch):
    monkeypatch.setattr(file_locks, "_MOST_PINS", 3)
    ledgers = [Ledger(f"sqlite:///{tmp_path}/{number}.db") for number in range(8)]
    for query in "ab":
        for ledger in ledgers:
            account = ledger.register("val", REGISTRATION, budget=3, private=True, fingerprint=None)
            charge(ledger, account, query)
        held = [file_locks.turn_of(tmp_path / f"{number}.db").pin for number in range(8)]
        assert [pin is not None for pin in held] == [False] * 5 + [True] * 3
        assert len(file_locks._pinned) == 3
    assert {charged(tmp_path / f"{number}.db") for number in range(8)} == {2}


def test_a_ledger_that_was_replaced_is_held_anew(path, ledger, account, log):
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").replace(path)
    charge(ledger, account, "second")
    assert file_locks.turn_of(path).pin.holds(path)
    assert charged(path) == 2


KILLED = """
import os, signal, sys
from torch_holdout.ledger import Ledger
from support.contracts.ledger_contract import entry
url, account, moment = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger, synced, count = Ledger(url), os.fdatasync, 0
with ledger.account(account) as opened:
    opened.record(entry("before"), None)
def killed(handle):
    global count
    count += 1
    if count == moment:
        os.kill(os.getpid(), signal.SIGKILL)
    synced(handle)
os.fdatasync = killed
with ledger.account(account) as opened:
    opened.record(entry("at"), None)
"""


@pytest.mark.integration
@pytest.mark.parametrize("moment", [1, 2], ids=["log", "ledger"])
def test_a_killed_process_leaves_a_log_that_the_next_one_takes_over(
    path, ledger, account, log, moment
):
    done = in_a_process(KILLED, ledger.address, account, moment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert log.stat().st_size > 0
    assert ledger.summary(account, check=True).queries == 3
    assert log.stat().st_size > 0  # a reader leaves it
    charge(ledger, account, "after")
    assert log.stat().st_size == 0
    assert charged(path) == 4


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_holds_the_log_itself_and_its_end_is_no_end_for_its_parent(
    path, ledger, account, log
):
    known = log.stat().st_ino
    child = os.fork()
    if child == 0:
        inherited = file_locks.turn_of(path).pin is not None
        charge(ledger, account, "child")
        os._exit(inherited or file_locks.turn_of(path).pin is None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert in_a_process(FOREIGN, path).returncode == 0
    assert log.stat().st_ino == known
    charge(ledger, account, "parent")
    assert charged(path) == 3
