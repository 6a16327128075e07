"""The report of a ledger with 10,000 answers and its CSV, against those of 100 answers."""

import tempfile
import time
from functools import partial
from pathlib import Path

import torch_holdout as th
from _measure import asked_quick, medians, report, timed
from status import filled
from torch_holdout.ledger import Ledger
from torch_holdout.report import rows, summarise, write

MANY, FEW = 10_000, 100
FAILURE = 0.05
show = partial(report, "report", peer=f"{FEW} answers", yardstick=True)


def opened(holdout: th.ReusableHoldout) -> Ledger:
    """Open the ledger as the command does."""
    return Ledger(holdout.address, reads_only=True)


def main() -> None:
    """Print one JSON line each for the page and the CSV: many answers against few."""
    repetitions = 3 if asked_quick(__doc__) else 7
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ledgers = [opened(filled(folder / f"{count}.db", count)) for count in (MANY, FEW)]
        pages = [folder / f"{count}.html" for count in (MANY, FEW)]

        def page(ledger: Ledger, place: Path) -> None:
            write(summarise(ledger, FAILURE), place)

        both = zip(ledgers, pages, strict=True)
        times = medians(
            *(timed(partial(page, *each), time.process_time) for each in both),
            repetitions=repetitions,
        )
        lines = [
            timed(lambda ledger=ledger: list(rows(ledger, FAILURE)), time.process_time)
            for ledger in ledgers
        ]
        written = medians(*lines, repetitions=repetitions)
        sizes = [float(place.stat().st_size) for place in pages]
    for what, unit, (ours, theirs) in (
        ("the page", "CPU s", times),
        ("the page", "bytes", sizes),
        ("the CSV", "CPU s", written),
    ):
        show(case=f"{what} of {MANY} answers", ours=ours, theirs=theirs, unit=unit)


if __name__ == "__main__":
    main()
