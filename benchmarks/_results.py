"""What a line must hold, what it says in words, and which ratios a whole run must have."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
TEXT, NUMBERS = ("benchmark", "case", "peer", "unit"), ("ours", "theirs", "ratio")
WORDS = {
    "epsilon": ("tighter", "looser"),
    "distance": ("tighter", "looser"),
    "reads": ("fewer", "more"),
    "fsyncs": ("fewer", "more"),
    "releases": ("fewer", "more"),
    "bytes": ("smaller", "larger"),
    "fresh loss": ("better", "worse"),
    "fresh accuracy": ("better", "worse"),
}
EQUAL = 0.005  # closer than that is said to be the same
EXACT = 10_000
BY_HAND = ("private_prediction_ways", "quality", "sweeps")  # they train for long


@dataclass(frozen=True)
class Needed:
    """Which rows count: regular expressions for the whole text."""

    benchmark: str
    case: str = ".*"
    peer: str = ".*"
    unit: str = ".*"

    def matches(self, row: Row) -> bool:
        """Tell whether a row is one of them."""
        return row["benchmark"] == self.benchmark and all(
            re.fullmatch(getattr(self, key), row[key]) for key in ("case", "peer", "unit")
        )


REQUIRED = {
    "validation epoch, batches of 500": Needed(
        "validation_epoch", r"100?,000 .*, batch=500", r"self\.log"
    ),
    "validation epoch, batches of 64": Needed(
        "validation_epoch", r"100?,000 .*, batch=64", r"self\.log"
    ),
    "validation epoch of 5,000": Needed("validation_epoch", r"5,000 .*, batch=500", r"self\.log"),
    "validation epoch against MeanMetric": Needed("validation_epoch", peer="MeanMetric"),
    "host reads against self.log": Needed("host_reads", "500 batches", r"self\.log"),
    "host reads against MeanMetric": Needed("host_reads", "500 batches", "MeanMetric"),
    "noise against OpenDP, one draw": Needed("noise", "one .*", "OpenDP"),
    "noise against OpenDP, a batch": Needed("noise", r"\d+ .*", "OpenDP"),
    "noise against numpy, one draw": Needed("noise", "one .*", "numpy.*"),
    "noise against numpy, a batch": Needed("noise", r"\d+ .*", "numpy.*"),
    "ledger, one process": Needed("ledger", "SQLite, 1 process", unit="charges/s"),
    "ledger, eight processes": Needed("ledger", "SQLite, 8 processes", unit="charges/s"),
    "ledger, waiting": Needed("ledger", r"SQLite, 1 process, wait .*"),
    "ledger on PostgreSQL": Needed("ledger", "PostgreSQL, 1 process", unit="charges/s"),
    "status of many rows": Needed("status", "status, .*"),
    "certificate of many rows": Needed("status", "certificate, .*"),
    "release after many rows": Needed("status", "release, .*"),
    "prices of many rows": Needed("status", "prices, .*"),
    "report, time": Needed("report", "the page of 10000 answers", unit="CPU s"),
    "report, size": Needed("report", "the page of 10000 answers", unit="bytes"),
    "weights, 25 million": Needed("weights", "25 million weights, 1 thread, .*", "blake2b"),
    "weights, 100 million": Needed("weights", "100 million weights, 2 threads, .*", "blake2b"),
    "weights, small tensors": Needed("weights", "452 tensors, .*", "blake2b"),
    "weights, busy cores": Needed("weights", ".*, busy cores", "blake2b"),
    "memory of a stream": Needed("large", ".* examples streamed, a mean"),
    "weights that are kept": Needed("large", ".* million weights, .*", "one clone"),
    "accounting time": Needed("accounting", peer="dp-accounting", unit="s"),
    "accounting tightness": Needed("accounting", unit="epsilon"),
    "certificate tightness": Needed("certificates", peer="best published: .*"),
    "quality against raw values": Needed("quality", peer="raw values"),
    "width of a sealed run": Needed("quality", "one sealed run, .*", "one fresh query"),
    "width of display-stopped runs": Needed("quality", r"\d+ display-stopped runs, .*"),
    "width of closed losses": Needed("quality", ".*, sealed, closed", "one fresh query"),
    "sealed sweeps against raw values": Needed("sweeps", ".*, TPE, display: .*", "raw values"),
    "sealed sweeps with ASHA": Needed("sweeps", ".*, ASHA, display: .*", "raw values"),
    "width of sealed sweeps": Needed("sweeps", "20 sealed trials of 200, n=10000", "live .*"),
    "private answers": Needed("private_prediction_ways", ".*, neighbours, .*"),
    "ensemble training": Needed("ensemble_training", peer="Lightning, one fit each"),
    "ensemble training, convolutions": Needed(
        "ensemble_training", "CNN.*", "Lightning, one fit each"
    ),
    "aggregation": Needed("aggregation", unit="us/query"),
    "aggregation against numpy": Needed("aggregation", peer="numpy, vectorised, .*"),
    "aggregation, votes from scores": Needed("aggregation", ".* scores to votes"),
    "Blockwise": Needed("blockwise"),
    "import time": Needed("import_time", peer="import torch"),
    "command, help": Needed("import_time", "torch-holdout --help"),
    "command, plan": Needed("import_time", "torch-holdout plan"),
    "planning": Needed("import_time", r"th\.plan\(\), imported"),
    "board": Needed("service", unit="submissions/s"),
}


def missing(rows: list[Row], benchmarks: Iterable[str]) -> list[str]:
    """Return the names of the required ratios that these benchmarks have left out."""
    asked = set(benchmarks)
    return [
        name
        for name, needed in REQUIRED.items()
        if needed.benchmark in asked and not any(map(needed.matches, rows))
    ]


def read_row(line: str, benchmark: str) -> Row:
    """Return one comparison from its line.

    Raises:
        ValueError: If the line is anything else.
    """
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("it is no JSON object")
    for key in TEXT:
        if not isinstance(row.get(key), str):
            raise ValueError(f"{key!r} is no text")
    for key in NUMBERS:
        if not (isinstance(row.get(key), int | float) and 0 <= row[key] < float("inf")):
            raise ValueError(f"{key!r} is no finite number")
    if row["benchmark"] != benchmark or row.get("better") not in ("lower", "higher"):
        raise ValueError("'benchmark' is not the script's name, or 'better' no direction")
    return row


def verdict(row: Row) -> str:
    """Say the ratio in words, also when the peer is better.

    Example:
        >>> verdict({"ratio": 0.5, "better": "lower", "unit": "s"})
        '2x faster'
        >>> verdict({"ratio": 0.5, "better": "higher", "unit": "charges/s"})
        '2x slower'
        >>> verdict({"ratio": 0.02, "better": "lower", "unit": "s", "yardstick": True})
        '2 % of it'
    """
    ratio = row["ratio"]
    if row.get("yardstick"):
        return f"{number(100 * ratio)} % of it"
    if abs(ratio - 1) < EQUAL:
        return "the same"
    good, bad = WORDS.get(row["unit"], ("faster", "slower"))
    won = (ratio < 1) == (row["better"] == "lower")
    factor = max(ratio, 1 / ratio) if ratio else float("inf")
    return f"{number(factor)}x {good if won else bad}"


def is_worse(row: Row) -> bool:
    """Tell whether one would rather take the peer, by this number alone."""
    return not row.get("yardstick") and verdict(row).endswith(
        ("slower", "looser", "more", "larger", "worse")
    )


def number(value: float) -> str:
    """Write a number as people do, with three digits; small counts are exact.

    Example:
        >>> number(0.000751), number(1.1234), number(1001.0), number(345800.0)
        ('0.000751', '1.12', '1,001', '346,000')
    """
    if value == int(value) and value < EXACT:
        return f"{value:,.0f}"
    rounded = float(f"{value:.3g}")
    if 1e-4 <= rounded < 1:
        return f"{rounded:.6f}".rstrip("0").rstrip(".")
    if rounded < 1e-4:
        return f"{rounded:.2e}"
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:.3g}"
