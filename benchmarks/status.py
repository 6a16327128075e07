"""What long accounts take: status and a release on 1,000,000 rows against 1,000, attaching, CSV."""

import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import torch
import torch_holdout as th
from _long_accounts import compare
from _long_ledgers import SIZE, filled
from _measure import asked_quick, medians, report, timed

MANY, FEW = 1_000_000, 1_000


def releasing(holdout: th.ReusableHoldout) -> Callable[[], object]:
    """Return a function that asks something new."""
    right, numbers = torch.arange(SIZE) < SIZE // 2, count()
    return lambda: holdout.ask("val_acc", right, query=f"new {next(numbers)}")


def main() -> None:
    """Print one JSON line per call: many rows against few."""
    quick = asked_quick(__doc__)
    many, repetitions = (MANY // 20, 5) if quick else (MANY, 25)
    with tempfile.TemporaryDirectory() as folder:
        both = [filled(Path(folder) / f"{rows}.db", rows) for rows in (many, FEW)]
        calls = {
            name: [timed(getattr(holdout, name)) for holdout in both]
            for name in ("status", "certificate", "prices")
        }
        calls["release"] = [timed(releasing(holdout)) for holdout in both]
        for name, pair in calls.items():
            ours, theirs = medians(*pair, repetitions=repetitions)
            report(
                "status",
                case=f"{name}, {many} rows",
                peer=f"{FEW} rows",
                ours=ours,
                theirs=theirs,
                unit="s",
                yardstick=True,
            )
    compare(quick)


if __name__ == "__main__":
    main()
