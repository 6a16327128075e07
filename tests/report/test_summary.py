"""What is read from a ledger, how much of it is shown, and that nothing else happens to it."""

from collections import Counter
from dataclasses import replace

import pytest
import torch_holdout as th
from hypothesis import given
from hypothesis import strategies as st
from torch_holdout.errors import HoldoutError
from torch_holdout.holdout import reading as overview
from torch_holdout.ledger import Ledger, Recorded, Refusal
from torch_holdout.report import summary as module
from torch_holdout.report import tables
from torch_holdout.report.page import page
from torch_holdout.report.summary import summarise, thinned
from torch_holdout.report.wording import (
    distance_text,
    interval_text,
    moment_text,
    named,
    span_text,
    value_text,
)

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import HOSTILE, charged_records, several_runs


class Told:
    """A ledger that tells of other answers than it has."""

    def __init__(self, ledger, answers, refusals=()):
        self._ledger, self._answers, self._refusals = ledger, answers, refusals

    def __getattr__(self, name):
        return getattr(self._ledger, name)

    def summary(self, account, *, check=False):
        found = self._ledger.summary(account, check=check)
        released = [a.position for a in self._answers if a.kind == "release"]
        return replace(
            found,
            queries=len(self._answers),
            releases=len(released),
            last_release=max(released, default=0),
        )

    def answers(self, account, after=0, limit=None):
        return [a for a in self._answers if a.position > after][:limit]

    def totals(self, account):
        return Counter((a.statistic, a.kind) for a in self._answers)

    def refusals(self, account):
        return list(self._refusals)


def told(answers, refusals=(), **changes):
    """The report of a small holdout with made-up answers."""
    holdout = make_holdout(**{"budget": 10**6, "mechanism": th.Ladder(step=0.02), **changes})
    holdout.status()
    (found,) = summarise(Told(holdout._ledger, answers, refusals)).holdouts
    return found


def answer(position, kind="guess", value=0.5, run=None):
    at = f"2026-03-{1 + position // 86400:02}T{position // 3600 % 24:02}:00:00+00:00"
    return Recorded(position, "val_acc", kind, value, at, run)


def test_counts_and_intervals_are_the_holdouts_own(tmp_path):
    holdout = several_runs(f"sqlite:///{tmp_path}/holdout.db", epochs=6)
    (found,) = summarise(Ledger(f"sqlite:///{tmp_path}/holdout.db")).holdouts
    assert found.status == holdout.status()
    assert found.certificate == holdout.certificate()
    intervals = {interval.position: interval for interval in holdout.intervals()}
    shown = [s for statistic in found.statistics for s in statistic.drawn]
    assert sorted(s.position for s in shown) == sorted(intervals)
    for s in shown:
        own = intervals[s.position]
        assert (s.value, s.low, s.high, s.kind) == (own.value, own.low, own.high, own.kind)
    claim, width = found.certificate, {"val_loss": 5.0, "val_acc": 1.0}
    for statistic in found.statistics:
        name = statistic.name
        assert statistic.tolerance == claim.user_tolerance[name]
        assert statistic.guess_tolerance == claim.user_guess_tolerance[name]
        assert statistic.share == statistic.tolerance / width[name]
        assert statistic.step == width[name] / found.status.statistics[name]["grid"]
        assert sum(run.questions for run in statistic.runs) == 24
        assert {run.name for run in statistic.runs} == {
            "baseline",
            "wide",
            "wide + dropout",
            "cosine schedule",
        }


def test_the_best_of_runs_comes_first_and_guesses_never_count():
    answers = [
        answer(1, "release", 0.5, "a"),
        answer(2, "release", 0.7, "b"),
        answer(3, "guess", 0.99, "a"),
        answer(4, "guess", 0.98, "c"),
        answer(5, "release", 0.6, None),
    ]
    (statistic,) = told(answers).statistics
    assert [run.name for run in statistic.runs] == ["b", None, "a", "c"]
    assert [run.best and run.best.value for run in statistic.runs] == [0.7, 0.6, 0.5, None]
    assert statistic.runs[2].last.value == 0.99
    assert statistic.runs_released == 3
    assert statistic.best.position == 2


