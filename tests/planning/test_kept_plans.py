"""Accounts keep what their plan chose, whatever today's planner would choose."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.plans import as_planned, mechanism_0_1_0
from torch_holdout.mechanisms import mechanism_of

from support.builders.holdouts import ask, make_holdout
from support.machines.soak import soak

FROZEN = json.loads((Path(__file__).parents[1] / "assets" / "plans_0_1_0.json").read_text())
NAMES = ("val_acc", "second", "third")


def url_of(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


def made_by_0_1_0(url, frozen, name):
    """Create the account as version 0.1.0 did: no arguments of a plan are stored."""
    statistics = {each: th.ZeroOne() for each in NAMES[: frozen["arguments"]["statistics"]]}
    holdout = make_holdout(
        url,
        name=name,
        size=frozen["size"],
        budget=frozen["budget"],
        mechanism=mechanism_of(frozen["mechanism"]),
        grid=frozen["grid"],
        delta=frozen["delta"],
        statistics=statistics,
    )
    holdout._registration = replace(holdout._registration, planned=frozen["planned"])
    return holdout


def with_todays_plan(url, frozen, name, **changes):
    statistics = {each: th.ZeroOne() for each in NAMES[: frozen["arguments"]["statistics"]]}
    plan = th.plan(**frozen["arguments"] | changes)
    return make_holdout(url, name=name, plan=plan, statistics=statistics)


def test_every_plan_of_0_1_0_is_known_by_its_account():
    """200 frozen argument sets; each would get another mechanism today."""
    for frozen in FROZEN:
        stored = made_by_0_1_0("memory://", frozen, "val")._registration.identity()
        given = with_todays_plan("memory://", frozen, "val")._registration.identity()
        assert given["mechanism"] != stored["mechanism"] == frozen["mechanism"]
        assert as_planned(stored, given) == stored
    assert len(FROZEN) == 200


@pytest.mark.soak
def test_plans_of_0_1_0_open_their_accounts(tmp_path):
    url = url_of(tmp_path)
    for number, frozen in enumerate(FROZEN[:: soak(1, 10)]):
        old = made_by_0_1_0(url, frozen, f"{number}")
        account = old.account
        now = with_todays_plan(url, frozen, f"{number}")
        assert now.mechanism.identity() == frozen["mechanism"]
        assert (now.budget, now.size, now.account) == (frozen["budget"], frozen["size"], account)
        assert now.certificate() == old.certificate()


def test_the_old_mechanisms_are_those_of_the_frozen_plans():
    for frozen in FROZEN:
        purpose = frozen["arguments"]["purpose"]
        old = mechanism_0_1_0(frozen["size"], frozen["planned"], purpose)
        assert old.identity() == frozen["mechanism"]


@pytest.mark.parametrize(
    "change",
    [
        {"queries": 11},
        {"budget": 4},
        {"purpose": "search"},
        {"size": 51},
        {"budget": None, "runs": 3},
        {"budget": None},
    ],
    ids=str,
)
def test_other_arguments_are_another_plan(change, tmp_path):
    """The broken twin: whatever is asked for opens the account that is there."""
    arguments = {"size": 50, "queries": 10, "budget": 3, "purpose": "early-stopping"}
    frozen = {
        "arguments": arguments | {"statistics": 1},
        "mechanism": mechanism_0_1_0(50, 10, "early-stopping").identity(),
        **{"size": 50, "budget": 3, "grid": 29, "delta": None, "planned": 10},
    }
    old, new = url_of(tmp_path), url_of(tmp_path / "new")
    (tmp_path / "new").mkdir()
    _ = made_by_0_1_0(old, frozen, "val").account
    _ = with_todays_plan(new, frozen, "val").account
    for url in (old, new):
        _ = with_todays_plan(url, frozen, "val").account
        with pytest.raises(th.HoldoutMismatchError, match=r"stored .*, given"):
            _ = with_todays_plan(url, frozen, "val", **change).account


def test_an_account_by_hand_is_not_taken_for_a_plans(tmp_path):
    url = url_of(tmp_path)
    _ = make_holdout(url, size=50, budget=3, mechanism=th.Ladder(step=0.1)).account
    with pytest.raises(th.HoldoutMismatchError, match="mechanism"):
        _ = make_holdout(url, plan=th.plan(size=50, queries=10, budget=3)).account


@pytest.mark.parametrize("way", [{"budget": 3}, {"tolerance": 0.9}, {"runs": 2}, {}], ids=str)
def test_new_accounts_outlive_another_planner(way, tmp_path):
    """As if a later planner chose another mechanism, budget and grid for the same arguments."""
    url = url_of(tmp_path)
    plan = th.plan(size=50, queries=10, **way)
    first = make_holdout(url, plan=plan)
    kept = (first.mechanism, first.budget, first.account)
    later = replace(plan, mechanism=th.Ladder(step=0.25), budget=7, grid=9)
    again = make_holdout(url, plan=later)
    assert (again.mechanism, again.budget, again.account) == kept
    assert again.status() == first.status()
    other = replace(later, arguments=plan.arguments | {"queries": 9})
    with pytest.raises(th.HoldoutMismatchError):
        _ = make_holdout(url, plan=other).account


def test_what_an_old_account_answers_is_charged_to_its_own_budget(tmp_path):
    url, arguments = url_of(tmp_path), {"size": 50, "queries": 10, "budget": 3}
    frozen = {
        "arguments": arguments | {"statistics": 1},
        "mechanism": mechanism_0_1_0(50, 10, "early-stopping").identity(),
        **{"size": 50, "budget": 3, "grid": 29, "delta": None, "planned": 10},
    }
    _ = made_by_0_1_0(url, frozen, "val").account
    now = with_todays_plan(url, frozen, "val")
    assert now.budget_left == 3
    assert ask(now, 20, "a").kind == "release"
    copy = pickle.loads(pickle.dumps(now))
    assert (copy.mechanism, copy.budget_left) == (now.mechanism, 2)
    assert repr(copy) == repr(now)


def test_a_representation_opens_nothing(tmp_path):
    holdout = make_holdout(url_of(tmp_path), plan=th.plan(size=50, queries=10, budget=3))
    assert "budget=3" in repr(holdout)
    assert not list(tmp_path.iterdir())


def test_no_account_is_made_from_a_plan_that_a_steep_start_would_spend(tmp_path):
    plan = th.plan(size=1000, queries=200, tolerance=0.05)
    assert plan.refusal is not None
    holdout = make_holdout(url_of(tmp_path), plan=plan)
    with pytest.raises(InvalidArgumentError, match=r"not reached with values.*runs=1") as caught:
        holdout.status()
    assert str(caught.value).endswith("Nothing was charged.")
    assert Ledger(url_of(tmp_path)).names() == []
