"""Status, certificate, prices and a release of an account of a million rows, against 1,000."""

import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import sqlalchemy as sa
import torch
import torch_holdout as th
from _measure import asked_quick, medians, report, timed
from torch_holdout.ledger.chains import chained, first_link
from torch_holdout.ledger.schema import holdouts, queries

MANY, FEW, QUICK = 1_000_000, 1_000, 50_000
SIZE, AT_ONCE = 10_000, 20_000  # examples; rows that are written together


def filled(path: Path, rows: int) -> th.ReusableHoldout:
    """Make a holdout whose ledger has that many answers, written in bulk."""
    holdout = th.ReusableHoldout(
        f"sqlite:///{path}",
        name="val",
        size=SIZE,
        statistics={"val_acc": th.ZeroOne()},
        mechanism=th.Thresholdout(threshold=0.02, sigma=0.001, guess="last"),
        budget=rows + 10_000,
        delta=1e-6,
    )
    holdout.status()
    chain = first_link("val")
    with sa.create_engine(f"sqlite:///{path}").begin() as connection:
        for first in range(1, rows + 1, AT_ONCE):
            content = []
            for position in range(first, min(first + AT_ONCE, rows + 1)):
                row = answer(position)
                chain = chained(chain, position, row)
                content.append(row | {"holdout_id": 1, "position": position, "chain": chain})
            connection.execute(queries.insert(), content)
        connection.execute(
            holdouts.update().values(
                queries=rows, releases=rows, last_release=rows, spent=rows * 10**11, chain=chain
            )
        )
    return holdout


def answer(position: int) -> dict[str, object]:
    """Return a row of the ledger, but its position and its link."""
    return {
        "statistic": "val_acc",
        "query": f"{position:064x}",
        "attempt": 0,
        "kind": "release",
        "grid_index": position % 400,
        "value": position % 400 / 512,
        "compared": False,
        "opened": False,
        "units": SIZE,
        "charge": 10**11,
        "seeded": False,
        "asked_at": "2026-01-01T00:00:00.000+00:00",
        "version": "benchmark",
    }


def releasing(holdout: th.ReusableHoldout) -> Callable[[], object]:
    """Return what asks a holdout a new question each time."""
    right, numbers = torch.arange(SIZE) % 3 > 0, count()

    def ask() -> object:
        sums = holdout.accumulator("val_acc")
        sums.update(right)
        return holdout.release("val_acc", sums, query=f"question {next(numbers)}")

    return ask


def main() -> None:
    """Print one JSON line per call: many rows against few."""
    quick = asked_quick(__doc__)
    many, repetitions = (QUICK, 5) if quick else (MANY, 25)
    with tempfile.TemporaryDirectory() as folder:
        holdouts = [filled(Path(folder) / f"{rows}.db", rows) for rows in (many, FEW)]
        for name in ("status", "certificate", "prices", "release"):
            calls = [
                timed(
                    releasing(holdout) if name == "release" else getattr(holdout, name),
                    time.process_time,
                )
                for holdout in holdouts
            ]
            ours, theirs = medians(*calls, repetitions=repetitions)
            report(
                "status",
                case=f"{name}, {many} rows",
                peer=f"{FEW} rows",
                ours=ours,
                theirs=theirs,
                unit="CPU s",
                yardstick=True,
            )


if __name__ == "__main__":
    main()
