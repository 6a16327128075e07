"""A record bit and the winner's number leave, and nothing else: no value, no work, no error."""

import sqlite3

import pytest
import torch
import torch_holdout as th
from torch_holdout.holdout.standings import Standings
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.sealed_runs import SealedRuns
from torch_holdout.ledger.verify import verify
from torch_holdout.report import content, page, summarise

from support.oracles.leaks import raw_hits
from support.oracles.work import taken_along, watched_work

SIZE, LEVELS = 97, 65536


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdout.db"


def account(path, runs=8):
    return th.ReusableHoldout(
        f"sqlite:///{path}", name="val", size=SIZE, statistics={"err": th.BoundedMean(0.0, 1.0)},
        mechanism=th.Sealed(evaluations=4), budget=runs,
    )  # fmt: skip


def values_of(number):
    """Per-example values whose sums are found by chance nowhere else."""
    noise = torch.rand(SIZE, generator=torch.Generator().manual_seed(number + 100))
    return (0.3 + 0.6 * noise).double()


def totals(numbers):
    levels = [(values_of(number) * LEVELS).round().long() for number in numbers]
    return [int(each.sum()) for each in levels]


def played(holdout, values, query):
    with holdout.run() as run:
        sums = holdout.accumulator("err")
        sums.update(values)
        run.evaluate({"err": sums}, query=query)
    return run


RAW = [raw for total in totals(range(4)) for raw in (total, total / SIZE, total / SIZE / LEVELS)]


def test_nothing_raw_is_in_what_they_give(path, monkeypatch):
    inside = []
    say = SealedRuns.say

    def looked_at(self, *arguments, **more):
        said = say(self, *arguments, **more)
        inside.extend([repr(self), repr(arguments), repr(more), repr(said)])
        return said

    monkeypatch.setattr(SealedRuns, "say", looked_at)
    holdout = account(path)
    runs = [played(holdout, values_of(number), f"{number}") for number in range(4)]
    order = totals(range(4))
    bits = [run.record() for run in runs]
    assert bits == [all(order[i] < other for other in order[:i]) for i in range(4)]
    assert holdout.winner() == order.index(min(order)) + 1
    report = summarise(Ledger(f"sqlite:///{path}"))
    connection = sqlite3.connect(path)
    events = connection.execute("SELECT * FROM th_run_events").fetchall()
    connection.close()
    seen = {
        "inside": inside,
        "outcomes": [repr(run.outcome) for run in runs],
        "status": [str(holdout.status()), repr(holdout.status())],
        "report": [page(report), content(report)],
        "events": [repr(row) for row in events],
        "verify": repr(verify(f"sqlite:///{path}")),
    }
    assert len(inside) == 4 * 5
    assert not {name for name, each in seen.items() if raw_hits(each, RAW)}


@pytest.mark.parametrize("method", ["bests", "say", "add"])
def test_an_error_takes_nothing_along_and_says_nothing(path, monkeypatch, method):
    holdout = account(path)
    runs = [played(holdout, values_of(number), f"{number}") for number in range(3)]
    original = getattr(SealedRuns, method)

    def broken(self, *arguments, **more):
        original(self, *arguments, **more)
        raise RuntimeError(f"{arguments} {more} {RAW}")

    monkeypatch.setattr(SealedRuns, method, broken)
    for ask in (runs[2].record, holdout.winner):
        with pytest.raises(th.HoldoutError) as caught:
            ask()
        assert raw_hits(taken_along(caught.value), RAW) == []
    monkeypatch.undo()
    assert set(holdout.status().nats) == {"ended"}  # nothing was said, and nothing is charged


def watched(path, course):
    """The statements of each question, and how much it wrote."""
    holdout = account(path)
    runs = [
        played(holdout, (torch.arange(SIZE) < errors).float(), f"{number}")
        for number, errors in enumerate(course)
    ]
    answers = []
    questions = [*(run.record for run in runs), holdout.winner]
    with watched_work(holdout, path) as work:
        return answers, [work(lambda ask=ask: answers.append(ask())) for ask in questions]


def test_the_work_is_the_same_whatever_is_said(tmp_path):
    course = [50, 40, 45, 35, 44, 60]
    falling, one = watched(tmp_path / "one.db", course)
    rising, other = watched(tmp_path / "other.db", [97 - errors for errors in course])
    assert falling != rising
    assert {True, False} <= set(falling[1:-1])
    assert one == other
    assert all(written > 0 for _, written in one)


def test_a_twin_that_works_less_without_a_record_is_noticed(tmp_path, monkeypatch):
    record = Standings.record

    def looks_again(self, run):
        bit = record(self, run)
        if bit:
            self.runs.all()
        return bit

    monkeypatch.setattr(Standings, "record", looks_again)
    course = [50, 40, 45]
    one = watched(tmp_path / "one.db", course)[1]
    assert one != watched(tmp_path / "other.db", [97 - errors for errors in course])[1]
