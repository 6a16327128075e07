"""Random use of the door: it never releases uncharged and raises only its own errors."""

import math
from collections import Counter
from functools import partial

import torch
import torch_holdout as th
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_holdout.errors import HoldoutError
from torch_holdout.ledger import Ledger

from support.builders.holdouts import make_holdout

LEDGER = Ledger("memory://")
_number = iter(range(10**9))

anything = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 70), st.floats(), st.text(max_size=5), st.just(2**70)
)


def mostly(valid, weird=anything):
    """Nine times in ten something sensible: the door must also be passed, not only tried."""
    return st.integers(0, 9).flatmap(lambda number: weird if number == 0 else valid)


mechanisms = st.builds(
    dict,
    threshold=mostly(st.floats(0, 0.5)),
    sigma=mostly(st.one_of(st.just(0.0), st.floats(1e-3, 0.5))),
    guess=mostly(st.sampled_from(["last", "train"])),
)
bounds = mostly(
    st.tuples(st.floats(-3, 0), st.floats(0.1, 3)),
    st.tuples(anything, anything),
)
whole = st.lists(st.floats(width=32), min_size=4, max_size=4).map(torch.tensor)
pieces = st.one_of(
    st.lists(st.floats(width=32), max_size=8).map(torch.tensor),
    st.integers(1, 6).map(lambda count: torch.arange(count) > 2),
    st.just(torch.tensor(0.5)),
    st.just(torch.zeros(2, 2)),
    anything,
)
batches = mostly(whole.map(lambda batch: [batch]), st.lists(pieces, max_size=4))
queries = mostly(st.sampled_from("abcdefgh"))
guesses = mostly(st.floats(-3, 3))
names = mostly(st.just("value"), st.just("nope"))
steps = st.lists(st.tuples(batches, queries, guesses, st.booleans(), names), min_size=2, max_size=6)
seen = Counter()


def attempt(action):
    try:
        return action()
    except HoldoutError:
        return None


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(mechanisms, bounds, steps, mostly(st.integers(1, 4)))
def test_the_door_holds(mechanism, bound, plan, budget):
    holdout = attempt(
        lambda: make_holdout(
            LEDGER.address,
            name=f"case {next(_number)}",
            size=4,
            budget=budget,
            statistics={"value": th.BoundedMean(*bound)},
            mechanism=th.Thresholdout(**mechanism),
        )
    )
    if holdout is None:
        return
    transcript = []
    for values, query, guess, fresh, name in plan:
        before = holdout.status()
        answer = attempt(partial(run, holdout, name, values, query, guess, fresh))
        after = holdout.status()
        check(holdout, before, answer, after)
        transcript.append(answer)
        seen["refused" if answer is None else answer.kind] += 1
    assert (
        sum(a is not None and a.kind == "release" for a in transcript) == holdout.status().releases
    )


def test_the_cases_went_through_the_door():
    """Guards the generator above: every outcome was met many times."""
    assert min(seen[kind] for kind in ("release", "guess", "repeat", "exhausted", "refused")) > 30


def run(holdout, name, values, query, guess, fresh):
    sums = holdout.accumulator(name)
    for batch in values:
        sums.update(batch)
    if holdout.mechanism.guess == "last":
        guess = None
    return holdout.release(name, sums, query=query, guess=guess, fresh=fresh)


def check(holdout, before, answer, after):
    asked = after.queries - before.queries
    released = after.releases - before.releases
    if answer is None or answer.kind in ("repeat", "exhausted"):
        assert (asked, released, after.epsilon_spent) == (0, 0, before.epsilon_spent)
    elif answer.kind == "guess":
        assert (asked, released) == (1, 0)
    else:
        assert (asked, released) == (1, 1)
        assert after.epsilon_spent > before.epsilon_spent or math.isinf(after.epsilon_spent)
        statistic = after.statistics["value"]
        assert statistic["low"] <= answer.value <= statistic["high"]
    assert after.releases <= after.budget == holdout.budget
    assert after.epsilon_spent <= after.epsilon * (1 + 1e-9)
    assert answer is None or answer.budget_left == after.budget_left


def test_twin_that_does_not_charge_is_caught(monkeypatch):
    """The check above notices an answer that was not recorded."""
    from torch_holdout.ledger.holdouts import Account

    holdout = make_holdout(statistics={"value": th.BoundedMean(0, 1)}, size=2)
    monkeypatch.setattr(Account, "record", lambda self, *_: self.budget_left)
    before = holdout.status()
    answer = run(holdout, "value", [torch.tensor([0.1, 0.2])], "a", None, False)
    try:
        check(holdout, before, answer, holdout.status())
    except AssertionError:
        return
    raise AssertionError("an uncharged answer went unnoticed")
