"""Prices: what is said before a run is what is charged after it, and follows from public facts."""

import math
import re
from dataclasses import asdict

import pytest
import sqlalchemy as sa
import torch
import torch_holdout as th
from torch_holdout.bounds import hoeffding
from torch_holdout.errors import InvalidArgumentError

from support.builders.holdouts import ask, make_holdout
from support.builders.sealed import curve, evaluate, make_sealed, passes, play, sealed_runs
from support.builders.sealed_logs import events_of, share
from support.machines.soak import soak

STOP = th.Patience("val_loss", patience=3)
ACCURACY = {"statistics": {"val_acc": th.ZeroOne()}}


def silent(holdout, name, accuracy, evaluations=3):
    """A run that shows nothing, of one accuracy throughout."""
    with holdout.run(name=name) as run:
        for number in range(evaluations):
            run.evaluate(passes(holdout, val_acc=accuracy), query=f"{name} {number}")
    return run


def charged(holdout, run=None):
    """What the evaluations of a run, the last one if none is named, have paid."""
    paid = [event for event in events_of(holdout) if event["kind"] == "evaluate"]
    number = paid[-1]["run"] if run is None else run
    return [event["nats"] for event in paid if event["run"] == number]


def certified(holdout, taken, *, failure=0.05):
    """The half-widths of the last evaluation, from its event, by the formula written once more."""
    event = [event for event in events_of(holdout) if event["kind"] == "evaluate"][-1]
    statistics, planned = holdout.statistics, holdout.mechanism.evaluations
    bracket = math.log(2 / failure) + math.log(len(statistics)) + event["nats"]
    bracket -= math.log(share(taken, holdout.budget)) + math.log(
        share(event["evaluation"], planned)
    )
    distance = math.sqrt(bracket / (2 * holdout.size)) + 0.5 / 65536
    return {name: distance * (own.high - own.low) for name, own in statistics.items()}


def same(found, expected):
    """Whether half-widths are the same, but for rounding."""
    return found.by_statistic == pytest.approx(expected, rel=1e-12)


@pytest.mark.soak
def test_twenty_silent_runs_with_a_display():
    """8,000 of 10,000 examples are sealed, the display has the others: at most 2.05x fresh."""
    display, sealed = th.split(torch.arange(10_000), display=0.2, seed=0)
    assert (len(display), len(sealed)) == (2_000, 8_000)
    holdout = make_sealed(
        size=len(sealed), budget=20, mechanism=th.Sealed(evaluations=200), **ACCURACY
    )
    first = holdout.prices()
    for number in range(1, 21):
        made = 200 if number == 20 else soak(200, 6)
        before = holdout.prices(evaluations=made)
        assert (before.left, before.said) == (21 - number, 0.0)
        sums = passes(holdout, val_acc=0.5 + number / 1000)
        with holdout.run() as run:
            for index in range(made):
                run.evaluate(sums, query=f"{number} {index}")
        assert charged(holdout) == [before.said] * made
        assert holdout.certificate().user_tolerance == before.next.by_statistic
        assert same(before.next, certified(holdout, number))
    assert before.next == first.choices["nothing"].last
    last = before.next.by_statistic["val_acc"]
    assert last <= 2.05 * hoeffding(10_000, 0.05)
    assert 0.0275 < last < 0.02765
    for value in holdout.close().curve("val_acc", run=20):
        assert value.high - value.low < 2 * last


def stopped(holdout):
    return play(holdout, "stopped", 0.4)


def ended(holdout):
    return play(holdout, "ended", 0.4, epochs=8)


def ended_early(holdout):
    return play(holdout, "ended", 0.4, epochs=2)


def given_up(holdout):
    run = holdout.run(stop=STOP)
    for epoch in range(9):
        evaluate(run, holdout, epoch, 0.4)
    run.give_up()
    return run


