"""``holdout.status()`` and ``certificate()`` on 100,000 rows, against 100."""

import tempfile
from pathlib import Path

import sqlalchemy as sa
import torch_holdout as th
from _measure import asked_quick, medians, report, timed
from torch_holdout.ledger.chains import chained, first_link
from torch_holdout.ledger.schema import holdouts, queries

MANY, FEW = 100_000, 100


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


def main() -> None:
    """Print one JSON line per call: many rows against few."""
    repetitions = 5 if asked_quick(__doc__) else 25
    with tempfile.TemporaryDirectory() as folder:
        holdouts = [filled(Path(folder) / f"{rows}.db", rows) for rows in (MANY, FEW)]
        for name in ("status", "certificate"):
            calls = [timed(getattr(holdout, name)) for holdout in holdouts]
            ours, theirs = medians(*calls, repetitions=repetitions)
            report(
                "status",
                case=f"{name}, {MANY} rows",
                peer=f"{FEW} rows",
                ours=ours,
                theirs=theirs,
                unit="s",
                yardstick=True,
            )


if __name__ == "__main__":
    main()
