"""Ledgers with many answers, written in bulk: asking for a million would take an hour."""

import contextlib
import sqlite3
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import torch_holdout as th
from torch_holdout.ledger.chains import chained, first_link
from torch_holdout.ledger.schema import holdouts, queries

SIZE = 10_000
BUDGET = 2_000_000  # the same for short and long ones: only the rows differ
CHARGE = 10**11
AT_ONCE = 10_000


def opened(path: Path) -> th.ReusableHoldout:
    """Open the account, or make it."""
    return th.ReusableHoldout(
        f"sqlite:///{path}",
        name="val",
        size=SIZE,
        statistics={"val_acc": th.ZeroOne()},
        mechanism=th.LaplaceMechanism(epsilon=0.1),
        budget=BUDGET,
    )


def filled(path: Path, rows: int) -> th.ReusableHoldout:
    """Make a holdout whose ledger has that many answers."""
    holdout = opened(path)
    holdout.status()
    written = contents(rows)
    chain = ""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        while some := list(islice(written, AT_ONCE)):
            connection.execute(queries.insert(), some)
            chain = some[-1]["chain"]
        ended = {"queries": rows, "releases": rows, "last_release": rows, "chain": chain}
        connection.execute(holdouts.update().values(spent=rows * CHARGE, **ended))
    engine.dispose()
    with contextlib.closing(sqlite3.connect(path)) as own:  # the log is ours: SQLite leaves it full
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
    return holdout


def contents(rows: int) -> Iterator[dict[str, Any]]:
    """Yield the rows, linked as the ledger links them."""
    chain = first_link("val")
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
            "units": SIZE,
            "charge": CHARGE,
            "seeded": False,
            "asked_at": "2026-01-01T00:00:00.000+00:00",
            "version": "benchmark",
        }
        chain = chained(chain, position, row)
        yield row | {"holdout_id": 1, "position": position, "chain": chain}