@pytest.mark.parametrize("play_it", [stopped, ended, ended_early, given_up])
def test_a_run_with_a_rule_pays_as_was_said(play_it):
    length = play_it(make_sealed("memory://")).outcome.passes
    holdout = make_sealed()
    for taken in (1, 2, 3):
        before = holdout.prices(stop=STOP, evaluations=length)
        bounds = holdout.prices(evaluations=length)
        outcome = play_it(holdout).outcome
        shown = {"patience": "stopped"}.get(outcome.reason, outcome.reason)
        price = before.choices[shown]
        assert (price.nats, price.exact, price.passes) == (outcome.price, True, length)
        assert price.nats <= bounds.choices[shown].nats
        assert charged(holdout) == [before.said] * length
        assert same(before.next, certified(holdout, taken))
        assert holdout.prices().said == pytest.approx(before.said + price.nats, rel=1e-15)
        last = holdout.prices(stop=STOP, evaluations=length).choices[shown].last
        assert last.ratio == pytest.approx(price.last.ratio, rel=1e-12)


def test_given_up_for_free_brings_its_share_back():
    holdout = make_sealed()
    before = holdout.prices(stop=STOP, evaluations=2)
    assert before.choices["given up"].nats == 0.0
    run = holdout.run(stop=STOP)
    for epoch in range(2):
        evaluate(run, holdout, epoch, 0.4)
    assert holdout.prices().left == 4
    run.give_up()
    assert holdout.prices(stop=STOP, evaluations=2) == before


def test_the_lowest_free_share_is_the_next():
    """Three runs are begun, and the second is given up: its share is next, the last one is 5."""
    holdout = make_sealed(**ACCURACY)
    runs = [holdout.run(name=name) for name in "abc"]
    for run in runs:
        run.evaluate(passes(holdout, val_acc=0.5), query="the first")
    runs[1].give_up()
    before = holdout.prices(evaluations=3)
    assert before.left == 3
    silent(holdout, "d", 0.6)
    assert same(before.next, certified(holdout, 2))
    silent(holdout, "e", 0.6)
    last = holdout.prices(evaluations=3)
    assert last.next == before.choices["nothing"].last
    silent(holdout, "f", 0.6)
    assert same(last.next, certified(holdout, 5))


@pytest.mark.parametrize(
    "accuracies", [(0.5, 0.6, 0.55, 0.7, 0.7, 0.2), (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)]
)
def test_record_bits_cost_what_was_said(accuracies):
    holdout = make_sealed(budget=6, **ACCURACY)
    bounds = []
    for taken, accuracy in enumerate(accuracies, 1):
        before = holdout.prices(evaluations=3)
        assert ("no record" in before.choices) == (taken > 1)  # the first one is for certain
        run = silent(holdout, f"run {taken}", accuracy)
        assert charged(holdout) == [before.said] * 3
        assert same(before.next, certified(holdout, taken))
        assert all(before.next.ratio <= bound + 1e-12 for bound in bounds)
        bit = run.record()
        assert bit == (accuracy > max(accuracies[: taken - 1], default=0))
        price = before.choices["record" if bit else "no record"]
        assert events_of(holdout)[-1]["nats"] == price.nats
        assert holdout.prices().said == before.said + price.nats
        bounds.append(price.last.ratio)


def test_the_dearest_record_bits_are_as_dear_as_was_said():
    """Of all sequences of bits one costs exactly the bound, and none costs more."""
    highest = []
    for pattern in range(8):
        bits = [True, *(bool(pattern >> place & 1) for place in range(3))]
        holdout = make_sealed(budget=5, **ACCURACY)
        bound = holdout.prices(evaluations=3).choices["record"].last.ratio
        best = accuracy = 0.5
        for taken, bit in enumerate(bits):
            best, accuracy = (best + 0.05, best + 0.05) if bit else (best, 0.1)
            assert silent(holdout, f"run {taken}", accuracy).record() == bit
        highest.append(holdout.prices(evaluations=3).next.ratio)
    assert max(highest) == pytest.approx(bound, rel=1e-12)


