"""Record bits and the winner's number: what they say, what they cost, and who is refused."""

import math

import pytest
import torch
import torch_holdout as th
from torch_holdout.bounds.symbols import record_price
from torch_holdout.errors import HoldoutClosedError, HoldoutError, InvalidArgumentError
from torch_holdout.ledger.verify import verify

from support.builders.sealed import make_sealed, passes
from support.builders.sealed_logs import events_of

SIZE = 40


def account(url="memory://", **changes):
    arguments = {
        "name": "val",
        "size": SIZE,
        "statistics": {"acc": th.ZeroOne()},
        "mechanism": th.Sealed(evaluations=5),
        "budget": 8,
    }
    return th.ReusableHoldout(url, **arguments | changes)


def evaluate(holdout, run, right, query):
    sums = holdout.accumulator("acc")
    sums.update(torch.arange(holdout.size) < right)
    run.evaluate({"acc": sums}, query=query)


def played(holdout, *rights, end=True, **arguments):
    """A run whose evaluations have so many right."""
    run = holdout.run(**arguments)
    for number, right in enumerate(rights):
        evaluate(holdout, run, right, f"{played.runs}: {number}")
    played.runs += 1
    if end:
        run.end()
    return run


played.runs = 0


def paid(holdout):
    """What each evaluation has paid, in order."""
    return [event["nats"] for event in events_of(holdout) if event["kind"] == "evaluate"]


def symbols(holdout):
    return [event for event in events_of(holdout) if event["kind"] in ("record", "winner")]


class TestRecord:
    def test_better_than_every_run_that_ended_before(self):
        holdout = account()
        bits = [played(holdout, *rights).record() for rights in ((9, 7), (5,), (9,), (1, 12), (3,))]
        assert bits == [True, False, False, True, False]  # strictly: a tie is none

    def test_the_order_of_ends_counts_not_of_beginnings_or_questions(self):
        holdout = account()
        slow = played(holdout, 5, end=False)
        quick = played(holdout, 9)
        slow.end()
        later = played(holdout, 20)
        assert (slow.record(), quick.record(), later.record()) == (False, True, True)
        compared = [event["detail"]["choices"] for event in symbols(holdout)]
        assert compared == [2, 1, 3]

    def test_open_and_given_up_runs_are_not_compared(self):
        holdout = account()
        played(holdout, 30, end=False)
        played(holdout, 35, end=False).give_up()
        assert played(holdout, 4).record()
        assert symbols(holdout)[0]["nats"] == 0.0

    def test_lower_is_better_where_it_is(self):
        holdout = make_sealed()
        bits = []
        for loss in (0.9, 0.5, 0.7):
            with holdout.run(best="val_loss") as run:
                run.evaluate(passes(holdout, val_loss=loss, val_acc=loss), query=f"{loss}")
            bits.append(run.record())
        assert bits == [True, True, False]

    def test_the_statistic_of_the_run_decides(self):
        holdout = make_sealed()
        with holdout.run(best="val_loss") as first:
            first.evaluate(passes(holdout, val_loss=0.9, val_acc=0.8), query="a")
        with holdout.run(best="val_acc") as second:
            second.evaluate(passes(holdout, val_loss=0.5, val_acc=0.7), query="b")
        with holdout.run(best="val_acc") as alone:
            alone.evaluate(passes(holdout, val_loss=0.1), query="c")
        assert (first.record(), second.record()) == (True, False)
        with pytest.raises(HoldoutError, match=r"evaluations of 'val_acc'.*has none"):
            alone.record()

    def test_a_run_stopped_by_its_patience(self):
        holdout = account()
        played(holdout, 3)
        run = played(holdout, 5, 4, end=False, stop=th.Patience("acc", 1))
        assert run.outcome.reason == "patience"
        assert run.record()


