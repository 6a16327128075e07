"""The page that compares ways to private answers says what was measured."""

import json
import re

import pytest

from support.machines.site import ROOT
from support.oracles.benchmarks import FOLDER, benchmark_module

PAGE = ROOT / "docs" / "how-to" / "private-prediction.md"
TODAY = 0.751  # the ensemble's student at epsilon 8 before there were neighbours


def measured():
    rows = json.loads((FOLDER / "results.json").read_text())["rows"]
    return [row for row in rows if row["benchmark"] == "private_prediction_ways"]


def reached(data, way, queries, epsilon):
    (row,) = [
        row
        for row in measured()
        if (row["data"], row["queries"], row["epsilon"]) == (data, queries, epsilon)
        and re.fullmatch(way, row["way"])
    ]
    return row["ours"]


def tables(rows):
    return "\n".join(benchmark_module("_ways_page").ways_tables(rows)).strip()


def test_the_tables_are_those_of_the_committed_results():
    page = PAGE.read_text()
    shown = page.split("<!-- ways -->")[1].split("<!-- ways end -->")[0].strip()
    assert shown == tables(measured())
    twin = [row | {"ours": row["ours"] + 0.01} for row in measured()]
    assert shown != tables(twin)


DATA = sorted({row["data"] for row in measured()})
EPSILONS = sorted({row["epsilon"] for row in measured()})


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_what_the_page_says_of_the_ways_was_measured(data, epsilon):
    ensemble, neighbours, private = r"ensemble of \d+", "neighbours", r"DP-SGD .*"
    for queries in (100, 1000, None):
        ours, theirs = (reached(data, way, queries, epsilon) for way in (neighbours, ensemble))
        assert ours > theirs
    student = reached(data, neighbours, None, epsilon)
    assert reached(data, private, None, epsilon) > student
    for queries in (100, 1000):
        assert reached(data, "stable model", queries, epsilon) < reached(
            data, neighbours, queries, epsilon
        )


def test_the_neighbours_student_beats_the_ensembles_at_four_times_the_epsilon():
    (digits,) = [data for data in DATA if "digits" in data]
    pixels = reached(digits, r"ensemble of \d+, on pixels", None, 8.0)
    assert reached(digits, "neighbours", None, 2.0) > max(TODAY, pixels)


def test_every_way_was_measured_on_three_splits():
    assert len(DATA) == 2
    assert EPSILONS == [1.0, 2.0, 4.0, 8.0]
    for row in measured():
        assert row["seeds"] == 3
        assert row["smallest"] <= row["ours"] + 1e-4
        assert row["ours"] - 1e-4 <= row["largest"] < row["smallest"] + 0.15
