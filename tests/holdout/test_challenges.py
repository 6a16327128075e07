"""Keep or revert: decisions, repeats, prices, refusals that charge nothing, and closing."""

import math
import pickle
from copy import copy

import numpy as np
import pytest
import torch
import torch_holdout as th
from torch_holdout.bounds.challenges import challenge_bracket, gain_low, smallest_keep
from torch_holdout.ledger.verify import verify

from support.builders.challenges import SIZE, challenged_thrice, losses, make_challenged, wrong_on
from support.builders.sealed_logs import events_of


def kt(bits):
    """The price of bits by Krichevsky and Trofimov, one after the other."""
    price, ones = 0.0, 0
    for count, bit in enumerate(bits):
        chance = (ones + 0.5) / (count + 1)
        price -= math.log(chance if bit else 1 - chance)
        ones += bit
    return price


def flipped(count, wins):
    """A model that differs from ``wrong_on(200)`` on ``count`` examples, and is right on some."""
    right = wrong_on(200).clone()
    right[:wins] = True
    right[SIZE - (count - wins) :] = False
    return right


def test_the_first_is_incumbent_a_better_one_is_kept_and_a_lucky_one_is_not():
    first, better, lucky = challenged_thrice(make_challenged())
    assert (first.kept, better.kept, lucky.kept) == (None, True, False)
    assert first.incumbent == first.query
    assert better.incumbent == better.query
    assert lucky.incumbent == better.query
    assert [each.number for each in (first, better, lucky)] == [1, 2, 3]
    assert [each.run for each in (first, better, lucky)] == [1, 2, 3]
    assert first.price == 0.0
    assert better.price == pytest.approx(math.log(2))
    assert lucky.price == pytest.approx(math.log(4))


def test_what_is_said_is_a_sentence():
    first, better, lucky = map(str, challenged_thrice(make_challenged()))
    assert "is the first, so it is the incumbent; nothing was said" in first
    assert "kept: " in better
    assert "with 95 % confidence no certified keep of this account is false" in better
    assert better.endswith("; price 0.69 nats")
    assert "not certified to be better" in lucky
    assert "does not say that it is worse" in lucky


@pytest.mark.parametrize("differing", [20, 60, 150])
def test_the_sign_test_decides_on_one_example(differing):
    """By the examples where the two differ, at the bracket of that moment."""
    bracket = challenge_bracket(run=2, runs=20, said=0.0)
    wins = smallest_keep(differing, bracket)
    for count, kept in ((wins, True), (wins - 1, False)):
        holdout = make_challenged()
        holdout.challenge("acc", wrong_on(200), query="incumbent")
        new = flipped(differing, count)
        assert int((new != wrong_on(200)).sum()) == differing
        assert holdout.challenge("acc", new, query="challenger").kept is kept


@pytest.mark.parametrize(("mode", "sign"), [("min", -1), ("max", 1)])
def test_differences_of_values_decide_elsewhere(mode, sign):
    bracket = challenge_bracket(run=2, runs=20, said=0.0)
    for gain in (0.02, 0.1, 0.12, 0.3):
        holdout = make_challenged(statistics={"loss": th.BoundedMean(0.0, 5.0, mode=mode)})
        old, new = losses(1.0), losses(1.0 + sign * gain, seed=1)
        levels = [(each * 65536 / 5).round().long() for each in (old, new)]
        difference = sign * (levels[1] - levels[0])
        sums = int(difference.sum()), int((difference**2).sum())
        low = gain_low(*sums, SIZE, 65536, bracket)
        holdout.challenge("loss", old, query="incumbent")
        assert holdout.challenge("loss", new, query="challenger").kept is bool(low >= 0)
        decided = {0.02: False, 0.1: None, 0.12: None, 0.3: True}[gain]
        assert decided in (None, bool(low >= 0))


