"""The page about months of runs says what the code certifies."""

import math
from pathlib import Path

import pytest
import torch_holdout as th
from torch_holdout.bounds import hoeffding
from torch_holdout.bounds.symbols import record_price, winner_price
from torch_holdout.planning.decisions import sealed_tolerance

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "many-runs.md").read_text()
PLANNED = {"evaluations": 200, "failure": 0.05, "statistics": 1}
STOPS = 19 * (math.log(2) - math.log(0.9 / 200 + 0.1 / (200 * 201)))
WINNERS = math.fsum(winner_price(runs) for runs in range(1, 20))
RECORDS = record_price([run in (2, 4, 8, 16) for run in range(2, 20)], range(2, 20))


def after(nats):
    """What the last of 20 runs is certified to after some nats, and nothing else."""
    silent = sealed_tolerance(10_000, runs=20, **PLANNED)
    quantisation = 0.5 / 65536
    return math.sqrt((silent - quantisation) ** 2 + nats / 20_000) + quantisation


@pytest.mark.parametrize(
    ("row", "nats", "certified"),
    [
        ("20 values", "", th.plan(size=10_000, queries=200, budget=20).certificate.tolerance),
        ("the stop epochs of 19", f"{STOPS:.1f}", after(STOPS)),
        ("the number of the best", f"{WINNERS:.1f}", after(WINNERS)),
        ("whether each of 19 runs was", f"{RECORDS:.1f}", after(RECORDS)),
        ("**nothing; a display of a fifth", "0", sealed_tolerance(8_000, runs=20, **PLANNED)),
        ("**nothing; the display is cut", "0", sealed_tolerance(10_000, runs=20, **PLANNED)),
        (
            *("nothing; a vault of half", "0"),
            sealed_tolerance(5_000, 1, 0.05, runs=1, statistics=1),
        ),
    ],
)
def test_a_row_of_the_table(row, nats, certified):
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {row}")]
    assert [cell.strip() for cell in line.split("|")[2:4]] == [nats, f"{certified:.4f}"]


def test_a_fresh_query():
    assert f"asked once, would be {hoeffding(10_000, 0.05):.4f}" in PAGE


def test_a_stop_costs_about_six_nats():
    assert "about six nats for 200 evaluations" in PAGE
    assert pytest.approx(6, abs=0.1) == STOPS / 19
