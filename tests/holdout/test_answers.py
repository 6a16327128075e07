"""Which answer the door gives: by its rule, again, afresh, or from the ledger."""

import math

import pytest
import torch
import torch_holdout as th

from support.builders.holdouts import ask, correct, make_holdout, sums_of

LAST = th.Thresholdout(threshold=0.05, sigma=0.0, guess="last")
TRAIN = th.Thresholdout(threshold=0.05, sigma=0.0, guess="train")


class TestAnswers:
    """Without noise the rule can be followed by hand."""

    def test_last_guess(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        first = ask(holdout, 25, "a")
        assert first == th.Answer(0.5, "release", 4, "release")  # no guess yet: forced
        assert ask(holdout, 27, "b") == th.Answer(0.5, "guess", 4, "guess")
        assert ask(holdout, 28, "c") == th.Answer(0.56, "release", 3, "release")
        assert ask(holdout, 26, "d") == th.Answer(0.56, "guess", 3, "guess")

    def test_a_returned_guess_never_becomes_last(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        for count in (25, 26, 27):
            ask(holdout, count, str(count))
        assert ask(holdout, 28, "28").kind == "release"

    def test_first_guess_can_be_given(self):
        mechanism = th.Thresholdout(
            threshold=0.05, sigma=0.0, guess="last", initial={"val_acc": 0.5}
        )
        holdout = make_holdout(mechanism=mechanism)
        assert ask(holdout, 26, "a") == th.Answer(0.5, "guess", 5, "guess")
        assert ask(holdout, 40, "b").kind == "release"

    def test_train_guess_by_value_and_by_sums(self):
        holdout = make_holdout(mechanism=TRAIN, grid=50)
        assert ask(holdout, 25, "a", guess=0.52).value == pytest.approx(0.52)
        assert ask(holdout, 25, "b", guess=0.60) == th.Answer(0.5, "release", 4, "release")
        train = holdout.accumulator("val_acc", role="guess")
        train.update(correct(77, 150))
        answer = ask(holdout, 25, "c", guess=train)
        assert answer.kind == "guess"
        assert answer.value == pytest.approx(77 / 150, abs=1e-12)

    def test_values_are_in_the_users_units(self):
        loss = th.BoundedMean(-2.0, 6.0)
        holdout = make_holdout(mechanism=LAST, statistics={"loss": loss}, grid=8)
        sums = sums_of(holdout, torch.full((50,), 3.0), "loss")
        assert holdout.release("loss", sums, query="a").value == 3.0

    def test_answers_lie_on_the_grid(self):
        holdout = make_holdout(
            mechanism=th.Thresholdout(threshold=0.0, sigma=0.1, guess="last"), budget=40, grid=16
        )
        for index in range(30):
            value = ask(holdout, 25, str(index)).value
            assert 0 <= value <= 1
            assert (value * 16).is_integer()

    def test_default_grid_is_the_power_of_two_from_four_root_n(self):
        for size, grid in ((50, 32), (64, 32), (65, 64), (10_000, 512)):
            statistics = make_holdout(size=size).status().statistics
            assert statistics["val_acc"]["grid"] == grid


class TestRepeats:
    def test_free_with_value_and_kind(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        ask(holdout, 25, "a")
        ask(holdout, 26, "b")
        assert ask(holdout, 25, "a") == th.Answer(0.5, "repeat", 4, "release")
        assert ask(holdout, 26, "b") == th.Answer(0.5, "repeat", 4, "guess")
        # Whatever the pass says now: the answer to a query is given once.
        assert ask(holdout, 50, "a").value == 0.5
        assert holdout.status().queries == 2

    def test_a_repeat_does_not_move_last(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        ask(holdout, 10, "a"), ask(holdout, 40, "b"), ask(holdout, 10, "a")
        assert ask(holdout, 40, "c").kind == "guess"

    def test_after_exhaustion(self):
        holdout = make_holdout(mechanism=LAST, budget=1, grid=50)
        ask(holdout, 25, "a")
        answer = ask(holdout, 26, "b")
        assert (answer.kind, answer.budget_left, answer.source) == ("exhausted", 0, None)
        assert math.isnan(answer.value)
        assert ask(holdout, 25, "a") == th.Answer(0.5, "repeat", 0, "release")
        assert holdout.status().queries == 1

    def test_another_statistic_or_source_is_another_query(self):
        statistics = {"a": th.ZeroOne(), "b": th.ZeroOne()}
        holdout = make_holdout(mechanism=LAST, statistics=statistics)
        for name in statistics:
            assert (
                holdout.release(name, sums_of(holdout, correct(9), name), query="w").kind
                == "release"
            )
        assert holdout.status().queries == 2

    def test_the_position_counts_queries_not_repeats(self):
        holdout = make_holdout(mechanism=LAST)
        for _ in range(3):
            ask(holdout, 25, "a")
        ask(holdout, 25, "b")
        assert holdout.status().queries == 2


class TestFresh:
    def test_forces_a_release_and_keeps_the_first_answer(self):
        holdout = make_holdout(mechanism=LAST, grid=50)
        ask(holdout, 25, "a")
        ask(holdout, 26, "b")
        assert ask(holdout, 26, "b", fresh=True) == th.Answer(0.52, "release", 3, "release")
        assert ask(holdout, 26, "b", fresh=True).budget_left == 2
        assert ask(holdout, 26, "b") == th.Answer(0.5, "repeat", 2, "guess")
        assert holdout.status().queries == 4

    def test_is_refused_when_the_budget_is_gone(self):
        holdout = make_holdout(mechanism=LAST, budget=1)
        ask(holdout, 25, "a")
        assert ask(holdout, 25, "a", fresh=True).kind == "exhausted"


def test_recall_finds_what_was_asked_and_charges_nothing():
    holdout = make_holdout()
    assert holdout.recall("val_acc", "a") is None
    asked = ask(holdout, 30, "a")
    ask(holdout, 30, "a", fresh=True)
    found = holdout.recall("val_acc", "a")
    assert (found.value, found.kind, found.source) == (asked.value, "repeat", "release")
    assert (found.position, found.budget_left) == (1, 3)
    assert holdout.status().queries == 2
