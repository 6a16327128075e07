"""A process that asks while one of its threads reads the ledger's files, as an upload would.

    python foreign_reader.py URL WORKER ASKS READS LOG

Starts when the file ``go`` is beside LOG. Asks ASKS times, and until the thread has opened, read
and closed the files READS times; the thread goes on until then. Each answer is written to LOG as
soon as the door has returned it.
"""

import contextlib
import itertools
import json
import sys
import threading
import time
from pathlib import Path

import torch
import torch_holdout as th

BUDGET = 1_000_000


def holdout_at(url):
    return th.ReusableHoldout(
        url,
        name="val",
        size=50,
        statistics={"val_acc": th.ZeroOne()},
        mechanism=th.LaplaceMechanism(epsilon=0.1),  # every query is charged
        budget=BUDGET,
        seed=1,
    )


def read_files(path):
    """Open, read and close the database and its side files."""
    for side in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError), open(f"{path}{side}", "rb") as file:
            file.read(4096)


class Reader(threading.Thread):
    """Reads the files at least so often, and until it is stopped."""

    def __init__(self, path, times):
        super().__init__(daemon=True)
        self._path, self._times = path, times
        self.done, self.stop = threading.Event(), threading.Event()
        self.count = 0

    def run(self):
        while not (self.done.is_set() and self.stop.is_set()):
            read_files(self._path)
            self.count += 1
            if self.count >= self._times:
                self.done.set()


def main(url, worker, asks, reads, log):
    holdout, log = holdout_at(url), Path(log)
    holdout.status()
    log.with_suffix(".ready").touch()
    while not log.with_name("go").exists():
        time.sleep(0.001)
    reader = Reader(url.removeprefix("sqlite:///"), int(reads))
    reader.start()
    with log.open("a", buffering=1) as file:
        for number in itertools.count():
            if number >= int(asks) and reader.done.is_set():
                break
            sums = holdout.accumulator("val_acc")
            sums.update(torch.arange(50) < number % 50)
            query = f"{worker}-{number}"
            answer = holdout.release("val_acc", sums, query=query)
            print(json.dumps([query, answer.value]), file=file)
    reader.stop.set()
    reader.join()
    print(reader.count)


if __name__ == "__main__":
    main(*sys.argv[1:])
