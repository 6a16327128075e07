"""Attaching to a long account, a sweep that attaches again and again, CSV, and fsyncs a charge.

Each against the same with few rows, or the first of many; fsyncs are counted by strace, where it
is installed, against SQLite's own way, a log that is made anew for each transaction.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from _long_ledgers import filled, opened
from _measure import medians, report, timed
from torch_holdout.ledger import Ledger
from torch_holdout.report import tables

show = partial(report, "status", yardstick=True)
CHARGES = 40
CHARGING = """
import sys, torch
from pathlib import Path
from _long_ledgers import SIZE, opened
from torch_holdout.ledger.sqlite import logs
path, charges, held = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "held"
logs._CAN_PIN = logs._CAN_PIN and held
holdout = opened(path)
for number in range(charges):
    holdout.ask("val_acc", torch.arange(SIZE) < 5_000, query=f"{charges} {number}")
"""


def attached(path: Path) -> object:
    """Attach as a new process does, but for importing."""
    return opened(path).budget_left


def attaching(folder: Path, many: int, few: int, repetitions: int) -> None:
    """Compare an account of many rows with one of few, both opened before."""
    paths = [folder / f"{rows}.db" for rows in (many, few)]
    for path, rows in zip(paths, (many, few), strict=True):
        filled(path, rows)
        attached(path)  # replays all rows, once
    calls = [timed(partial(attached, path)) for path in paths]
    ours, theirs = medians(*calls, repetitions=repetitions)
    show(case=f"attach, {many} rows", peer=f"{few} rows", ours=ours, theirs=theirs, unit="s")


def sweeping(folder: Path, trials: int) -> None:
    """Attach once for each trial, and ask once; compare the last tenth with the first."""
    import torch

    path, tenth = folder / "sweep.db", trials // 10
    right = torch.arange(10_000) < 5_000
    seconds = []
    for trial in range(trials):
        seconds.append(timed(partial(attached, path))())
        opened(path).ask("val_acc", right, query=f"trial {trial}")
    ours, theirs = statistics.median(seconds[-tenth:]), statistics.median(seconds[:tenth])
    case, peer = f"attach in a sweep, the last {tenth} of {trials}", f"the first {tenth} of them"
    show(case=case, peer=peer, ours=ours, theirs=theirs, unit="s")


def writing_csv(folder: Path, many: int, few: int) -> None:
    """Compare the time for a row of a long table with that of a short one."""

    def row_time(rows: int) -> float:
        path = folder / f"csv{rows}.db"
        filled(path, rows)
        ledger = Ledger(f"sqlite:///{path}", reads_only=True)
        return timed(lambda: sum(1 for _ in tables.rows(ledger)))() / rows

    ours, theirs = row_time(many), row_time(few)
    case, peer = f"CSV, a row of {many}", f"a row of {few}"
    show(case=case, peer=peer, ours=ours, theirs=theirs, unit="s")


def syncing(folder: Path) -> None:
    """Count fsyncs a charge: those of many charges less those of few, in processes of their own."""
    if shutil.which("strace") is None:
        print("no strace here: fsyncs are not counted", file=sys.stderr)
        return

    def synced(how: str, charges: int) -> int:
        log, path = folder / "strace.txt", folder / f"{how} {charges}.db"
        traced = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(log)]
        program = [sys.executable, "-c", CHARGING, str(path), str(charges), how]
        here = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, here))}
        subprocess.run([*traced, *program], env=environment, check=True)
        return sum("sync(" in line for line in log.read_text().splitlines())

    held, anew = (
        (synced(how, 2 * CHARGES) - synced(how, CHARGES)) / CHARGES for how in ("held", "anew")
    )
    peer = "a log made anew each time"
    report("status", case="SQLite, a charge", peer=peer, ours=held, theirs=anew, unit="fsyncs")


def compare(quick: bool) -> None:
    """Print one JSON line per comparison."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        attaching(folder, *((10_000, 1_000, 3) if quick else (100_000, 1_000, 15)))
        sweeping(folder, 100 if quick else 1_000)
        writing_csv(folder, *((1_000, 200) if quick else (20_000, 2_000)))
        syncing(folder)
