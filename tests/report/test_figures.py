"""Figures are well-formed, told apart by shape, and hold nothing but their numbers."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
import torch_holdout as th
from torch_holdout.report.figures import (
    budget_bar,
    charges_chart,
    legend_mark,
    run_interval,
    run_trail,
    share_bar,
    value_range,
    values_chart,
)
from torch_holdout.report.summary import summarise
from torch_holdout.report.svg import ticks

from support.builders.holdouts import make_holdout
from support.builders.reports import HOSTILE, Retold, charged_records, several_runs

NAMESPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def statistic():
    ledger = Retold("memory://figures")
    several_runs("memory://figures", budget=24, epochs=12)
    (found,) = summarise(ledger).holdouts
    return found.statistics[0]


def marks(svg):
    root = ET.fromstring(svg)
    return {
        "release": list(root.iter(f"{NAMESPACE}circle")),
        "guess": [e for e in root.iter() if e.get("class") == "guess"],
        "stale": [e for e in root.iter() if e.get("class") == "stale"],
        "band": [e for e in root.iter() if e.get("class") == "band"],
    }


@pytest.mark.parametrize("narrow", [False, True])
def test_every_answer_has_its_mark(statistic, narrow):
    found = marks(values_chart(statistic, narrow=narrow))
    assert statistic.releases
    assert statistic.guesses
    assert statistic.stale
    assert len(found["release"]) == len(found["band"]) == statistic.releases
    assert len(found["guess"]) == statistic.guesses
    assert len(found["stale"]) == sum(s.value is not None for s in statistic.stale)


def test_a_stale_value_whose_answer_is_not_drawn_is_in_the_chart(statistic):
    far = replace(statistic.stale[0], value=statistic.low)
    low, _ = value_range(replace(statistic, stale=(far,)))
    assert low == statistic.low < value_range(replace(statistic, stale=()))[0]


def test_bands_are_the_intervals(statistic):
    svg = values_chart(statistic)
    released = [s for s in statistic.drawn if s.kind == "release"]
    for band, point, shown in zip(marks(svg)["band"], marks(svg)["release"], released, strict=True):
        top, bottom = float(band.get("y2")), float(band.get("y1"))
        assert top < float(point.get("cy")) < bottom
        share = (shown.value - shown.low) / (shown.high - shown.low)
        drawn = (bottom - float(point.get("cy"))) / (bottom - top)
        assert drawn == pytest.approx(share, abs=0.01)


def test_time_goes_from_left_to_right(statistic):
    found = marks(values_chart(statistic))
    for kind in ("release", "band"):
        places = [float(mark.get("cx") or mark.get("x1")) for mark in found[kind]]
        assert places == sorted(set(places))


def test_few_runs_have_a_line_each(statistic):
    def lines(of):
        return values_chart(of).count('class="trail-line"')

    assert lines(statistic) == len(statistic.runs) == 4
    assert lines(replace(statistic, runs_left_out=5)) == 0


def test_marks_stay_inside(statistic):
    for narrow in (False, True):
        svg = values_chart(statistic, narrow=narrow)
        root = ET.fromstring(svg)
        width, height = map(float, root.get("viewBox").split()[2:])
        for element in root.iter():
            for key, most in (("cx", width), ("cy", height), ("x", width), ("y", height)):
                if element.get(key) is not None:
                    assert 0 <= float(element.get(key)) <= most


def test_it_is_said_in_words(statistic):
    label = ET.fromstring(values_chart(statistic)).get("aria-label")
    assert f"{statistic.releases} releases and {statistic.guesses} guess" in label
    assert "stale" in label


def test_hostile_names_stay_text(statistic):
    stale = [replace(statistic.stale[0], run=run) for run in HOSTILE[:4]]
    named = replace(
        statistic,
        name=HOSTILE[0],
        drawn=tuple(replace(s, run=HOSTILE[1]) for s in statistic.drawn),
        stale=tuple(stale),
    )
    root = ET.fromstring(values_chart(named))
    assert {element.tag.removeprefix(NAMESPACE) for element in root.iter()} <= {
        *("svg", "g", "title", "line", "text", "circle", "path", "rect", "polyline")
    }
    assert HOSTILE[1] in "".join(root.itertext())


def test_odd_sizes_are_drawn(statistic):
    one = replace(statistic, drawn=statistic.drawn[:1], stale=())
    assert marks(values_chart(one))["release"]
    none = replace(statistic, drawn=(), runs=(), stale=())
    assert values_chart(none) == ""
    assert value_range(none) == (statistic.low, statistic.high)
    for scale in (1e-12, 1e15):
        scaled = replace(
            statistic,
            high=5 * scale,
            step=statistic.step * scale,
            drawn=tuple(
                replace(s, value=s.value * scale, low=s.low * scale, high=s.high * scale)
                for s in statistic.drawn
            ),
        )
        for narrow in (False, True):
            assert "nan" not in values_chart(scaled, narrow=narrow)
    same = [replace(s, value=0.0, low=0.0, high=0.0) for s in statistic.drawn]
    flat = replace(statistic, low=0.0, high=0.0, step=0.0001, drawn=tuple(same))
    assert "nan" not in values_chart(flat)


def test_small_figures(statistic):
    run = statistic.runs[0]
    assert len(marks(run_trail(run, statistic))["release"]) == run.releases
    drawn = marks(run_interval(run, statistic))
    (band,), (point,) = drawn["band"], drawn["release"]
    low, high = float(band.get("x1")), float(band.get("x2"))
    share = (run.best.value - run.best.low) / (run.best.high - run.best.low)
    assert (float(point.get("cx")) - low) / (high - low) == pytest.approx(share, abs=0.01)
    assert run_interval(replace(run, best=None), statistic) == ""
    assert run_trail(replace(run, trail=()), statistic) == ""
    for kind in ("release", "guess", "stale"):
        assert f'class="{kind}"' in legend_mark(kind)


@pytest.mark.parametrize(("spent", "budget"), [(0, 20), (7, 20), (20, 20), (10, 2000), (0, 2000)])
def test_the_budget_bar_adds_up(spent, budget):
    root = ET.fromstring(budget_bar(spent, budget))
    widths = [float(e.get("width")) for e in root.iter() if e.get("class") == "full"]
    left = budget - spent
    if budget <= 60:
        assert len(widths) == left
    else:
        assert sum(widths) == pytest.approx(300 * left / budget)
    assert root.get("aria-label") == f"{left:,} of {budget:,} releases left"


def test_a_share_is_never_more_than_all():
    assert 'width="300" height="10" class="full"' in share_bar(1.7, "x")
    assert "full" not in share_bar(0.0, "x")


def test_charges_climb():
    (found,) = summarise(charged_records("memory://")._ledger).records
    root = ET.fromstring(charges_chart(found))
    (line,) = [e for e in root.iter() if e.get("class") == "spending"]
    heights = [float(place.split(",")[1]) for place in line.get("points").split()]
    assert heights == sorted(heights, reverse=True)
    share = (190 - heights[-1]) / 176  # from nothing at 190 to all of it at 14
    assert share == pytest.approx(found.status.share_spent, abs=0.001)
    assert charges_chart(replace(found, steps=found.steps[:1])) == ""


def test_ticks_are_round_and_few():
    assert ticks(0.25, 0.77, 7) == [0.3, 0.4, 0.5, 0.6, 0.7]
    assert ticks(5, 5, 4) == [5]
    for low, high in ((0, 1), (-3, 17), (1e-9, 2e-9), (99, 100)):
        found = ticks(low, high, 6)
        assert 2 <= len(found) <= 7
        assert all(low - 1e-12 <= value <= high + 1e-12 for value in found)


def test_no_colour_is_fixed_and_nothing_is_loaded(statistic):
    svg = values_chart(statistic) + budget_bar(3, 5) + run_trail(statistic.runs[0], statistic)
    assert not re.search(r"#[0-9a-f]{3,6}\b|rgb\(|style=|href|<image|<script", svg)


def test_a_fresh_statistic_needs_no_chart():
    holdout = make_holdout(mechanism=th.Ladder(step=0.02))
    holdout.status()
    (found,) = summarise(holdout._ledger).holdouts
    assert values_chart(found.statistics[0]) == ""