def test_a_later_challenge_pays_for_shares_and_for_all_that_was_said():
    """A gain that is kept at once is not kept after nineteen bits."""
    bracket = challenge_bracket(run=2, runs=20, said=0.0)
    enough = smallest_keep(60, bracket)
    holdout = make_challenged()
    holdout.challenge("acc", wrong_on(200), query="incumbent")
    bits = [
        holdout.challenge("acc", wrong_on(210 + k), query=f"worse {k}", rule="margin")
        for k in range(18)
    ]
    assert [each.kept for each in bits] == [False] * 18
    assert math.fsum(each.price for each in bits) == pytest.approx(kt([False] * 18))
    late = holdout.challenge("acc", flipped(60, enough), query="challenger")
    assert late.kept is False
    said = [event["nats"] for event in events_of(holdout) if event["kind"] == "evaluate"]
    assert said[-1] == pytest.approx(kt([False] * 18))
    assert sorted(said) == said


def test_a_margin_keeps_what_is_better_by_more():
    holdout = make_challenged()
    first = holdout.challenge("acc", wrong_on(100), query="100", rule="margin", margin=0.01)
    same = holdout.challenge("acc", wrong_on(96), query="96", rule="margin", margin=0.01)
    more = holdout.challenge("acc", wrong_on(95), query="95", rule="margin", margin=0.01)
    tie = holdout.challenge("acc", wrong_on(95), query="95 again", rule="margin")
    assert (first.kept, same.kept, more.kept, tie.kept) == (None, False, True, False)
    assert (more.rule, more.margin, tie.margin) == ("margin", 0.01, 0.0)
    assert "better by more than 0.01 on this holdout, which claims nothing" in str(more)
    assert "not better at all on this holdout" in str(tie)


def test_the_same_query_is_the_same_answer_and_free(caplog):
    holdout = make_challenged()
    told = challenged_thrice(holdout)
    before = events_of(holdout)
    for wrong, known in zip((100, 40, 39), told, strict=True):
        assert not caplog.records
        again = holdout.challenge("acc", wrong_on(0), query=f"wrong on {wrong}")
        assert "answer of then, and these values were not compared" in caplog.text
        caplog.clear()
        assert again.repeated
        assert "asked before; " in str(again)
        assert "asked before" not in str(known)
        assert copy(again).__dict__ | {"repeated": False} == known.__dict__
    assert events_of(holdout) == before
    assert holdout.budget_left == 17
    with pytest.raises(th.InvalidArgumentError, match="rule='certified' with margin=0"):
        holdout.challenge("acc", wrong_on(0), query="wrong on 39", rule="margin")


def test_every_statistic_has_its_own_incumbent():
    holdout = make_challenged()
    assert holdout.challenge("acc", wrong_on(100), query="a").kept is None
    assert holdout.challenge("loss", losses(2.0), query="a").kept is None
    assert holdout.challenge("acc", wrong_on(40), query="b").kept is True
    assert holdout.challenge("loss", losses(1.0), query="b").kept is True
    told = [event["nats"] for event in events_of(holdout) if event["kind"] == "challenge"]
    assert math.fsum(told) == pytest.approx(kt([True, True]))


def test_the_status_says_who_the_incumbent_is():
    holdout = make_challenged()
    assert holdout.status().incumbents == {}
    first, better, _ = challenged_thrice(holdout)
    loss = holdout.challenge("loss", losses(2.0), query="a")
    status = holdout.status()
    assert status.incumbents == {"acc": better.query, "loss": loss.query}
    assert f"  incumbent of acc: {better.query}\n" in str(status)
    assert first.query not in str(status)


def test_challenges_and_runs_pay_for_each_other():
    holdout = make_challenged()
    with holdout.run() as run:
        sums = holdout.accumulator("acc")
        sums.update(wrong_on(90))
        run.evaluate({"acc": sums}, query="a run of its own")
    challenged_thrice(holdout)
    with holdout.run() as run:
        sums = holdout.accumulator("acc")
        sums.update(wrong_on(80))
        run.evaluate({"acc": sums}, query="another")
    said = [event["nats"] for event in events_of(holdout) if event["kind"] == "evaluate"]
    assert said == pytest.approx([0.0, 0.0, 0.0, kt([True]), kt([True, False])])