class TestPrices:
    def test_every_later_evaluation_pays_for_all_bits(self):
        holdout, bits, said = account(), [], [0.0]
        for right in (5, 3, 9, 9, 12):
            bits.append(played(holdout, right).record())
            said.append(record_price(bits[1:], range(2, len(bits) + 1)))
        assert paid(holdout) == pytest.approx(said[:-1], rel=1e-12)
        status = holdout.status()
        assert status.nats["record"] == pytest.approx(said[-1], rel=1e-12)
        assert f"record {said[-1]:.3g}"[:8] in str(status)

    def test_the_winner_costs_the_logarithm_of_the_runs(self):
        holdout = account()
        for right in (5, 9, 3):
            played(holdout, right)
        assert holdout.winner() == 2
        played(holdout, 20)
        assert paid(holdout)[-1] == pytest.approx(math.log(3), rel=1e-15)
        assert holdout.winner() == 4
        played(holdout, 1)
        assert paid(holdout)[-1] == pytest.approx(math.log(3) + math.log(4), rel=1e-15)

    def test_what_runs_have_said_is_added(self):
        holdout = account()
        run = played(holdout, 5, 4, end=False, stop=th.Patience("acc", 1))
        played(holdout, 9).record()
        stop, bit = run.outcome.price, record_price([True], [2])
        played(holdout, 3)
        assert paid(holdout)[-1] == pytest.approx(stop + bit, rel=1e-12)

    def test_a_run_that_is_open_pays_from_now_on(self):
        holdout = account()
        open_run = played(holdout, 5, end=False)
        for right in (7, 8):
            last = played(holdout, right)
        last.record()
        evaluate(holdout, open_run, 6, "one more")
        assert paid(holdout)[-1] == pytest.approx(record_price([True], [2]), rel=1e-12)

    def test_certificate_and_closing_agree_with_what_was_paid(self):
        silent, asked = account(), account()
        for holdout in (silent, asked):
            for right in (5, 9, 3, 20):
                run = played(holdout, right)
                if holdout is asked:
                    run.record()
                    holdout.winner()
        assert asked.certificate().tolerance > silent.certificate().tolerance
        nats = paid(asked)
        for index, (said, without) in enumerate(
            zip(asked.close().values, silent.close().values, strict=True)
        ):
            wider = said.low < without.low and said.high > without.high
            assert wider == (nats[index] > 0)

    def test_the_first_run_and_a_winner_of_one_say_nothing(self):
        holdout = account()
        run = played(holdout, 5)
        assert (run.record(), holdout.winner()) == (True, 1)
        played(holdout, 6)
        assert paid(holdout) == [0.0, 0.0]


class TestAskedAgain:
    def test_a_bit_is_the_same_for_free_also_after_later_runs(self):
        holdout = account()
        runs = [played(holdout, right) for right in (5, 9)]
        assert runs[1].record()
        before = events_of(holdout)
        assert holdout.run(resume=runs[1].id).record()
        assert events_of(holdout) == before
        played(holdout, 20)
        assert runs[1].record()
        assert len(symbols(holdout)) == 1

    def test_a_winner_is_the_same_for_free_until_there_is_something_new(self):
        holdout = account()
        for right in (5, 9):
            played(holdout, right)
        assert [holdout.winner() for _ in range(3)] == [2, 2, 2]
        played(holdout, 20, end=False)  # not ended: nothing new
        assert holdout.winner() == 2
        assert len(symbols(holdout)) == 1

    def test_a_statistic_that_comes_late_is_something_new(self):
        holdout = make_sealed()
        runs = []
        for loss in (0.9, 0.8):
            with holdout.run(best="val_loss") as run:
                for more in (0.0, 0.1):
                    means = {"val_loss": loss + more} | ({} if more else {"val_acc": loss})
                    run.evaluate(passes(holdout, **means), query=f"{loss} {more}")
            runs.append(run)
        assert holdout.winner("val_acc") == 1
        assert holdout.winner("val_acc") == 1
        assert len(symbols(holdout)) == 1
        runs[1].evaluate(passes(holdout, val_acc=0.99), query="0.8 0.1")
        assert holdout.winner("val_acc") == 2
        assert [event["nats"] for event in symbols(holdout)] == [math.log(2)] * 2

    def test_statistics_are_asked_apart(self):
        holdout = make_sealed()
        for number, (loss, acc) in enumerate([(0.5, 0.7), (0.4, 0.6)]):
            with holdout.run() as run:
                run.evaluate(passes(holdout, val_loss=loss, val_acc=acc), query=str(number))
        answers = [holdout.winner(name) for name in ("val_loss", "val_acc", None)]
        assert answers == [2, 1, 2]  # None: the one that decides in the first run
        assert len(symbols(holdout)) == 2

    def test_the_first_of_equals_wins(self):
        holdout = account()
        for right in (5, 9, 9):
            played(holdout, right)
        assert holdout.winner() == 2
        assert holdout.close().best.run == 2


