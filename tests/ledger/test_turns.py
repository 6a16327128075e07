"""The lock file beside a ledger: who waits, what if it is gone, and where it cannot be made."""

import errno
import fcntl
import os
import stat
import subprocess
import sys

import pytest
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import verify
from torch_holdout.ledger.sqlite import file_locks

from support.contracts.ledger_contract import REGISTRATION, entry


@pytest.fixture
def account(ledger):
    return ledger.register("val", REGISTRATION, budget=3, private=True, fingerprint=None)


@pytest.fixture
def lock(path, account):
    return path.with_name("holdout.db.lock")


def charge(ledger, account, query):
    with ledger.account(account) as opened:
        opened.record(entry(query), None)


def test_the_lock_is_as_private_as_the_ledger_and_empty(lock):
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    assert lock.read_bytes() == b""


def test_a_ledger_that_a_group_may_use_has_a_lock_that_it_may_use(path, ledger, account, lock):
    lock.unlink()
    path.chmod(0o660)
    ledger.summary(account)
    assert stat.S_IMODE(lock.stat().st_mode) == 0o660


@pytest.mark.parametrize("reads_only", [False, True])
def test_who_waits_too_long_is_told_so(ledger, account, lock, monkeypatch, reads_only):
    monkeypatch.setattr(file_locks, "WAIT_SECONDS", 0.05)
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(LedgerError, match=r"another process holds it.*Nothing was"):
            ledger.summary(account) if reads_only else charge(ledger, account, "a")
    charge(ledger, account, "a")
    assert ledger.summary(account).queries == 1


def test_reading_the_lock_file_does_no_harm(ledger, account, lock):
    with ledger.account(account) as opened:
        lock.read_bytes()
        with lock.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened.record(entry("a"), None)


def test_the_lock_ends_with_the_transaction_whatever_happens(ledger, account, lock):
    with pytest.raises(ZeroDivisionError), ledger.account(account):
        raise ZeroDivisionError
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_deleted_lock_file_is_made_again(ledger, account, lock):
    lock.unlink()
    charge(ledger, account, "a")
    assert lock.exists()


@pytest.mark.parametrize("again", [False, True])
def test_nothing_is_committed_after_the_lock_file_was_deleted(ledger, account, lock, again):
    """Another process may have made a new one, and be writing."""

    def charge_and_lose():
        with ledger.account(account) as opened:
            opened.record(entry("a"), None)
            lock.unlink()
            if again:
                lock.touch()

    with pytest.raises(LedgerError, match=r"lock was deleted.*Nothing was released or charged"):
        charge_and_lose()
    assert ledger.summary(account, check=True).queries == 0


def test_who_waited_for_a_lock_file_that_was_deleted_takes_the_new_one(
    ledger, account, lock, monkeypatch
):
    taken = []

    class Replaced:
        """``flock`` on a file that another process deletes at that very moment."""

        LOCK_EX, LOCK_NB, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_UN

        lockf = staticmethod(fcntl.lockf)

        @staticmethod
        def flock(file, operation):
            fcntl.flock(file, operation)
            if operation != fcntl.LOCK_UN:
                taken.append(os.fstat(file.fileno()).st_ino)
                if len(taken) == 1:
                    lock.rename(lock.with_suffix(".old"))

    monkeypatch.setattr(file_locks, "fcntl", Replaced)
    charge(ledger, account, "a")
    assert len(taken) == 2
    assert taken[1] == lock.stat().st_ino != taken[0]


def test_where_no_lock_file_can_be_made_only_readers_go_on(ledger, account, lock, monkeypatch):
    lock.unlink()
    opened = os.open

    def refuse(path, flags, *more, **options):
        if str(path).endswith(".lock") and flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LedgerError, match=r"Permission denied.*may write to.*Nothing was"):
        charge(ledger, account, "a")
    with pytest.raises(LedgerError, match="Permission denied"):
        ledger.summary(account)  # it may write side files
    monkeypatch.setattr(file_locks, "may_write", lambda path: False)
    assert ledger.summary(account).queries == 0
    with pytest.raises(LedgerError, match="Permission denied"):
        charge(ledger, account, "a")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_lock_that_may_only_be_read_keeps_others_out_all_the_same(
    ledger, account, lock, monkeypatch, code
):
    opened = os.open

    def refuse(path, flags, *more, **options):
        if str(path).endswith(".lock") and flags & os.O_RDWR:
            raise OSError(code, "no")
        return opened(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refuse)
    with ledger.account(account), lock.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_who_stands_still_in_line_is_overtaken(ledger, account, lock, monkeypatch):
    monkeypatch.setattr(file_locks, "_PATIENCE_SECONDS", 0.05)
    holding = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX)"
    program = f"{holding}; print('next', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"next\n"
        charge(ledger, account, "a")
        other.stdin.close()
    assert ledger.summary(account).queries == 1


def test_a_lock_that_leads_elsewhere_is_refused(ledger, account, lock, tmp_path):
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match="file system refused"):
        charge(ledger, account, "a")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_the_end_of_a_child_does_not_free_its_parents_lock(ledger, account, lock):
    with ledger.account(account) as opened:
        opened.record(entry("a"), None)
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        with lock.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert ledger.summary(account, check=True).queries == 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_childs_end_of_the_parents_transaction_commits_nothing(ledger, account, path):
    child = None
    try:
        with ledger.account(account) as opened:
            opened.record(entry("a"), None)
            child = os.fork()
    except LedgerError as error:
        os._exit(7 if child == 0 and "over a fork" in str(error) else 8)
    if child == 0:
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert ledger.summary(account, check=True).queries == 1
    assert verify(f"sqlite:///{path}").findings == []


WINDOWS = """
import os, sys
import torch, torchmetrics, sqlalchemy, psycopg
del os.register_at_fork
sys.modules["fcntl"] = None
from support.contracts.ledger_contract import REGISTRATION, entry
from torch_holdout.ledger import Ledger, verify
ledger = Ledger(sys.argv[1])
mark = ledger.register("val", REGISTRATION, budget=3, private=True, fingerprint=None)
with ledger.account(mark) as account:
    account.record(entry("a"), None)
print(ledger.summary(mark, check=True).queries, len(verify(sys.argv[1]).findings))
"""


@pytest.mark.integration
def test_where_the_system_has_neither_flock_nor_fork(path):
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS, f"sqlite:///{path}"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["1", "0"], done.stderr
    assert not path.with_name("holdout.db.lock").exists()