def test_a_run_is_not_free_to_give_up_after_a_challenge_has_said_something():
    holdout = make_challenged()
    run = holdout.run()
    sums = holdout.accumulator("acc")
    sums.update(wrong_on(90))
    run.evaluate({"acc": sums}, query="waiting")
    challenged_thrice(holdout)
    run.give_up()
    assert holdout.budget_left == 16  # its share does not come back


def test_closing_shows_every_challenger_and_what_keeps_are_worth():
    holdout = make_challenged()
    told = challenged_thrice(holdout)
    closing = holdout.close()
    assert [v.value for v in closing.curve("acc")] == [0.75, 0.9, 1 - 39 / 400]
    widths = [value.high - value.low for value in closing.curve("acc")]
    assert widths[2] > widths[1]  # it pays for the bit before it
    assert closing.challenges == tuple(told)
    assert "1 of 2 challenges kept; separately, with 95 % confidence none was" in str(closing)
    assert holdout.challenge("acc", wrong_on(0), query="wrong on 39").kept is False  # a repeat
    with pytest.raises(th.HoldoutClosedError, match="Nothing was charged"):
        holdout.challenge("acc", wrong_on(0), query="new")


def test_closing_says_that_margins_claim_nothing():
    holdout = make_challenged()
    challenged_thrice(holdout, rule="margin")
    assert "2 of 2 challenges kept; no single keep is certified" in str(holdout.close())


def test_arrays_and_tensors_of_any_kind_are_the_same():
    right = wrong_on(100)
    soft = losses(1.0)
    for values in (right, right.long(), right.numpy(), right.numpy().astype(np.int8)):
        holdout = make_challenged()
        holdout.challenge("acc", values, query="any")
        assert holdout.close().best.value == 0.75
    shown = set()
    reversed_twice = soft.numpy()[::-1].copy()[::-1]
    frozen = soft.numpy().copy()
    frozen.flags.writeable = False
    swapped = soft.numpy().astype(">f8")
    for values in (soft, soft.clone().requires_grad_(), reversed_twice, frozen, swapped):
        holdout = make_challenged()
        holdout.challenge("loss", values, query="any")
        shown.add(holdout.close().best_of("loss").value)
    assert len(shown) == 1


def test_a_value_that_is_no_number_counts_as_the_worse_bound():
    """Not an error: one that depended on values would be an answer without a price."""
    holdout = make_challenged()
    broken = losses(1.0)
    broken[7], broken[8] = math.nan, math.inf
    holdout.challenge("loss", broken, query="broken")
    worst = losses(1.0)
    worst[7] = worst[8] = 5.0
    assert holdout.challenge("loss", worst, query="worst", rule="margin").kept is False
    values = [value.value for value in holdout.close().curve("loss")]
    assert values[0] == values[1]


