"""Sealed runs of several processes on one account: each pays what the others have said by then."""

import itertools
import math
import random
from multiprocessing import get_context

import pytest
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
