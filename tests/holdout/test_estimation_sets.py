"""Guesses come from the estimation set that is current when the account is locked."""

import pytest
import torch
import torch_holdout as th

from support.builders.holdouts import ask, correct, make_holdout, sums_of

SETS = th.EffectiveRounds(threshold=0.1, sigma=0.0, rounds=3)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


def account(url, **changes):
    return make_holdout(url, mechanism=SETS, budget=3, **changes)


def estimate(holdout, count, name="val_acc"):
    sums = holdout.accumulator(name, role="guess")
    sums.update(torch.arange(50) < count)
    return sums


def interrupted(monkeypatch, holdout, action):
    """Let another process do something just before this handle locks the account."""
    locked = holdout._ledger.account
    todo = [action]

    def late(*arguments, **options):
        if todo:
            todo.pop()()
        return locked(*arguments, **options)

    monkeypatch.setattr(holdout._ledger, "account", late)


def test_a_set_that_another_process_discards_meanwhile_is_refused(url, monkeypatch):
    one, other = account(url), account(url)
    mine, theirs = estimate(one, 20), estimate(other, 20)
    interrupted(monkeypatch, one, lambda: ask(other, 45, "theirs", guess=theirs))
    with pytest.raises(th.HoldoutError, match="set 0 has been discarded meanwhile") as caught:
        ask(one, 20, "mine", guess=mine)
    assert str(caught.value).endswith("ask again; nothing was charged.")
    assert one.status().queries == 1  # theirs
    assert ask(one, 20, "mine", guess=estimate(one, 20)).kind == "guess"


def test_twin_that_looks_before_the_lock_is_caught(url, monkeypatch):
    """Both processes would use the set that one of them has discarded."""
    one, other = account(url), account(url)
    mine, theirs = estimate(one, 20), estimate(other, 20)
    before = one.estimation_set()
    interrupted(monkeypatch, one, lambda: ask(other, 45, "theirs", guess=theirs))
    monkeypatch.setattr(
        "torch_holdout.holdout.checks.estimation_set_after", lambda releases, mechanism: before
    )
    assert ask(one, 20, "mine", guess=mine).kind == "guess"


STATISTICS = {"val_acc": th.ZeroOne(), "other": th.ZeroOne()}


def test_statistics_of_one_call_share_a_set(url):
    """They are asked about one pass: what the first releases does not discard it for the next."""
    holdout = account(url, statistics=STATISTICS)
    guesses = {name: estimate(holdout, 20, name) for name in STATISTICS}
    sums = {name: sums_of(holdout, correct(45), name) for name in STATISTICS}
    found = holdout.release_all(sums, query="a", guesses=guesses)
    assert [answer.kind for answer in found.values()] == ["release", "release"]
    assert holdout.estimation_set() == 2


def test_between_two_statistics_of_a_call_another_process_may_discard_it(url, monkeypatch):
    one, other = (account(url, statistics=STATISTICS) for _ in range(2))
    guesses = {name: estimate(one, 20, name) for name in STATISTICS}
    sums = {name: sums_of(one, correct(45 if name == "other" else 20), name) for name in STATISTICS}
    theirs = estimate(other, 20)
    locked, calls = one._ledger.account, []

    def late(*arguments, **options):
        calls.append(None)
        if len(calls) == 2:
            ask(other, 45, "theirs", guess=theirs)
        return locked(*arguments, **options)

    monkeypatch.setattr(one._ledger, "account", late)
    with pytest.raises(th.HoldoutError, match="charged for it; 1 statistic of this call"):
        one.release_all(sums, query="mine", guesses=guesses)
    assert one.recall("val_acc", "mine").source == "guess"
    assert one.recall("other", "mine") is None
