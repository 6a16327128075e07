"""Giving up is free only while nothing was said: else a share would be used twice on one path."""

import math
from collections import defaultdict

import pytest
import torch
import torch_holdout as th
from torch_holdout.holdout.passes import OpenedRun

from support.builders.sealed_logs import events_of, symbols_before

SIZE, EVALUATIONS = 16, 6


def account(runs):
    return th.ReusableHoldout(
        "memory://", name="val", size=SIZE, statistics={"acc": th.ZeroOne()},
        mechanism=th.Sealed(evaluations=EVALUATIONS), budget=runs,
    )  # fmt: skip


def evaluate(holdout, run, correct, query):
    sums = holdout.accumulator("acc")
    sums.update(torch.arange(SIZE) < correct)
    return run.evaluate({"acc": sums}, query=query).stop


@pytest.mark.parametrize("patience", [None, 4])
@pytest.mark.parametrize(
    ("before", "since", "free"),
    [
        ((), (), True),
        ((), (5, 6), True),  # two passes of patience 2: it could not have stopped
        ((), (5, 6, 7), False),  # it could, and has not: silence
        ((5, 6), (7,), False),
        ((5, 6, 7), (), True),  # said before the first evaluation, which has paid for it
        ((5, 6), (4, 3), False),  # stopped
    ],
)
def test_a_share_comes_back_unless_another_run_has_said_something(before, since, free, patience):
    holdout = account(2)
    other = holdout.run(stop=th.Patience("acc", 2))
    for number, correct in enumerate(before):
        evaluate(holdout, other, correct, f"other {number}")
    run = holdout.run(stop=None if patience is None else th.Patience("acc", patience))
    evaluate(holdout, run, 8, "own")
    for number, correct in enumerate(since, len(before)):
        evaluate(holdout, other, correct, f"other {number}")
    left = holdout.budget_left
    run.give_up()
    assert holdout.budget_left == left + free
    published = {value.run for value in holdout.close().values}
    assert ((1 + bool(before)) in published) != free


# What a run of patience 1 can say in five passes: a stop at 2, 3, 4 or 5, or nothing.
COURSES = [range(9, 3, -1), (9, 10, 3), (9, 10, 11, 3), (9, 10, 11, 12, 3), (9, 10, 11, 12, 13)]


def keep_what_another_points_to(course):
    """Ask beside a run that goes on; give up, and ask again, as long as it has not stopped."""
    holdout = account(12)
    other = holdout.run(stop=th.Patience("acc", 1))
    evaluate(holdout, other, course[0], "other 0")
    for number, correct in enumerate(course[1:], 1):
        run = holdout.run()
        evaluate(holdout, run, 8, f"own {number}")
        if evaluate(holdout, other, correct, f"other {number}"):
            break
        run.give_up()
    shares = {run.run: run.share for run in holdout._ledger.runs(holdout._attached())}
    events = events_of(holdout)
    return [
        (shares[e["run"]], e["evaluation"], symbols_before(events, e["position"]), e["nats"])
        for e in events
        if e["kind"] == "evaluate" and shares[e["run"]] is not None
    ]


def largest_sum():
    """The largest sum of exp(-nats) over the prefixes at which one share's evaluation is kept."""
    found = defaultdict(dict)
    for course in COURSES:
        for share, evaluation, prefix, nats in keep_what_another_points_to(course):
            found[share, evaluation][prefix] = math.exp(-nats)
    return max(sum(each.values()) for each in found.values())


def test_shares_that_come_back_are_used_once_on_every_path():
    assert largest_sum() <= 1 + 1e-12


def test_twin_that_looks_at_its_own_run_only_is_caught(monkeypatch):
    def own_silence(opened):
        rule = opened.run.patience
        return rule is None or opened.run.passes < rule.earliest_stop

    monkeypatch.setattr(OpenedRun, "is_free", property(own_silence))
    assert largest_sum() > 2
