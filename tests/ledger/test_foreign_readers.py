"""Threads of the asking processes that read the ledger's files: every answer is charged.

Closing any handle to a file drops all POSIX locks of the process on it, SQLite's too. (An artifact
upload, ``cp`` or a search through the folder does that.)
"""

import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest
from torch_holdout.holdout.checks import query_key
from torch_holdout.ledger import Ledger, verify
from torch_holdout.ledger.sqlite import file_locks

from support.contracts.ledger_contract import REGISTRATION
from support.machines.soak import soak
from support.programs import foreign_reader

pytestmark = [pytest.mark.integration, pytest.mark.skipif(os.name == "nt", reason="POSIX locks")]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
ENDLESS = 10**9


def start(url, worker, asks, reads, log):
    arguments = [url, str(worker), str(asks), str(reads), str(log)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = [sys.executable, foreign_reader.__file__, *arguments]
    return subprocess.Popen(program, env=ENVIRONMENT, **pipes)


def handed_out(logs):
    """The answers that were written down; a line that a kill has cut off is none."""
    lines = [line for log in logs for line in log.read_text().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]


def uncharged(url, answers):
    """The answers that the ledger does not know."""
    holdout = foreign_reader.holdout_at(url)
    keyed = {query_key(holdout.statistics["val_acc"], query): value for query, value in answers}
    missing = 0
    with holdout._ledger.account(holdout._attached()) as account:
        for key, value in keyed.items():
            stored = account.find("val_acc", key)
            missing += stored is None or stored.value != value
    return missing


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_three_processes_that_read_the_files_are_charged_for_all_they_get(tmp_path):
    url = f"sqlite:///{tmp_path}/holdout.db"
    foreign_reader.holdout_at(url).status()
    logs = [tmp_path / f"{worker}.jsonl" for worker in range(3)]
    asks, reads = soak(2_000, 50), soak(10_000, 1_000)
    workers = [start(url, number, asks, reads, log) for number, log in enumerate(logs)]
    while not all(log.with_suffix(".ready").exists() for log in logs):
        assert [worker.poll() for worker in workers] == [None] * 3
        time.sleep(0.01)
    (tmp_path / "go").touch()
    said = [worker.communicate(timeout=3000) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], said
    answers = handed_out(logs)
    assert len(answers) >= 3 * asks
    assert uncharged(url, answers) == 0
    status = foreign_reader.holdout_at(url).status()
    counts = [int(count) for count, _ in said]
    assert min(counts) >= reads
    print(f"{counts} reads, {len(answers)} handed out, {status.queries} charged")
    assert (status.queries, status.releases) == (len(answers), len(answers))
    assert verify(url).findings == []


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_kills_beside_foreign_readers_hand_out_nothing_uncharged(tmp_path):
    """Two processes ask and read all the time; a third is killed, again and again."""
    url = f"sqlite:///{tmp_path}/holdout.db"
    foreign_reader.holdout_at(url).status()
    logs = [tmp_path / f"{worker}.jsonl" for worker in range(3)]
    for log in logs:
        log.touch()
    (tmp_path / "go").touch()
    beside = [start(url, number, ENDLESS, 0, logs[number]) for number in range(2)]
    generator, times = random.Random(0), soak(50, 3)
    try:
        for kill in range(times):
            worker = start(url, f"kill {kill}", ENDLESS, 0, logs[2])
            known = logs[2].read_bytes().count(b"\n")
            while logs[2].read_bytes().count(b"\n") < known + 3:
                assert worker.poll() is None, worker.stderr.read()
                time.sleep(0.001)
            time.sleep(generator.uniform(0.0, 0.08))
            worker.kill()
            worker.communicate()
    finally:
        alive = [worker.poll() for worker in beside]
        for worker in beside:
            worker.kill()
            worker.communicate()
    assert alive == [None, None]
    answers = handed_out(logs)
    queries = foreign_reader.holdout_at(url).status().queries
    missing = uncharged(url, answers)
    print(f"{times} kills, {len(answers)} handed out, {queries} charged, {missing} uncharged")
    assert missing == 0
    assert len(answers) <= queries <= len(answers) + times + 2  # at most one lost for each kill
    assert verify(url).findings == []


TRY = """
    import sys
    from torch_holdout.ledger import backend
    from torch_holdout.ledger.sqlite import file_locks
    if {broken}:
        file_locks.fcntl = None
    file_locks.WAIT_SECONDS = 0.2
    from torch_holdout.ledger.sqlite import backend as sqlite
    sqlite.WAIT_SECONDS = 0.2
    from torch_holdout.errors import LedgerError
    from torch_holdout.ledger import Ledger
    try:
        with Ledger({url!r}).account({account!r}) as account:
            print("came in")
    except LedgerError as error:
        print("refused" if "Nothing was released" in str(error) else error)
"""


@pytest.mark.parametrize(("broken", "outcome"), [(False, "refused"), (True, "came in")])
def test_no_one_comes_in_beside_a_transaction_that_lost_its_locks(
    tmp_path, monkeypatch, broken, outcome
):
    """The broken twin has no lock of its own: another process writes beside the transaction."""
    if broken:
        monkeypatch.setattr(file_locks, "fcntl", None)
    path = tmp_path / "holdout.db"
    ledger = Ledger(f"sqlite:///{path}")
    mark = ledger.register("val", REGISTRATION, budget=3, private=True, fingerprint=None)
    code = "\n".join(line[4:] for line in TRY.splitlines())
    code = code.format(broken=broken, url=ledger.address, account=mark)
    with ledger.account(mark):
        thread = threading.Thread(target=foreign_reader.read_files, args=(str(path),))
        thread.start()
        thread.join()
        other = subprocess.run(
            [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True
        )
    assert other.stdout.strip() == outcome, other.stderr
