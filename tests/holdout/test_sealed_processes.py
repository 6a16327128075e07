"""Sealed runs of several processes on one account: each pays what the others have said by then."""

import itertools
import math
import os
import random
from multiprocessing import get_context

import pytest
import sqlalchemy as sa
import torch
import torch_holdout as th
from torch_holdout.ledger.verify import verify

from support.builders.sealed_logs import events_of, said_before

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(["torch_holdout.holdout.door", "torch", "psycopg"])
SIZE, EVALUATIONS, PATIENCE = 20, 12, 3


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdout.db"
    return request.getfixturevalue("postgres").new_url()


def account(url, runs):
    return th.ReusableHoldout(
        url, name="val", size=SIZE, statistics={"err": th.BoundedMean(0.0, 1.0)},
        mechanism=th.Sealed(evaluations=EVALUATIONS), budget=runs,
    )  # fmt: skip


def work(url, runs, worker, ready, results):
    """Make one run, if there is one left; every other worker ends it before patience does."""
    generator = random.Random(worker)
    holdout = account(url, runs)
    ready.wait()
    told = []
    try:
        run = holdout.run(stop=th.Patience("err", PATIENCE))
        for epoch in range(8 if worker % 2 else EVALUATIONS):
            sums = holdout.accumulator("err")
            sums.update(torch.arange(SIZE) < max(1, 15 - 2 * epoch) + generator.randint(0, 4))
            told.append(run.evaluate({"err": sums}, query=f"{worker}, {epoch}"))
            if told[-1].stop:
                break
        outcome = run.end()
    except th.BudgetExhaustedError:
        results.put((worker, None, len(told)))
    else:
        results.put((worker, (outcome.run, outcome.best_evaluation, outcome.passes), len(told)))


def compete(url, workers, runs):
    """Let processes make runs at the same time; return what each was told."""
    account(url, runs).status()
    ready, results = context.Barrier(workers), context.Queue()
    processes = [
        context.Process(target=work, args=(url, runs, n, ready, results)) for n in range(workers)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=120) for _ in processes]  # a deadlock ends here
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return found


def changes_of_turn(events):
    runs = [event["run"] for event in events if event["kind"] == "evaluate"]
    return sum(a != b for a, b in itertools.pairwise(runs))


def test_each_evaluation_pays_what_the_others_have_said(url):
    found = compete(url, workers=4, runs=4)
    events = events_of(account(url, 4))
    paid = said_before(events, EVALUATIONS)
    assert len(paid) == sum(told for *_, told in found)
    assert all(math.isclose(event["nats"], said, abs_tol=1e-12) for event, said in paid)
    assert changes_of_turn(events) > 4  # they did run at the same time
    assert any(said > 0 for _, said in paid)
    silent = said_before(events, EVALUATIONS, silence=False)  # the twin
    assert not all(math.isclose(e["nats"], said, abs_tol=1e-12) for e, said in silent)
    assert len({outcome[0] for _, outcome, _ in found}) == 4
    assert not verify(url).findings


def test_eight_processes_begin_exactly_three_runs(url):
    found = compete(url, workers=8, runs=3)
    begun = [outcome for _, outcome, _ in found if outcome is not None]
    assert len(begun) == len({mark for mark, *_ in begun}) == 3
    assert all(told == 0 for _, outcome, told in found if outcome is None)
    status = account(url, 3).status()
    assert (len(status.runs), status.budget_left) == (3, 0)
    kinds = [event["kind"] for event in events_of(account(url, 3))]
    assert kinds.count("begin") == 3
    assert not verify(url).findings


def ended_runs(url):
    """An account with three ended runs, and the ids of them."""
    holdout, marks = account(url, 4), []
    for number, errors in enumerate((9, 4, 7)):
        with holdout.run() as run:
            evaluate(holdout, run, errors, number)
        marks.append(run.id)
    return holdout, marks


def evaluate(holdout, run, errors, query):
    sums = holdout.accumulator("err")
    sums.update(torch.arange(SIZE) < errors)
    run.evaluate({"err": sums}, query=f"{query}")


def ask(url, mark, ready, results):
    holdout = account(url, 4)
    run = holdout.run(resume=mark)
    ready.wait()
    results.put((run.record(), holdout.winner()))


def test_a_question_of_several_processes_is_said_and_charged_once(url):
    holdout, marks = ended_runs(url)
    ready, results = context.Barrier(4), context.Queue()
    processes = [context.Process(target=ask, args=(url, marks[1], ready, results)) for _ in "1234"]
    for process in processes:
        process.start()
    assert [results.get(timeout=120) for _ in processes] == [(True, 2)] * 4
    for process in processes:
        process.join(60)
    symbols = [event["kind"] for event in events_of(holdout)[9:]]
    assert sorted(symbols) == ["record", "winner"]
    evaluate(holdout, holdout.run(), 1, "later")
    said = events_of(holdout)[-1]["nats"]
    assert math.isclose(said, math.log(2) + math.log(3), abs_tol=1e-12)
    assert not verify(url).findings


def ask_and_die(url, mark, committed):
    """Ask for a record bit, and die in the commit: before it is made, or before it returns."""
    run = account(url, 4).run(resume=mark)
    commit = sa.Connection.commit

    def last(connection):
        if committed:
            commit(connection)
        os._exit(9)

    sa.Connection.commit = last
    run.record()


@pytest.mark.parametrize("committed", [False, True])
def test_a_bit_that_was_not_shown_is_said_again_for_one_price(url, committed):
    holdout, marks = ended_runs(url)
    process = context.Process(target=ask_and_die, args=(url, marks[2], committed))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    assert sum(event["kind"] == "record" for event in events_of(holdout)) == committed
    assert not holdout.run(resume=marks[2]).record()
    [symbol] = [event for event in events_of(holdout) if event["kind"] == "record"]
    evaluate(holdout, holdout.run(), 1, "later")
    assert events_of(holdout)[-1]["nats"] == symbol["nats"] > 0
    assert not verify(url).findings