def test_of_equal_releases_the_earliest_is_the_best():
    answers = [answer(1, "release", 0.7, "a"), answer(2, "release", 0.7, "b")]
    assert told(answers).statistics[0].best.position == 1


def test_stale_values_are_the_runs_own_last_answers():
    answers = [
        answer(1, "release", 0.5, "a"),
        answer(2, "release", 0.7, "b"),
        answer(3, "release", 0.6, "a"),
    ]
    late = "2026-04-01T00:00:00+00:00"
    refusals = [Refusal("val_acc", run, n, late, late) for run, n in (("a", 4), ("z", 2))]
    found = told(answers, refusals, budget=3)
    assert found.refused == 6
    assert [(s.run, s.value, s.count) for s in found.statistics[0].stale] == [
        ("a", 0.6, 4),
        ("z", None, 2),
    ]
    assert found.last_at == late
    newcomer = found.statistics[0].runs[-1]
    assert (newcomer.name, newcomer.questions, newcomer.last, newcomer.refused) == ("z", 0, None, 2)
    times = {run.name: (run.first_at, run.last_at) for run in found.statistics[0].runs}
    first, second, _ = (found.asked_at for found in answers)
    assert times == {"a": (first, late), "b": (second, second), "z": (late, late)}


def test_of_very_many_answers_the_latest_are_read_and_all_are_counted(monkeypatch):
    read, right = [], Told.answers
    answers = [
        answer(i, "release" if i % 5 == 1 else "guess", 0.9 if i == 1 else 0.5, f"trial {i % 7}")
        for i in range(1, 10_801)
    ]

    def watched(ledger, account, after=0, limit=None):
        read.append(limit)
        return right(ledger, account, after, limit)

    monkeypatch.setattr(Told, "answers", watched)
    found = told(answers)
    (statistic,) = found.statistics
    assert read == [module.READ, 1]  # and the first one, for its time
    assert found.unread == 800
    assert (statistic.releases, statistic.guesses) == (2160, 8640)
    assert len(statistic.drawn) + statistic.left_out == module.READ
    assert statistic.best.value == 0.5
    assert found.first_at == answers[0].asked_at
    # The interval of a late release counts the releases that were not read.
    monkeypatch.setattr(module, "READ", 20_000)
    (whole,) = told(answers).statistics
    late = {shown.position: shown for shown in whole.drawn if shown.position > 800}
    both = [shown for shown in statistic.drawn if shown.position in late]
    assert both == [late[shown.position] for shown in both] != []


def test_the_page_says_what_was_not_read(monkeypatch):
    ledger = several_runs("memory://", epochs=3)._ledger
    assert "only counted" not in page(summarise(ledger))
    monkeypatch.setattr(module, "READ", 2)
    assert "were only counted, not read" in page(summarise(ledger))


def test_csv_has_all_rows_however_many_are_read_at_once(monkeypatch):
    ledger = several_runs("memory://", epochs=3)._ledger
    whole = list(tables.rows(ledger))
    monkeypatch.setattr(module, "READ", 2)
    assert list(tables.rows(ledger)) == whole
    assert len(whole) > 5


