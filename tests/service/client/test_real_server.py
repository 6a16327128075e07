"""The client and the guard against `torch-holdout serve` itself, in a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch_holdout.service.server import hosting

from support.builders import boards
from support.builders.guarded import IN_A_TRAINER, guard_class, package, trainer
from support.builders.unlabelled import inputs, labelled, labels, predicting, unlabelled
from support.machines.board_server import ServerProcess
from support.programs import remote_ranks

ROWS = 301
TARGET = labels(inputs(ROWS)).numpy()
THREE = 'classes = 3\nupload = "{}"\npublic = 0.6'
TELLING = 'mode = "ladder"\nbaseline = 0.35\nstep = 0.005'
MANY = "teams = 2\nsubmissions = 60\nreleases = 30\nbudget = 60"
pytestmark = [*IN_A_TRAINER, pytest.mark.slow]


class Host:
    """A board in a folder and its server, which can be killed and started again."""

    def __init__(self, folder, upload="classes", **parts):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        own = {
            "data": THREE.format(upload),
            "feedback": TELLING,
            "limits": MANY,
            "server": f'[server]\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:0"\n'
            f"requests_per_minute = 100000",
        }
        self.config = boards.configured(folder, TARGET, **(own | parts))
        hosting.initialise(self.config)
        self.folder, self.log = folder, folder / "server.log"
        self.start()

    def start(self):
        self.server = ServerProcess(self.folder / "board.toml", self.log)

    def stop(self):
        self.server.kill()

    @property
    def url(self):
        return self.server.page

    def team(self, name="alpha"):
        return hosting.add_team(self.config, name)


@pytest.fixture
def host(tmp_path, monkeypatch):
    made = []

    def make(**parts):
        made.append(Host(tmp_path / f"board{len(made)}", **parts))
        monkeypatch.setenv("TORCH_HOLDOUT_TOKEN", made[-1].team())
        return made[-1]

    yield make
    for each in made:
        each.stop()


def partly(right, shift=1):
    wrong = (TARGET + shift) % 3
    return np.where(np.arange(ROWS) < right, TARGET, wrong)


def watching():
    class Spy(package("lightning.pytorch").Callback):
        def __init__(self):
            self.seen = []

        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                self.seen.append({k: float(v) for k, v in trainer.callback_metrics.items()})

    return Spy()


def guarded(url, **options):
    holdout = th.remote(url, wait=120).holdout()
    return guard_class("lightning.pytorch")(holdout, **options)


def test_a_team_submits_repeats_and_reads(host):
    """Positions and chains that the server sends in answers, facts and the page are one story."""
    own = host()
    board = th.remote(own.url)
    first = board.submit(partly(200))
    assert (first.kind, first.better, first.position) == ("release", True, 1)
    worse = board.submit(partly(150))
    assert (worse.kind, worse.better, worse.value) == ("guess", False, first.value)
    status = board.status()
    assert (status.position, status.chain) == (2, worse.chain)
    own.team("beta")  # is an event in the chain, and no set-back
    assert board.status().chain != worse.chain
    assert board.status().position == 2
    assert (status.baseline, status.step) == (0.35, 0.005)
    assert status.quota.submissions_left == 58
    again = board.submit(partly(200))
    assert (again.kind, again.better, again.value) == ("repeat", True, first.value)
    assert board.leaderboard()["position"] == 2
    assert board.finalists([worse.submission]) == [worse.submission]
    with pytest.raises(th.BoardRefusedError, match="401"):
        th.remote(own.url, "th_abcdefgh_" + "x" * 43).submit(partly(200))


@pytest.mark.parametrize(
    ("parts", "kinds"),
    [(boards.GATE, ["first", "reverted", "kept"]), (boards.SEALED, ["sealed"] * 3)],
)
def test_boards_without_values(host, parts, kinds):
    parts = {"data": THREE.format("classes"), **parts}
    if kinds[0] == "sealed":
        parts["data"] = parts["data"].replace("0.6", "0")
    own = host(**parts)
    board = th.remote(own.url)
    answers = [board.submit(partly(right)) for right in (150, 140, 290)]
    assert [answer.kind for answer in answers] == kinds
    assert [answer.value for answer in answers] == [None] * 3
    with pytest.raises(th.InvalidArgumentError, match=re.escape("submit(predictions")):
        trainer([guarded(own.url)]).fit(predicting(), labelled(), unlabelled(size=ROWS))


def test_a_closed_board_and_an_exhausted_team(host):
    own = host(limits="teams = 2\nsubmissions = 2\nreleases = 1\nbudget = 2")
    board = th.remote(own.url)
    board.submit(partly(200))
    with pytest.raises(th.BudgetExhaustedError):
        board.submit(partly(250))
    hosting.close(own.config, None)
    with pytest.raises(th.HoldoutClosedError):
        board.submit(partly(260))
    assert board.submit(partly(200)).kind == "repeat"
    assert board.status().state == "closed"


@pytest.mark.parametrize("upload", ["classes", "probabilities"])
def test_a_guarded_fit_stops_by_the_boards_answers(host, upload):
    # From .35 in steps of .1 there are at most 6 releases: it stops after 43 passes at most.
    own = host(upload=upload, feedback=TELLING.replace("0.005", "0.1"))
    spy, net = watching(), predicting()
    stopping = package("lightning.pytorch").callbacks.EarlyStopping(
        "accuracy", mode="max", patience=6
    )
    run = trainer([guarded(own.url), stopping, spy], max_epochs=60)
    run.fit(net, labelled(), unlabelled(size=ROWS))
    assert 7 <= len(spy.seen) <= 43
    status = th.remote(own.url).status()
    assert spy.seen[-1]["holdout/budget_left"] == status.quota.releases_left
    assert spy.seen[-1]["holdout/releases"] == 30 - status.quota.releases_left
    rows = th.remote(own.url).leaderboard()["rows"]
    assert (rows[0]["value"] or 0.35) == pytest.approx(spy.seen[-1]["accuracy"])
    net.eval()
    with torch.no_grad():
        last = torch.cat([net(x) for x in inputs(ROWS).split(20)])  # the same bits
    rows = last.argmax(1) if upload == "classes" else last.softmax(1)
    assert th.remote(own.url).submit(rows).kind == "repeat"  # what the guard sent is what it says


def test_a_server_killed_in_the_middle_of_a_fit_and_started_again(host):
    """kill -9 during a pass; the fit waits, goes on, and nothing is charged twice."""
    own = host()
    spy, back = watching(), []

    class Kill(package("lightning.pytorch").Callback):
        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, *_):
            due = trainer.current_epoch in (2, 5) and batch_idx == 1
            if due and not trainer.sanity_checking:
                own.stop()
                back.append(threading.Timer(2.0, own.start))
                back[-1].start()

    run = trainer([guarded(own.url), Kill(), spy], max_epochs=8)
    run.fit(predicting(), labelled(), unlabelled(size=ROWS))
    for each in back:
        each.join()
    assert len(back) == 2
    assert len(spy.seen) == 8
    status = th.remote(own.url).status()
    assert status.position == 60 - status.quota.submissions_left <= 8
    assert spy.seen[-1]["holdout/budget_left"] == status.quota.releases_left


def test_a_server_that_stops_politely_while_it_is_asked(host):
    own = host()
    board = th.remote(own.url, wait=120)
    answers = [board.submit(partly(150))]
    own.server.signal(signal.SIGTERM)
    back = threading.Timer(1.0, lambda: (own.server.wait(), own.start()))
    back.start()
    answers += [board.submit(partly(right)) for right in (200, 250)]
    back.join()
    assert [answer.position for answer in answers] == [1, 2, 3]


def test_a_board_that_was_restored_from_a_copy_is_noticed(host):
    own = host()
    board = th.remote(own.url)
    board.submit(partly(150))
    own.stop()
    copy = {p.name: p.read_bytes() for p in own.folder.glob("board.db*")}
    own.start()
    board.submit(partly(200))
    own.stop()
    for place in own.folder.glob("board.db*"):
        place.unlink()
    for name, content in copy.items():
        (own.folder / name).write_bytes(content)
        (own.folder / name).chmod(0o600)
    own.start()
    with pytest.warns(th.HoldoutWarning, match="is at answer 1, but was at 2"):
        board.status()


@pytest.mark.integration
def test_two_ranks_are_one_team(host, tmp_path):
    """Rank 0 sends, both are shown one number, and what one process would send is a repeat."""
    own = host()
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, remote_ranks.__file__, str(tmp_path), "2", own.url, str(ROWS), "4"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    assert ended.returncode == 0, ended.stderr[-3000:]
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert ranks[0] == ranks[1]
    assert len(ranks[0]) == 4
    status = th.remote(own.url).status()
    assert status.position == 60 - status.quota.submissions_left
    assert 1 <= status.position <= 4
    assert ranks[0][-1]["holdout/budget_left"] == status.quota.releases_left