def test_the_winner_costs_what_was_said():
    holdout = make_sealed(**ACCURACY)
    first = holdout.prices(evaluations=3)
    for taken, accuracy in enumerate((0.5, 0.6, 0.55, 0.7), 1):
        before = holdout.prices(evaluations=3)
        silent(holdout, f"run {taken}", accuracy)
        assert charged(holdout) == [before.said] * 3
        assert holdout.winner() == (1, 2, 2, 4)[taken - 1]
        assert events_of(holdout)[-1]["nats"] == before.choices["winner"].nats
        assert before.choices["winner"].nats == math.log(taken)
        again = holdout.prices()
        assert (holdout.winner(), holdout.prices()) == ((1, 2, 2, 4)[taken - 1], again)
    last = holdout.prices(evaluations=3).next
    assert last.ratio == pytest.approx(first.choices["winner"].last.ratio, rel=1e-12)


def test_only_runs_with_values_of_the_statistic_are_compared():
    """A record bit, and the winner, compare what can be compared: so do their prices."""
    both = {**ACCURACY["statistics"], "val_loss": th.BoundedMean(0.0, 1.0)}
    holdout = make_sealed(statistics=both, budget=6)
    silent(holdout, "first", 0.5)
    for number in range(3):
        with holdout.run(best="val_loss") as run:
            run.evaluate(passes(holdout, val_loss=0.5), query=f"loss {number}")
    before = holdout.prices(evaluations=3)
    assert not silent(holdout, "second", 0.4).record()
    assert events_of(holdout)[-1]["nats"] == before.choices["no record"].nats
    assert before.choices["no record"].nats == pytest.approx(math.log(2), rel=1e-12)
    assert holdout.winner() == 1
    assert events_of(holdout)[-1]["nats"] == before.choices["winner"].nats == math.log(2)
    run.evaluate(passes(holdout, val_acc=0.3), query="loss 2")  # late
    assert holdout.prices().choices["winner"].nats == math.log(4)


def test_a_challenge_costs_what_was_said():
    holdout = make_sealed(budget=8, **ACCURACY)
    right = torch.arange(holdout.size)
    bounds = []
    for number, accuracy in enumerate((0.3, 0.35, 0.8, 0.8, 0.9, 0.1)):
        before = holdout.prices(evaluations=1)
        challenged = holdout.challenge("val_acc", right < accuracy * 400, query=f"{number}")
        assert charged(holdout) == [before.said]
        assert all(before.next.ratio <= bound + 1e-12 for bound in bounds)
        said = holdout.prices().said
        if number == 0:  # there is no incumbent, so nothing is said
            assert (said, "kept" in before.choices) == (before.said, False)
            continue
        price = before.choices["kept" if challenged.kept else "reverted"]
        assert said == before.said + price.nats
        bounds.append(price.last.ratio)
    assert len(bounds) == 5


def test_all_that_is_said_adds_up():
    """Stop epochs, record bits and winners together: the next evaluation pays for each of them."""
    holdout = make_sealed(budget=8)
    for floor in (0.5, 0.4, 0.3):
        before = holdout.prices()
        run = play(holdout, f"{floor}", floor)
        run.record()
        holdout.winner()
        assert charged(holdout) == [before.said] * run.outcome.passes
    assert before.said < holdout.prices().said
    assert holdout.prices().said == pytest.approx(math.fsum(holdout.status().nats.values()))


def test_open_runs_pay_what_others_have_said_by_now():
    holdout = make_sealed()
    runs = [holdout.run(stop=STOP, name=name) for name in "abc"]
    for epoch in range(6):
        for number, run in enumerate(runs):
            evaluate(run, holdout, epoch, 0.3 + number / 10)
    play(holdout, "stopped meanwhile", 0.5)
    prices = holdout.prices()
    assert [upcoming.run for upcoming in prices.open_runs] == [1, 2, 3]
    for number, run in enumerate(runs):
        upcoming = holdout.prices().open_runs[number]
        assert upcoming.evaluation == 7
        evaluate(run, holdout, 6, 0.3 + number / 10)
        assert charged(holdout, number + 1)[-1] == upcoming.pays
        assert same(upcoming.worth, certified(holdout, number + 1))
    new = holdout.prices()
    assert new.said > max(upcoming.pays for upcoming in new.open_runs)  # their silence too
    evaluate(holdout.run(), holdout, 0, 0.9)
    assert charged(holdout) == [new.said]


