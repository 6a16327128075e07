"""``holdout.status()`` and ``certificate()`` on 100,000 rows, against 100."""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
import torch_holdout as th
from torch_holdout.ledger.account import chained, first_link
from torch_holdout.ledger.schema import holdouts, queries

FEW = 100


def filled(path: Path, rows: int) -> th.ReusableHoldout:
    """Make a holdout whose ledger has that many answers, written in bulk."""
    holdout = th.ReusableHoldout(
        f"sqlite:///{path}",
        name="val",
        size=10_000,
        statistics={"val_acc": th.ZeroOne()},
        mechanism=th.Thresholdout(threshold=0.02, sigma=0.001, guess="last"),
        budget=rows,
        delta=1e-6,
    )
    holdout.status()
    content, chain = [], first_link("val")
    for position in range(1, rows + 1):
        row = {
            "statistic": "val_acc",
            "query": f"{position:064x}",
            "attempt": 0,
            "kind": "release",
            "grid_index": position % 400,
            "value": position % 400 / 512,
            "compared": False,
            "opened": False,
            "units": 10_000,
            "charge": 10**11,
            "seeded": False,
            "asked_at": "2026-01-01T00:00:00.000+00:00",
            "version": "benchmark",
        }
        chain = chained(chain, position, row)
        content.append(row | {"holdout_id": 1, "position": position, "chain": chain})
    with sa.create_engine(f"sqlite:///{path}").begin() as connection:
        connection.execute(queries.insert(), content)
        connection.execute(
            holdouts.update().values(
                queries=rows,
                releases=rows - 1,
                last_release=rows,
                spent=rows * 10**11,
                chain=chain,
            )
        )
    return holdout


def seconds(action: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    """Print one JSON line per call: many rows against few."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rows = 100_000
    with tempfile.TemporaryDirectory() as folder:
        many, few = (filled(Path(folder) / f"{n}.db", n) for n in (rows, FEW))
        for name in ("status", "certificate"):
            pairs = [
                (seconds(getattr(many, name)), seconds(getattr(few, name)))
                for _ in range(5 if quick else 25)
            ]
            ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(
                json.dumps(
                    {
                        "benchmark": "status",
                        "case": f"{name}, {rows} rows",
                        "peer": f"{FEW} rows",
                        "ratio": round(ours / theirs, 3),
                        "better": "lower",
                        "ours": round(ours, 5),
                        "theirs": round(theirs, 5),
                        "unit": "s",
                    }
                )
            )


if __name__ == "__main__":
    main()
