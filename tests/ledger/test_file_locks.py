"""Threads, forks and another process on one SQLite ledger: every answer is charged."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from torch_holdout.ledger import Ledger, verify

from support.contracts.ledger_contract import REGISTRATION, entry

pytestmark = pytest.mark.integration
BUDGET = 10**6
SECONDS = 4.0
OTHER = """
    import sys, time
    from torch_holdout.ledger import Ledger
    from support.contracts.ledger_contract import entry
    ledger, given, end = Ledger({url!r}), 0, time.monotonic() + {seconds}
    while time.monotonic() < end:
        with ledger.account({account!r}) as opened:
            opened.record(entry(f"other {{given}}"), None)
        given += 1
    print(given)
"""


def register(url):
    registration = REGISTRATION | {"budget": BUDGET}
    return Ledger(url).register("val", registration, budget=BUDGET, private=True, fingerprint=None)


def charging(url, account, name, given, end):
    ledger = Ledger(url)
    while time.monotonic() < end:
        with ledger.account(account) as opened:
            opened.record(entry(f"{name} {len(given)}"), None)
        given.append(name)


def until(end, action):
    while time.monotonic() < end:
        action()


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["new handles and readers", "verify", "another name"])
def test_no_charge_is_lost_beside_what_opens_the_file(tmp_path, beside):
    """Closing any handle to a file drops a process's locks on it: nothing may be open then."""
    url = f"sqlite:///{tmp_path}/holdout.db"
    account = register(url)
    (tmp_path / "linked.db").symlink_to(tmp_path / "holdout.db")
    linked = f"sqlite:///{tmp_path}/linked.db"
    actions = {
        "new handles and readers": [
            lambda: Ledger(url).summary(account),
            lambda: Ledger(url).answers(account),
        ],
        "verify": [lambda: verify(url)],
        "another name": [lambda: Ledger(linked).summary(account)],
    }[beside]
    code = OTHER.format(url=url, account=account, seconds=SECONDS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    other = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    given, end = [], time.monotonic() + SECONDS + 2
    threads = [
        threading.Thread(target=charging, args=(url, account, name, given, end)) for name in "ab"
    ] + [threading.Thread(target=until, args=(end, action)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    charged = len(given) + int(other.communicate(timeout=60)[0])
    assert verify(url).findings == []
    assert Ledger(url).summary(account, check=True).queries == charged


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_waits_for_open_transactions(tmp_path):
    url = f"sqlite:///{tmp_path}/holdout.db"
    account = register(url)
    given, end = [], time.monotonic() + SECONDS
    thread = threading.Thread(target=charging, args=(url, account, "parent", given, end))
    thread.start()
    children = []
    for child in range(3):
        time.sleep(0.2)
        pid = os.fork()
        if pid == 0:
            own = []
            charging(url, account, f"child {child}", own, time.monotonic() + 1.0)
            (tmp_path / f"child{child}").write_text(str(len(own)))
            os._exit(0)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    thread.join()
    assert codes == [0, 0, 0]
    charged = len(given) + sum(int((tmp_path / f"child{c}").read_text()) for c in range(3))
    assert verify(url).findings == []
    assert Ledger(url).summary(account, check=True).queries == charged