class TestPublicFacts:
    def account(self, url, best):
        """Three runs and what they have said; ``best``: the accuracies of the second."""
        holdout = make_sealed(url, **ACCURACY)
        silent(holdout, "a", best - 0.2)
        run = silent(holdout, "b", best)
        run.record()
        holdout.winner()
        open_run = holdout.run(stop=th.Patience("val_acc", 2), name="c")
        for number in range(2):
            open_run.evaluate(passes(holdout, val_acc=best / 2), query=f"c {number}")
        return holdout

    def test_other_sums_with_the_same_transcript_have_the_same_prices(self):
        first = self.account("memory://one", 0.9)
        second = self.account("memory://two", 0.5)
        assert str(first.prices()) == str(second.prices())
        assert asdict(first.prices()) == asdict(second.prices())
        third = self.account("memory://three", 0.5)
        third.winner("val_acc")  # nothing new: a repeat
        assert third.prices() == second.prices()
        silent(third, "d", 0.9).record()  # another transcript has others
        assert str(third.prices()) != str(second.prices())

    def test_no_secret_is_read(self, tmp_path):
        holdout = self.account(f"sqlite:///{tmp_path}/holdout.db", 0.9)
        executed = []
        engine = holdout._ledger._connected

        def listen(connection, cursor, statement, *rest):
            executed.append(statement)

        sa.event.listen(engine, "before_cursor_execute", listen)
        holdout.prices()
        assert any("th_sealed_runs" in statement for statement in executed)
        assert not [statement for statement in executed if "secret" in statement]
        evaluate_again = holdout.run(resume=holdout.status().runs[-1].id)
        evaluate_again.evaluate(passes(holdout, val_acc=0.1), query="c 2")
        assert [statement for statement in executed if "secret" in statement]  # it would be seen
        sa.event.remove(engine, "before_cursor_execute", listen)

    def test_nothing_is_written(self, tmp_path):
        holdout = self.account(f"sqlite:///{tmp_path}/holdout.db", 0.9)
        events = events_of(holdout)
        holdout.prices()
        assert events_of(holdout) == events


