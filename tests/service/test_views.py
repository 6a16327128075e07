"""What readers see: ranks from intervals, guidance where nothing is certified, one view each."""

import json
import math
from dataclasses import replace

import pytest
from torch_holdout.bounds.closing import closing_interval
from torch_holdout.holdout.board_results import BoardAnswer, Quota, Result
from torch_holdout.ledger.registration import StoredStatistic
from torch_holdout.service.server import hosting
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.promises import final_half_width
from torch_holdout.service.server.statistics import statistic
from torch_holdout.service.server.view import live_rows, view_of

from support.builders.boards import GATE, SEALED, configured, guesses, opened, put, with_teams


@pytest.fixture
def standing_of(tmp_path):
    """A board's standing with made-up bests: team -> (value, interval)."""
    board = opened(tmp_path)
    for name in "abcd":
        hosting.add_team(board.config, name)
    plain = board.holdout.standing()

    def make(**bests):
        answers = [
            BoardAnswer(
                submission="5e" * 32, analyst=team, position=1, kind="release", source="release",
                better=True, results={"accuracy": Result(*best)}, quota=Quota(1, 1), chain="",
                asked_at="", nats=0.0,
            )
            for team, best in bests.items()
        ]  # fmt: skip
        return board.config, replace(plain, best=tuple(answers))

    return make


def ranks(rows):
    return {row.team: row.rank for row in rows}


def test_ranks_are_what_intervals_leave_open(standing_of):
    bests = {"a": (0.9, (0.85, 0.95)), "b": (0.88, (0.83, 0.93)), "c": (0.7, (0.6, 0.8))}
    rows = live_rows(*standing_of(**bests))
    assert ranks(rows) == {"a": (1, 2), "b": (1, 2), "c": (3, 3), "d": None}
    assert [row.not_told_apart_from for row in rows] == [("b",), ("a",), (), ()]


def test_without_intervals_ranks_follow_the_values(standing_of):
    rows = live_rows(*standing_of(a=(0.9, None), b=(0.9, None), c=(0.7, None)))
    assert ranks(rows) == {"a": (1, 2), "b": (1, 2), "c": (3, 3), "d": None}
    assert all(row.interval is None and row.not_told_apart_from == () for row in rows)


def test_a_value_without_interval_may_be_anything(standing_of):
    rows = live_rows(*standing_of(a=(0.9, (0.88, 0.92)), b=(0.7, (0.6, 0.8)), c=(0.8, None)))
    assert ranks(rows) == {"a": (1, 2), "b": (2, 3), "c": (1, 3), "d": None}


def test_guidance_is_said(standing_of, tmp_path):
    config, standing = standing_of(a=(0.9, None))
    board_layout = opened(tmp_path / "other").layout
    view = view_of(config, board_layout, standing, "open")
    assert not view.certified
    assert "guidance, not certified" in view.promise[0]
    config, standing = standing_of(a=(0.9, (0.85, 0.95)))
    view = view_of(config, board_layout, standing, "open")
    assert view.certified
    assert "95 %" in view.promise[0]


def test_a_view_is_computed_once_for_each_position(tmp_path):
    board, who = with_teams(tmp_path, "alpha")
    first = board.view()
    assert board.view() is first
    put(board, who["alpha"], guesses(800))
    second = board.view()
    assert second is not first
    put(board, who["alpha"], guesses(800))  # a repeat
    assert board.view() is second
    hosting.add_team(board.config, "beta")
    assert [row.team for row in board.view().rows] == ["alpha", "beta"]


@pytest.mark.parametrize("parts", [{}, GATE, SEALED], ids=["ladder", "gate", "sealed"])
def test_views_are_json_and_name_no_part(tmp_path, parts):
    board, who = with_teams(tmp_path, "alpha", **parts)
    put(board, who["alpha"], guesses(800))
    for content in (board.facts(), board.view().as_json(), board.overview()):
        text = json.dumps(content, allow_nan=False)
        assert "path" not in text
        assert str(tmp_path) not in text
    facts = board.facts()
    assert (facts["rows"], facts["first"], facts["position"]) == (1000, "accuracy", 1)
    assert facts["statistics"]["accuracy"]["kind"] == "accuracy"


@pytest.mark.parametrize(
    ("parts", "before", "after"),
    [
        (SEALED, 50, 10 * 4 + 1000),  # one team may send more than was planned
        ({"limits": "teams = 5\nsubmissions = 1\nreleases = 4\nbudget = 20"}, 5, 4 + 2),
    ],
)
def test_the_promise_counts_what_teams_may_send(tmp_path, parts, before, after):
    config = opened(tmp_path, **parts).config
    assert f"confidence each of {before:,} lies" in Board.open(config).view().promise[-1]
    hosting.add_team(config, "alpha", 1000)
    assert f"confidence each of {after:,} lies" in Board.open(config).view().promise[-1]


SEVERAL = {
    "one of 0 and 1": ("classes", '[statistics.accuracy]\nkind = "accuracy"'),
    "three of them": (
        "classes", "".join(f'[statistics.s{n}]\nkind = "accuracy"\n' for n in range(3)),
    ),
    "blocks": ("classes", '[statistics.f1]\nkind = "f1_macro"\nblocks = 200'),
    "a mean": ("scores", '[statistics.mse]\nkind = "mse"\nlow = 0.0\nhigh = 1.0'),
    "a wider mean and another": (
        "probabilities",
        '[statistics.loss]\nkind = "cross_entropy"\nhigh = 5.0\n'
        '[statistics.accuracy]\nkind = "accuracy"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("rows", [20, 1400])
@pytest.mark.parametrize("name", SEVERAL)
def test_no_interval_at_closing_is_wider_than_was_promised(tmp_path, name, rows):
    """The widest intervals are those of values that are all at a bound."""
    upload, statistics = SEVERAL[name]
    data = f'classes = 10\nupload = "{upload}"\npublic = 0.3'
    config = configured(tmp_path, data=data, statistics=statistics)
    made = statistic(config.statistics[config.first])
    units, levels = made.units(rows) if name != "blocks" else 200, 2**16
    facts = {
        "kind": StoredStatistic(made.identity()).interval_kind, "units": units,
        "resolution": levels,
        "bracket": math.log(2 * len(config.statistics) * 20 / config.limits.failure),
    }  # fmt: skip
    widest = 0.0
    for count in range(0, units + 1, max(1, units // 100)):
        sums = {"total": count * levels, "squares": count * levels**2}
        low, high = closing_interval(**sums, **facts)
        widest = max(widest, high - count / units, count / units - low)
    promised = final_half_width(config, max(rows, units), 20) / (made.high - made.low)
    assert widest <= promised + 1 / levels <= (1.05 if rows > 200 else 1.3) * widest


def test_the_promise_for_closing_is_that_of_the_design(tmp_path):
    """70 % of 10,000 rows, 50 teams with 2 finalists: .0209, in the table of the plan."""
    from torch_holdout.planning.boards import plan_board

    config = opened(tmp_path).config
    (vault,) = [p for p in plan_board(10_000, 50, 5).prices if p.mode == "vault"]
    assert final_half_width(config, 7_000, 100) == pytest.approx(vault.half_widths[0.5], rel=1e-3)
    assert "±0.054" in opened(tmp_path / "small").view().promise[-1]
