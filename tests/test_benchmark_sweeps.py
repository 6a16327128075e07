"""The committed results of sweeps: what the pages say of them, and what they must keep."""

import json
from itertools import product

import pytest

from support.oracles.benchmarks import FOLDER, benchmark_module

HOWTO = FOLDER.parent / "docs" / "how-to" / "optuna.md"
sweep_page, ways = benchmark_module("_sweep_page"), benchmark_module("_sweep_ways")
TASKS = [task.name for task in benchmark_module("_sweep_tasks").TASKS]


def committed():
    rows = json.loads((FOLDER / "results.json").read_text())["rows"]
    return [row for row in rows if row["benchmark"] == "sweeps"]


def of_way(way):
    found = [row for row in committed() if row.get("way") == way]
    searches = ("TPE",) if way == ways.LIVE_BEFORE else ("TPE", "ASHA")
    assert {(r["task"], r["search"]) for r in found} == set(product(TASKS, searches))
    assert all(row["seeds"] >= 8 for row in found)
    return found


@pytest.mark.parametrize("way", [ways.REFITS[10], ways.OF_HOLDOUT])
def test_the_committed_winners_are_as_good_as_those_of_raw_values(way):
    assert all(row["behind"] <= 0.005 for row in of_way(way))


@pytest.mark.parametrize(
    "way", [ways.LIVE, ways.TENTH, ways.FIFTH, ways.REFITS[10], ways.OF_HOLDOUT]
)
def test_the_committed_claims_hold(way):
    """Each interval misses with probability 0.05 at most: 48 of them more than 8 times in 1e-3."""
    assert sum(row["seeds"] - row["covered"] for row in of_way(way)) <= 8


def test_the_committed_live_trials_are_not_pruned():
    assert all(row["complete"] == ways.TRIALS for row in of_way(ways.LIVE))
    assert all(row["complete"] <= ways.TRIALS / 4 for row in of_way(ways.LIVE_BEFORE))


@pytest.mark.parametrize(
    ("trials", "one", "many"), [(20, 0.0185, 0.0247), (100, 0.0206, 0.0263), (500, 0.0224, 0.0278)]
)
def test_the_committed_widths_of_sealed_sweeps(trials, one, many):
    rows = [r for r in committed() if r.get("trials") == trials and r["size"] == 10_000]
    assert {r["evaluations"]: round(r["ours"], 4) for r in rows} == {1: one, 200: many}
    assert all(r["ours"] < r["theirs"] / 1.8 for r in rows)


def test_the_page_about_optuna_has_the_committed_tables():
    text, rows = HOWTO.read_text(), committed()
    studies = [row for row in rows if "search" in row]
    for tables in (
        sweep_page.found_tables(studies),
        sweep_page.claim_tables(studies),
        sweep_page.width_table([row for row in rows if "evaluations" in row]),
    ):
        assert "\n".join(tables) in text