class TestSentences:
    def test_a_table_for_people(self):
        holdout, _ = sealed_runs()
        lines = str(holdout.prices(stop=STOP, evaluations=12)).splitlines()
        assert lines[0] == "holdout 'val': 2 of 5 runs left; 8.95 nats said so far"
        assert "open run 3, evaluation 6: pays 8.92 nats" in lines[4]
        assert [line[2:30].strip() for line in lines[6:]] == [
            *("nothing (a run without stop=", "run.record(), and it is one"),
            *("run.record(), and it is not", "holdout.winner() after it"),
            *("stop=: stopped by patience a", "stop=: ended by hand at pass"),
            "stop=: given up after pass 1",
        ]
        ends = [re.search("(at most )?val_loss", line).start() for line in lines[6:]]
        assert len(set(ends)) == 1

    def test_the_last_run_has_no_later_one(self):
        lines = str(make_sealed(budget=1).prices()).splitlines()
        assert lines[4].split() == ["what", "the", "next", "run", "shows", "nats"]
        assert lines[5].split()[-1] == "0"
        live = make_holdout(budget=1, mechanism=th.Ladder(step=0.01))
        assert "the last of" not in str(live.prices())

    def test_a_line_in_the_status(self):
        holdout = make_sealed(size=10_000, budget=20, mechanism=th.Sealed(evaluations=200))
        (line,) = [own for own in str(holdout.status()).splitlines() if "next run" in own]
        prices = holdout.prices()
        last = f"the last of 20, if nothing is shown: {prices.choices['nothing'].last}"
        assert line == f"  next run: {prices.next}; {last}"
        assert line.endswith("val_loss +-0.127, val_acc +-0.0254 (1.87x fresh)")
        holdout.close()
        assert "next run" not in str(holdout.status())

    def test_a_closed_holdout(self):
        holdout, _ = sealed_runs()
        holdout.close()
        prices = holdout.prices()
        assert (prices.closed, prices.next, prices.choices, prices.open_runs) == (
            True,
            None,
            {},
            (),
        )
        assert "is closed, for good: nothing more can be asked" in str(prices)
        assert prices.line == ""

    def test_a_spent_budget(self):
        holdout = make_sealed(budget=1)
        run = holdout.run(stop=STOP)
        evaluate(run, holdout, 0, 0.3)
        prices = holdout.prices()
        assert (prices.left, prices.next, prices.choices) == (0, None, {})
        assert "no run can begin; open ones can go on:" in str(prices)
        assert "open run 1, evaluation 2: pays 0 nats" in str(prices)
        run.end()
        assert "Close the holdout to see its values" in str(holdout.prices())
        assert "next run" not in str(holdout.status())

    def test_values_through_the_door(self):
        holdout = make_holdout(size=5000, budget=3, mechanism=th.Ladder(step=0.01))
        before = holdout.prices()
        assert before.choices["release"].nats is None
        assert before.next.by_statistic == holdout.certificate().user_tolerance
        for number in range(3):
            prices = holdout.prices()
            assert ask(holdout, 2000 + 500 * number, f"{number}").kind == "release"
            assert holdout.certificate().user_tolerance == prices.next.by_statistic
        assert prices.next == before.choices["release"].last
        assert "the last of 3 releases, at the earliest: val_acc +-" in str(before)
        assert "Its answers stay, or bring a fresh one." in str(holdout.prices())

    def test_what_a_release_costs_in_privacy(self):
        noisy = make_holdout(mechanism=th.GaussianMechanism(sigma=0.05), delta=1e-6)
        assert noisy.prices().cost == noisy.status().cost_per_release["val_acc"]
        assert "a release costs at most rho 0.08" in str(noisy.prices())

    def test_wrong_arguments(self):
        sealed, live = make_sealed(), make_holdout()
        for wrong, sentence in (
            ({"failure": 0}, "between 0 and 1"),
            ({"evaluations": 0}, "whole number"),
            ({"stop": 3}, "Patience"),
            ({"stop": th.Patience("val_f1", 3)}, "'val_loss', 'val_acc'], but got 'val_f1'"),
        ):
            with pytest.raises(InvalidArgumentError, match=re.escape(sentence)):
                sealed.prices(**wrong)
        for wrong in ({"stop": STOP}, {"evaluations": 3}):
            with pytest.raises(InvalidArgumentError, match=r"has no runs\. Leave them out"):
                live.prices(**wrong)


class TestNoise:
    def test_at_most_what_was_said_is_charged(self):
        noisy = {"mechanism": th.Sealed(evaluations=40, epsilon=2.0), "seed": 5}
        holdout = make_sealed(budget=6, **noisy)
        assert holdout.prices().cost == 2.0
        assert not {"record", "no record", "winner"} & set(holdout.prices().choices)
        reasons = set()
        for number in range(5):
            before = holdout.prices()
            outcome = play(holdout, f"{number}", 0.4, epochs=12 if number % 2 else 40).outcome
            then = holdout.prices(stop=STOP, evaluations=outcome.passes).choices
            shown = {"patience": "stopped"}.get(outcome.reason, outcome.reason)
            assert outcome.price <= then[shown].nats
            assert outcome.price <= before.choices[shown].nats
            assert charged(holdout) == [before.said] * outcome.passes
            reasons.add(shown)
        assert reasons == {"stopped", "ended"}


def test_any_budget_has_prices():
    holdout = make_sealed(budget=2**31 - 1)
    prices = holdout.prices()
    assert prices.left == 2**31 - 1
    assert all(math.isfinite(price.last.ratio) for price in prices.choices.values())
    assert prices.choices["nothing"].last.ratio < 4


def test_runs_longer_than_planned_are_worth_less():
    holdout = make_sealed(mechanism=th.Sealed(evaluations=4))
    widths = [holdout.prices(evaluations=n).next.ratio for n in (1, 4, 5, 50)]
    assert widths == sorted(widths)
    with holdout.run() as run:
        for epoch in range(6):
            run.evaluate(passes(holdout, **curve(epoch, 0.4)), query=f"{epoch}")
    before = make_sealed(mechanism=th.Sealed(evaluations=4)).prices(evaluations=6)
    assert same(before.next, certified(holdout, 1))
