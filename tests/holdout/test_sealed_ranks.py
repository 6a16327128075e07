"""Two real gloo ranks in a sealed run: one decision, one event a pass, no rank left waiting."""

from dataclasses import astuple

import pytest
import torch
import torch_holdout as th
from torch_holdout.errors import HoldoutError
from torch_holdout.ledger.verify import verify

from support.builders.sealed_logs import events_of
from support.machines.ranks import on_two_ranks

pytestmark = pytest.mark.integration
SIZE = 21
ERRORS = [12, 9, 5, 7, 5, 6, 1]  # stops at pass 6: the tie at pass 5 is no improvement


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


def account(url):
    return th.ReusableHoldout(
        url, name="val", size=SIZE, statistics={"err": th.BoundedMean(0.0, 1.0)},
        mechanism=th.Sealed(evaluations=10), budget=1,
    )  # fmt: skip


def sums_of(holdout, rank, errors):
    sums = holdout.accumulator("err", rank=rank, world=2)
    sums.update((torch.arange(SIZE) < errors)[rank::2].float())
    return {"err": sums}


def trained(rank, url):
    """A plain loop on each rank; each makes its own handle."""
    holdout, told = account(url), []
    with holdout.run(stop=th.Patience("err", patience=3)) as run:
        for epoch, errors in enumerate(ERRORS):
            told.append(run.evaluate(sums_of(holdout, rank, errors), query=f"weights {epoch}"))
            if told[-1].stop:
                break
    return [astuple(each) for each in told], astuple(run.outcome), run.id


def test_all_ranks_get_one_decision(url):
    first, second = on_two_ranks(trained, url)
    assert first == second
    told, outcome, _ = first
    assert [stop for *_, stop, _ in told] == [False] * 5 + [True]
    assert outcome[:3] == (3, 6, "patience")
    kinds = [event["kind"] for event in events_of(account(url))]
    assert kinds == ["begin", *["evaluate"] * 6, "stop"]
    assert not verify(url).findings


def ended(rank, url):
    holdout = account(url)
    with holdout.run(stop=th.Patience("err", patience=3)) as run:
        for epoch in range(2):
            run.evaluate(sums_of(holdout, rank, ERRORS[epoch]), query=f"weights {epoch}")
    return astuple(run.outcome)


def test_ranks_that_leave_the_block_end_the_run_once(url):
    first, second = on_two_ranks(ended, url)
    assert first == second
    assert first[:3] == (2, None, "ended")
    kinds = [event["kind"] for event in events_of(account(url))]
    assert kinds == ["begin", "evaluate", "evaluate", "end"]


def failing(rank, url):
    """Rank 1 asks what cannot be asked, in three ways; afterwards both go on."""
    holdout = account(url)
    run, found = holdout.run(stop=th.Patience("err", patience=3)), []
    broken = [{"query": 5}, {"query": "weights", "step": "\n"}, {"query": "weights", "short": True}]
    for wrong in broken:
        arguments = dict(wrong) if rank == 1 else {"query": "weights"}
        sums = sums_of(holdout, rank, 9)
        if arguments.pop("short", False):
            sums = {"err": holdout.accumulator("err", rank=rank, world=2)}
        try:
            run.evaluate(sums, **arguments)
        except HoldoutError as error:
            found.append(type(error).__name__)
    given = run.evaluate(sums_of(holdout, rank, 9), query="weights")
    return found, astuple(given)


def test_a_failing_rank_does_not_hang_the_other(url):
    first, second = on_two_ranks(failing, url)
    assert first == (["HoldoutError", "HoldoutError", "PartialPassError"], (1, 1, False, "sealed"))
    assert second[0] == ["InvalidArgumentError", "InvalidArgumentError", "PartialPassError"]
    assert second[1] == first[1]
    assert [event["kind"] for event in events_of(account(url))] == ["begin", "evaluate"]