class TestShown:
    def test_outcome_status_and_closing_say_what_was_said(self):
        holdout = account()
        first, second, third = (played(holdout, right) for right in (5, 3, 9))
        assert first.outcome.record is None
        assert (second.record(), third.record()) == (False, True)
        assert [run.outcome.record for run in (first, second, third)] == [None, False, True]
        assert [run.record for run in holdout.status().runs] == [None, False, True]
        assert ", no record" in str(holdout.status().runs[1])
        assert ", a record" in str(holdout.status().runs[2])
        closing = holdout.close()
        assert [run.outcome.record for run in closing.runs] == [None, False, True]

    def test_a_closed_value_has_its_step(self):
        holdout = account()
        with holdout.run() as run:
            for epoch in range(2):
                sums = holdout.accumulator("acc")
                sums.update(torch.arange(SIZE) < epoch)
                run.evaluate({"acc": sums}, query=f"{epoch}", step=f"epoch {epoch}")
            evaluate(holdout, run, 5, "without a step")
        assert [value.step for value in holdout.close().values] == ["epoch 0", "epoch 1", None]


class TestGivingUp:
    def test_a_run_begun_before_a_symbol_keeps_its_share(self):
        """Else its evaluations could come again, chosen by what was said, for the same share."""
        holdout = account()
        _, second = played(holdout, 5), played(holdout, 9)
        held = played(holdout, 7, end=False)
        assert second.record()
        left = holdout.budget_left
        assert held.give_up().price == 0.0
        assert holdout.budget_left == left

    def test_what_was_said_before_or_is_certain_does_not_matter(self):
        holdout = account()
        first, second = played(holdout, 5), played(holdout, 9)
        assert second.record()
        left = holdout.budget_left
        free = played(holdout, 7, end=False)
        assert first.record()  # for certain
        assert second.record()  # again
        free.give_up()
        assert holdout.budget_left == left


class TestRefusals:
    def test_open_runs(self):
        holdout = account()
        run = played(holdout, 5, end=False)
        with pytest.raises(HoldoutError, match=r"this one is open. End it.*Nothing was charged"):
            run.record()
        with pytest.raises(HoldoutError, match="at least one ended run"):
            holdout.winner()

    def test_runs_that_were_given_up_or_never_begun(self):
        holdout = account()
        played(holdout, 5)
        run = played(holdout, 5, end=False)
        run.give_up()
        with pytest.raises(HoldoutError, match="was given up"):
            run.record()
        with pytest.raises(HoldoutError, match="never begun"):
            holdout.run().record()

    def test_closed_accounts(self):
        holdout = account()
        run = played(holdout, 5)
        holdout.close()
        with pytest.raises(HoldoutClosedError):
            run.record()
        with pytest.raises(HoldoutClosedError):
            holdout.winner()

    def test_accounts_with_noise(self):
        holdout = account(mechanism=th.Sealed(evaluations=5, epsilon=1.0))
        run = played(holdout, 5)
        for ask in (run.record, holdout.winner):
            with pytest.raises(InvalidArgumentError, match=r"without noise.*Nothing was charged"):
                ask()

    def test_live_accounts_and_unknown_statistics(self):
        live = account(mechanism=th.Ladder(step=0.1))
        with pytest.raises(InvalidArgumentError, match="sealed"):
            live.winner()
        holdout = account()
        played(holdout, 5)
        with pytest.raises(InvalidArgumentError, match="acc"):
            holdout.winner("val_loss")

    def test_nothing_is_written(self):
        holdout = account()
        played(holdout, 5, end=False)
        before = events_of(holdout)
        with pytest.raises(HoldoutError):
            holdout.winner()
        assert events_of(holdout) == before


def test_an_account_that_has_said_all_of_it_is_whole(tmp_path):
    url = f"sqlite:///{tmp_path}/holdout.db"
    holdout = account(url)
    played(holdout, 5, 4, end=False, stop=th.Patience("acc", 1))
    for right in (9, 3, 11):
        played(holdout, right).record()
        holdout.winner()
    played(holdout, 1, end=False)
    assert verify(url).findings == []
    assert account(url).status().nats == holdout.status().nats
    holdout.close()
    assert verify(url).findings == []