def test_many_answers_are_thinned_and_all_are_counted(monkeypatch):
    monkeypatch.setattr(module, "READ", 20_000)
    asked = []
    right = overview.answer_interval
    monkeypatch.setattr(
        overview, "answer_interval", lambda *a, **k: asked.append(k["position"]) or right(*a, **k)
    )
    answers = [
        answer(i, "release" if i % 5 == 1 else "guess", (i % 97) / 100, f"trial {i % 250}")
        for i in range(1, 20_001)
    ]
    found = told(answers)
    (statistic,) = found.statistics
    assert (statistic.releases, statistic.guesses) == (4000, 16_000)
    assert len(statistic.drawn) + statistic.left_out == 20_000
    assert len(statistic.drawn) <= module.DRAWN * 1.5 + 1
    assert {1, 20_000} <= {shown.position for shown in statistic.drawn}
    assert statistic.best in statistic.drawn
    assert len(found.latest) == module.LATEST
    assert found.latest[0].position == 20_000
    assert len(statistic.runs) == module.RUNS
    assert statistic.runs_left_out == 250 - module.RUNS
    for run in statistic.runs:
        assert len(run.trail) == module.TRAIL
        assert run.trail[-1] == (run.last.kind, run.last.value)
    # An interval takes a millisecond: only what is shown is computed, and once.
    assert len(asked) == len(set(asked)) <= 1.5 * module.DRAWN + module.RUNS + module.LATEST + 1


def test_what_comes_while_it_is_read_is_the_next_reports():
    holdout = make_holdout()
    ask(holdout, 20, "a")
    later = [answer(1, "release", 0.4), answer(2, "release", 0.9)]

    class Moving(Told):
        def summary(self, account, *, check=False):
            return self._ledger.summary(account, check=check)

    (found,) = summarise(Moving(holdout._ledger, later)).holdouts
    assert [shown.position for shown in found.statistics[0].drawn] == [1]


def test_and_what_is_charged_while_it_is_read():
    class Moving(Told):
        def charges(self, account):
            found = self._ledger.charges(account)
            return [*found, replace(found[-1], position=len(found) + 1)]

    (found,) = summarise(Moving(charged_records("memory://")._ledger, [])).records
    assert found.charges == 14
    assert found.steps[-1] == (14, pytest.approx(found.status.share_spent))


def test_one_account_of_several_and_a_wrong_name():
    holdout = make_holdout()
    holdout.status()
    assert len(summarise(holdout._ledger, name="val").holdouts) == 1
    with pytest.raises(HoldoutError, match=r"one of the accounts \['val'\], but got 'nobody'"):
        summarise(holdout._ledger, name="nobody")
    with pytest.raises(HoldoutError, match="between 0 and 1"):
        summarise(Ledger("memory://"), failure=2)


@given(st.integers(1, 200), st.integers(2, 50))
def test_thinning_keeps_order_and_ends(size, most):
    kept = thinned(range(size), most)
    assert len(kept) == min(size, most)
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, size - 1)


# What differs from a written number by float noise only is that number.
bounded = st.floats(-1e12, 1e12).map(lambda value: round(value, 9))


@given(bounded, bounded, st.floats(1e-9, 1e4))
def test_intervals_are_written_outwards(one, other, step):
    low, high = sorted((one, other))
    written = interval_text(low, high, step).replace(",", "").split(" to ")
    below, above = map(float, written)
    slack = 1e-11 * max(1e-9, abs(low), abs(high))
    assert below <= low + slack
    assert above >= high - slack


@given(st.floats(1e-12, 1e12))
def test_distances_are_written_upwards(distance):
    assert distance <= float(distance_text(distance)) * (1 + 1e-11)
    assert float(distance_text(distance)) <= distance * 1.11


def test_words_for_times_and_names():
    assert moment_text("2026-11-03T23:30:00+02:00") == "3 Nov 2026, 21:30 UTC"
    assert moment_text("yesterday") == "yesterday"
    assert span_text("yesterday", "today") == "yesterday to today"
    assert span_text("2025-12-30T10:00:00+00:00", "2026-01-02T10:00:00+00:00") == (
        "30 Dec 2025 to 2 Jan 2026"
    )
    assert named("a\u202eb") == "'a\ufffdb'"
    assert named(HOSTILE[4]).startswith("'\u2068")
    assert value_text(-0.0, 0.01) == "0.00"
