"""Submissions per second of a board on the loopback, and how long an answer takes.

Peer: what a host would write instead, a FastAPI app that keeps the file, computes the accuracy
with NumPy and appends a durable line to a log under a file lock; it has no quota, no ledger, no
certificate and answers everything. Ours is `torch-holdout serve` as it is. Clients are threads of a
third process, each with a connection of its own; every file is new. Rates and waits belong to an
idle machine; the server's own processor time also tells something on a busy one.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from _measure import report

from ledger import server as postgres_server

HERE = Path(__file__).resolve().parent
TEAMS = 8
BOARD = """
[board]
name = "digits"
title = "Digits"
[data]
labels = "labels.npy"
classes = 10
upload = "classes"
public = 0.3
[statistics.accuracy]
kind = "accuracy"
[feedback]
mode = "ladder"
baseline = 0.75
step = 0.01
[limits]
teams = 8
submissions = 100000
releases = 8
budget = 64
[store]
ledger = "{ledger}"
[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
workers = {workers}
requests_per_minute = 1000000
"""
show = partial(report, "service")


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[tuple[str, int]]:
    """Run a server in a group of its own; yield its first address, and its process."""
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            first = process.stdout.readline() if process.stdout else ""
            if "http://" not in first:
                raise SystemExit(f"the server did not start: {first}")
            yield "http://" + first.split("http://")[1].strip().partition("/")[0], process.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def make_board(folder: Path, rows: int, ledger: str, workers: int) -> list[str]:
    """Make a board with its teams; return their tokens."""
    from torch_holdout.service.server import hosting
    from torch_holdout.service.server.config import read_config

    make_labels(folder, rows)
    (folder / "board.toml").write_text(BOARD.format(ledger=ledger, workers=workers))
    config = read_config(folder / "board.toml")
    hosting.initialise(config)
    return [hosting.add_team(config, f"team {i}") for i in range(TEAMS)]


def make_labels(folder: Path, rows: int) -> None:
    """Write labels that only their owner can read."""
    folder.mkdir(parents=True)
    path = folder / "labels.npy"
    np.save(path, np.random.default_rng(0).integers(0, 10, rows))
    path.chmod(0o600)


def processor_time(process: int) -> float:
    """Return the seconds that a server and its workers have computed."""
    server = psutil.Process(process)
    times = [one.cpu_times() for one in (server, *server.children(recursive=True))]
    return sum(own.user + own.system for own in times)


def load(
    server: tuple[str, int], folder: Path, tokens: list[str], each: int, seed: int
) -> dict[str, float]:
    """Send files from clients in a process of their own; return rate, waits, processor time."""
    url, process = server
    before = processor_time(process)
    asked = {"url": url, "folder": str(folder), "tokens": tokens, "each": each, "seed": seed}
    script = str(HERE / "_service_load.py")
    done = subprocess.run(
        [sys.executable, script], input=json.dumps(asked), text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    if done.returncode or done.stderr:
        raise SystemExit(f"the load failed: {done.stderr[-500:]}")
    found = json.loads(done.stdout)
    cuts = statistics.quantiles(found["waits"], n=100)
    computed = (processor_time(process) - before) / len(found["waits"])
    rate = len(found["waits"]) / found["seconds"]
    return {"rate": rate, "p50": cuts[49], "p99": cuts[98], "computed": computed}


def middles(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of every number."""
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}


def compare(
    folder: Path, case: str, ledger: str, rows: int, workers: int, sizes: Any, repetitions: int
) -> None:
    """Measure a board and the peer in turns, with one client and with several."""
    tokens = make_board(folder / "board", rows, ledger, workers)
    make_labels(folder / "peer", rows)
    peer = "FastAPI, numpy.load and a log under a file lock"
    with (
        running([str(HERE / "_service_peer.py"), str(folder / "peer")]) as theirs,
        running(["-c", SERVE, "serve", str(folder / "board" / "board.toml")]) as ours,
    ):
        for clients, each in sizes:
            places = {"ours": (ours, folder / "board"), "theirs": (theirs, folder / "peer")}
            rounds: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
            for seed in range(repetitions + 1):
                for who, (server, place) in places.items():
                    found = load(server, place, tokens[:clients], each, 10 * clients + seed)
                    if seed:  # the first warms up
                        rounds[who].append(found)
            middle = {who: middles(found) for who, found in rounds.items()}
            name = f"{case}, {clients} client{'s' if clients > 1 else ''}"
            rates = {who: found["rate"] for who, found in middle.items()}
            show(case=name, peer=peer, unit="submissions/s", better="higher", **rates)
            cuts = {"p50": "answer (p50)", "p99": "answer (p99)", "computed": "processor time"}
            for cut, what in cuts.items():
                times = {who: found[cut] for who, found in middle.items()}
                show(case=f"{name}, {what}", peer=peer, unit="s", **times)


SERVE = "from torch_holdout.cli import main; main()"


def main() -> None:
    """Print one JSON line per comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer files, one repetition")
    quick = parser.parse_args().quick
    repetitions = 1 if quick else 3
    sizes = ((1, 30), (8, 10)) if quick else ((1, 100), (8, 25))
    with tempfile.TemporaryDirectory(prefix="th_bench_") as temporary:
        folder, sqlite = Path(temporary), "sqlite:///board.db"
        run = partial(compare, sizes=sizes, repetitions=repetitions)
        run(folder / "a", "100,000 classes, SQLite", sqlite, 100_000, 1)
        if quick:
            return
        run(folder / "b", "100,000 classes, SQLite, 2 workers", sqlite, 100_000, 2)
        with postgres_server(temporary) as database:
            run(folder / "c", "100,000 classes, PostgreSQL, 2 workers", database(), 100_000, 2)


if __name__ == "__main__":
    main()