REFUSED = {
    "a float accuracy": ({"values": wrong_on(9).float()}, "Expected booleans or integers"),
    "too few": ({"values": wrong_on(9)[1:]}, "Expected a pass over all 400 examples"),
    "two for each": ({"values": wrong_on(9).repeat(2)}, "2 values for each example"),
    "a mean": ({"values": torch.tensor(True)}, "one value per example"),
    "an expanded mean": ({"values": torch.tensor(True).expand(400)}, "a value of its own"),
    "an array's mean": ({"values": np.broadcast_to(np.bool_(1), 400)}, "a value of its own"),
    "text": ({"values": ["right"] * 400}, "an array of numbers or booleans"),
    "objects": ({"values": np.array([None] * 400)}, "an array of numbers or booleans"),
    "another statistic": ({"statistic": "f1"}, "f1"),
    "another rule": ({"rule": "better"}, "Expected `rule` to be 'certified' or 'margin'"),
    "a certified margin": ({"margin": 0.1}, "Expected no margin with rule='certified'"),
    "a negative margin": ({"rule": "margin", "margin": -1.0}, "`margin` to be a number from 0"),
    "a wide margin": ({"rule": "margin", "margin": 2.0}, "`margin` to be a number from 0 to 1"),
    "no query": ({"query": None}, "Expected `query` to be text"),
    "no folder": ({"folder": 3}, "Expected `folder` to be the path of a folder"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compared_is_refused_and_not_charged(name):
    wrong, sentence = REFUSED[name]
    holdout = make_challenged()
    challenged_thrice(holdout)
    before = events_of(holdout)
    asked = {"statistic": "acc", "values": wrong_on(9), "query": "new"} | wrong
    statistic, values = asked.pop("statistic"), asked.pop("values")
    with pytest.raises(th.HoldoutError, match=sentence):
        holdout.challenge(statistic, values, **asked)
    assert events_of(holdout) == before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"mechanism": th.Sealed(evaluations=1, epsilon=1.0)}, "without noise"),
        ({"mechanism": th.Ladder(step=0.01)}, "Expected a sealed holdout"),
        (
            {"statistics": {"acc": th.Blockwise(torch.mean, blocks=10, low=0.0, high=1.0)}},
            "one value for each example, which can be paired",
        ),
    ],
)
def test_accounts_that_cannot_compare_refuse(changes, sentence):
    holdout = make_challenged(**changes)
    with pytest.raises(th.HoldoutError, match=sentence):
        holdout.challenge("acc", wrong_on(9), query="new")
    assert holdout.budget_left == 20


def test_a_budget_that_is_spent_refuses_whatever_would_have_been_decided():
    errors = set()
    for wrong in (0, 99, 300):
        holdout = make_challenged(budget=2)
        holdout.challenge("acc", wrong_on(100), query="first")
        holdout.challenge("acc", wrong_on(100), query="second")
        with pytest.raises(th.BudgetExhaustedError) as caught:
            holdout.challenge("acc", wrong_on(wrong), query="third")
        errors.add(str(caught.value))
    assert len(errors) == 1


def test_weights_are_a_query_too():
    from torch_holdout._fingerprints.weights import weights_fingerprint

    holdout, layer = make_challenged(), torch.nn.Linear(2, 1)
    asked = [weights_fingerprint(layer), weights_fingerprint(layer)]
    told = [holdout.challenge("acc", wrong_on(100), query=query) for query in asked]
    assert [each.repeated for each in told] == [False, True]
    assert told[0].query == told[1].query


def test_handles_and_results_are_ordinary(tmp_path):
    holdout = make_challenged(f"sqlite:///{tmp_path / 'holdout.db'}")
    first, better, _ = challenged_thrice(holdout)
    other = pickle.loads(pickle.dumps(holdout))
    assert other.challenge("acc", wrong_on(38), query="from a copy").incumbent == better.query
    assert pickle.loads(pickle.dumps(first)) == first
    assert verify(f"sqlite:///{tmp_path / 'holdout.db'}").findings == []


def test_a_named_run_names_the_challenge():
    holdout = make_challenged()
    with th.named_run("agent 7"):
        holdout.challenge("acc", wrong_on(100), query="a")
    holdout.challenge("acc", wrong_on(99), query="b")
    assert [run.name for run in holdout.status().runs] == ["agent 7", "challenge 2"]


def test_prices_before_a_challenge_are_what_is_charged_after_it():
    holdout = make_challenged()
    holdout.challenge("acc", wrong_on(200), query="first")
    for number, wrong in enumerate((120, 119, 60, 59, 58)):
        offered = holdout.prices().choices
        told = holdout.challenge("acc", wrong_on(wrong), query=f"{number}")
        assert told.price == offered["kept" if told.kept else "reverted"].nats
