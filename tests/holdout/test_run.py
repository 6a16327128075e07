"""Sealed runs at the door: patience, passes, resuming, giving up, budgets."""

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import sleep

import pytest
import torch
import torch_holdout as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.holdout import run as run_of
from torch_holdout.ledger.verify import verify

SIZE = 8


def sealed(url="memory://", *, budget=1, evaluations=20, name="val", **statistics):
    return th.ReusableHoldout(
        url,
        name=name,
        size=SIZE,
        statistics=statistics or {"err": th.BoundedMean(0.0, 1.0)},
        mechanism=th.Sealed(evaluations=evaluations),
        budget=budget,
    )


def sums(holdout, value, name="err"):
    own = holdout.accumulator(name)
    own.update(torch.full((SIZE,), float(value)))
    return {name: own}


def early_stopping(values, patience, *, min_delta=0.0, after=0, mode="min"):
    """Lightning's rule, written once more: (passes made, best pass), best None if none counts."""
    best, wait, reference = None, 0, None
    for number, value in enumerate(values, 1):
        if number <= after:
            continue
        better = reference is None or (
            value + min_delta < reference if mode == "min" else value - min_delta > reference
        )
        if better:
            best, wait, reference = number, 0, value
        else:
            wait += 1
        if wait >= patience:
            return number, best
    return None, best


def play(holdout, values, stop, **run):
    with holdout.run(stop=stop, **run) as opened:
        for number, value in enumerate(values):
            if opened.evaluate(sums(holdout, value), query=f"weights {number}").stop:
                break
    return opened.outcome


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.integers(0, 8), min_size=1, max_size=14),
    patience=st.integers(1, 4),
    after=st.integers(0, 3),
    mode=st.sampled_from(["min", "max"]),
    quarters=st.integers(0, 2),
)
def test_a_run_stops_where_early_stopping_would(values, patience, after, mode, quarters):
    values = [value / 8 for value in values]
    rule = {"min_delta": quarters / 8, "after": after}
    stopped, best = early_stopping(values, patience, mode=mode, **rule)
    holdout = sealed(err=th.BoundedMean(0.0, 1.0, mode=mode), evaluations=10)
    outcome = play(holdout, values, th.Patience("err", patience, **rule))
    assert (outcome.stopped_at, outcome.best_evaluation) == (stopped, best)
    assert outcome.reason == ("ended" if stopped is None else "patience")


def test_nothing_but_the_decision_is_in_what_a_run_returns():
    holdout = sealed()
    run = holdout.run(stop=th.Patience("err", 2))
    given = run.evaluate(sums(holdout, 0.37), query="a")
    assert (given.number, given.passes, given.stop, given.kind) == (1, 1, False, "sealed")
    shown = f"{run!r} {given!r} {holdout.status()!r} {holdout.status()} {holdout.certificate()}"
    level = round(0.37 * 65536)
    assert not any(text in shown for text in ("0.37", str(level), str(level * SIZE)))
    assert run.outcome is None


def test_values_that_are_not_finite_count_as_the_worse_bound():
    holdout = sealed()
    outcome = play(holdout, [0.5, math.nan, math.inf, 0.4, 0.6, 0.7], th.Patience("err", 3))
    assert (outcome.stopped_at, outcome.best_evaluation) == (None, 4)


def test_frozen_weights_are_one_evaluation_and_many_passes(caplog):
    holdout = sealed()
    with holdout.run(stop=th.Patience("err", 3)) as run:
        given = [run.evaluate(sums(holdout, 0.5), query="frozen") for _ in range(4)]
    assert [(each.number, each.passes, each.stop) for each in given] == [
        (1, 1, False), (1, 2, False), (1, 3, False), (1, 4, True),
    ]  # fmt: skip
    assert run.outcome.evaluations == 1
    assert caplog.text.count("'frozen' is evaluation 1 of this run already") == 1


def test_weights_that_come_again_are_no_mistake(caplog):
    """A text is taken for a mistake, because its values may be another model's; weights are not."""
    holdout, frozen = sealed(), torch.nn.Linear(1, 1).eval()
    run = holdout.run(stop=th.Patience("err", 3))
    passes = [run.evaluate(sums(holdout, 0.5), query=frozen).passes for _ in range(2)]
    for _ in range(2):  # as after a crash
        run.evaluate(sums(holdout, 0.5), query="named", step="epoch 2")
    assert (passes, caplog.text) == ([1, 2], "")


def test_a_text_that_names_every_model_is_said_once_to_name_one(caplog):
    holdout = sealed(budget=2)
    with holdout.run() as run:
        for epoch in range(3):
            assert run.evaluate(sums(holdout, 0.5 - epoch / 10), query="net").number == 1
    assert len(caplog.records) == 1
    assert "'net' is evaluation 1 of this run already, so these values were not read" in caplog.text
    caplog.clear()
    frozen = torch.nn.Linear(1, 1).eval()
    with holdout.run() as run:
        for epoch in range(3):  # weights name themselves; other statistics may come later
            run.evaluate({"err": torch.zeros(SIZE)}, query=frozen, step=f"{epoch}")
    assert caplog.records == []
    assert [value.value for value in holdout.close().values] == [0.5, 0.0]


def test_another_statistic_and_a_step_that_comes_again_are_no_mistake(caplog):
    holdout = sealed(err=th.BoundedMean(0.0, 1.0), acc=th.BoundedMean(0.0, 1.0))
    run = holdout.run()
    for name in ("err", "acc"):
        run.evaluate(sums(holdout, 1.0, name), query="epoch 0", step="0")
    run = holdout.run(resume=run.id)
    run.evaluate(sums(holdout, 1.0), query="epoch 0", step="0")
    assert caplog.records == []


def test_the_same_step_again_is_the_same_pass():
    holdout = sealed()
    run = holdout.run(stop=th.Patience("err", 1))
    first = run.evaluate(sums(holdout, 0.5), query="a", step="epoch 0")
    assert run.evaluate(sums(holdout, 0.5), query="a", step="epoch 0") == first
    assert run.evaluate(sums(holdout, 0.5), query="a", step="epoch 1").stop


def test_other_statistics_come_with_a_pass_or_in_a_call_of_their_own():
    holdout = sealed(err=th.BoundedMean(0.0, 1.0), acc=th.ZeroOne())
    hits = holdout.accumulator("acc")
    hits.update(torch.arange(SIZE) < 6)
    with holdout.run(stop=th.Patience("err", 2)) as run:
        before = run.evaluate({"acc": hits}, query="a")
        own = run.evaluate(sums(holdout, 0.5), query="a")
        late = run.evaluate({"acc": hits}, query="a")  # known already: nothing is recorded
    assert (before.number, before.passes) == (1, 0)
    assert (own.number, own.passes) == (1, 1) == (late.number, late.passes)
    closing = holdout.close()
    assert {(v.evaluation, v.statistic): v.value for v in closing.values} == {
        (1, "acc"): 0.75, (1, "err"): 0.5,
    }  # fmt: skip


def test_what_comes_after_the_stop_is_named_by_its_weights():
    """A free text could name values that were chosen after the stop and do not pay for it."""
    holdout = sealed(err=th.BoundedMean(0.0, 1.0), acc=th.ZeroOne())
    hits = holdout.accumulator("acc")
    hits.update(torch.arange(SIZE) < 6)
    by_weights, by_text = torch.nn.Linear(1, 1).eval(), "weights"
    run = holdout.run(stop=th.Patience("err", 1))
    for query in (by_text, by_weights):
        stopped = run.evaluate(sums(holdout, 0.5), query=query)
    assert stopped.stop
    before = holdout.status()
    with pytest.raises(th.HoldoutError, match=r"stopped by its patience.*in one call.*query=net"):
        run.evaluate({"acc": hits}, query=by_text)
    for late in ({"query": by_weights}, {"query": "new"}):
        with pytest.raises(th.HoldoutError, match=r"for more evaluations\. Nothing was charged"):
            run.evaluate(sums(holdout, 0.5), **late)
    assert holdout.status() == before
    assert run.evaluate({"acc": hits}, query=by_weights).number == 2
    assert [v.value for v in holdout.close().values if v.statistic == "acc"] == [0.75]


def test_a_run_without_a_stop_says_nothing():
    holdout = sealed()
    outcome = play(holdout, [0.5] * 9, None)
    assert (outcome.best_evaluation, outcome.stopped_at, outcome.price) == (None, None, 0.0)


@pytest.mark.parametrize("step", [True, False])
def test_a_resumed_run_ends_where_it_would_have_ended(tmp_path, step):
    url = f"sqlite:///{tmp_path / 'holdout.db'}"
    values = [0.9, 0.5, 0.7, 0.8, 0.6, 0.4, 0.6, 0.7, 0.8, 0.9]
    holdout = sealed(url)
    run = holdout.run(stop=th.Patience("err", 4))

    def evaluate(opened, epoch):
        own = sums(holdout, values[epoch])
        return opened.evaluate(own, query=f"w{epoch}", step=f"{epoch}" if step else None)

    for epoch in range(5):
        evaluate(run, epoch)
    resumed = sealed(url).run(resume=run.id)
    for epoch in range(3, 10):  # from a checkpoint that is two passes behind
        given = evaluate(resumed, epoch)
        if given.stop:
            break
    assert (resumed.outcome.stopped_at, resumed.outcome.best_evaluation) == (10, 6)
    assert not verify(url).findings


def test_an_ended_run_is_never_resumed_but_says_again_what_it_said():
    holdout = sealed()
    outcome = play(holdout, [0.5, 0.6, 0.7], th.Patience("err", 2))
    again = holdout.run(resume=outcome.run)
    assert again.outcome == outcome
    assert again.evaluate(sums(holdout, 0.7), query="weights 2").stop  # the last pass, again
    with pytest.raises(th.HoldoutError, match="stopped by its patience"):
        again.evaluate(sums(holdout, 0.1), query="others")


def test_a_run_of_another_account_or_with_another_rule_is_refused():
    holdout, other = sealed(), sealed(name="other")
    run = holdout.run(stop=th.Patience("err", 2))
    run.evaluate(sums(holdout, 0.5), query="a")
    with pytest.raises(th.InvalidArgumentError, match="another ledger or account"):
        other.run(resume=run.id)
    with pytest.raises(th.InvalidArgumentError, match="another rule"):
        holdout.run(resume=run.id, stop=th.Patience("err", 3))
    assert holdout.run(resume=run.id, stop=th.Patience("err", 2)).id == run.id


def test_the_budget_counts_runs_and_says_which_are_open():
    holdout = sealed(budget=1)
    run = holdout.run(stop=th.Patience("err", 2))
    assert holdout.budget_left == 1  # it begins with its first evaluation
    run.evaluate(sums(holdout, 0.5), query="a")
    assert (holdout.budget_left, holdout.exhausted) == (0, True)
    with pytest.raises(th.BudgetExhaustedError, match=run.id):
        holdout.run()
    assert [each.id for each in holdout.status().runs] == [run.id]
    assert f"resume={run.id!r}" in str(holdout.status())


def test_two_handles_cannot_begin_more_runs_than_the_budget():
    holdout = sealed(budget=1)
    first, second = holdout.run(), holdout.run()
    first.evaluate(sums(holdout, 0.5), query="a")
    with pytest.raises(th.BudgetExhaustedError):
        second.evaluate(sums(holdout, 0.5), query="a")
    assert len(holdout.status().runs) == 1


def test_threads_that_come_first_begin_one_run(monkeypatch):
    """A thread waits after its commit, before it knows which run it has begun."""
    decide = run_of.on_first_rank

    def late(*arguments):
        decided = decide(*arguments)
        sleep(0.05)
        return decided

    monkeypatch.setattr(run_of, "on_first_rank", late)
    holdout = sealed(budget=4)
    run, start = holdout.run(stop=th.Patience("err", 5)), Barrier(4)

    def evaluate(number):
        start.wait()
        return run.evaluate(sums(holdout, number / 4), query=f"{number}").number

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(evaluate, range(4))) == [1, 2, 3, 4]
    assert holdout.budget_left == 3


def test_giving_up_before_it_could_stop_is_free():
    holdout = sealed(budget=1)
    run = holdout.run(stop=th.Patience("err", 2))
    for query in "ab":
        run.evaluate(sums(holdout, 0.5), query=query)
    assert run.give_up().price == 0.0
    assert holdout.budget_left == 1
    outcome = play(holdout, [0.5, 0.6, 0.7], th.Patience("err", 2))
    assert outcome.reason == "patience"
    assert {value.run for value in holdout.close().values} == {2}  # the sums of run 1 are erased


def test_giving_up_later_costs_its_silence_and_its_share():
    holdout = sealed(budget=2, evaluations=4)
    run = holdout.run(stop=th.Patience("err", 1))
    for query, value in (("a", 0.5), ("b", 0.4), ("c", 0.3)):
        run.evaluate(sums(holdout, value), query=query)
    outcome = run.give_up()
    shares = 2 * 0.9 / 4 + 0.1 * (1 / 2 - 1 / 4)  # of passes 2 and 3
    assert math.isclose(outcome.price, -math.log(1 - shares / 2))
    assert holdout.budget_left == 1


def broken_off(holdout, error, values):
    """A run whose block is left by an error after some evaluations."""
    opened = holdout.run(stop=th.Patience("err", 2))

    def block():
        with opened:
            for number, value in enumerate(values):
                opened.evaluate(sums(holdout, value), query=f"w{number}")
            raise error

    with pytest.raises(type(error)):
        block()
    return opened


def test_an_error_in_the_block_gives_up_what_is_free_and_keeps_the_rest_open():
    holdout = sealed(budget=1)
    run = broken_off(holdout, ZeroDivisionError(), [0.5])
    assert run.outcome.reason == "given up"
    assert holdout.budget_left == 1
    run = broken_off(holdout, ZeroDivisionError(), [0.5, 0.4, 0.3])
    assert run.outcome is None
    assert holdout.budget_left == 0


def test_an_interrupt_leaves_the_run_open():
    assert broken_off(sealed(), KeyboardInterrupt(), [0.5]).outcome is None


def test_what_other_runs_have_said_is_paid_by_later_evaluations():
    holdout = sealed(budget=3, evaluations=5)
    play(holdout, [0.5, 0.6], th.Patience("err", 1))  # stops at pass 2
    silent = holdout.run(stop=th.Patience("err", 1))
    silent.evaluate(sums(holdout, 0.5), query="x")
    silent.evaluate(sums(holdout, 0.4), query="y")
    last = holdout.run()
    last.evaluate(sums(holdout, 0.5), query="z")
    stop = math.log(2) - math.log(0.9 / 5 + 0.1 / 6)
    silence = -math.log(1 - (0.9 / 5 + 0.1 / 6) / 2)
    stored = [e for e in _events(holdout) if e.kind == "evaluate"]
    assert [e.nats for e in stored] == pytest.approx([0, 0, stop, stop, stop + silence])


def _events(holdout):
    holdout.close()
    return holdout._ledger.closing(holdout._attached()).evaluations


def test_a_partial_pass_is_refused_and_begins_no_run():
    holdout = sealed()
    own = holdout.accumulator("err")
    own.update(torch.zeros(SIZE - 1))
    with pytest.raises(th.PartialPassError):
        holdout.run().evaluate({"err": own}, query="a")
    assert holdout.status().runs == ()


@pytest.mark.parametrize(
    ("stop", "best", "said"),
    [
        (th.Patience("unknown", 2), None, "registered statistics"),
        ("val_loss", None, "stop"),
        (th.Patience("err", 2), "other", "statistic that stops the run"),
        (None, "other", "registered statistics"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused(stop, best, said):
    with pytest.raises(th.InvalidArgumentError, match=said):
        sealed().run(stop=stop, best=best)


@pytest.mark.parametrize(
    "arguments",
    [
        {"patience": 0}, {"patience": 1.5}, {"patience": True}, {"patience": 3, "after": -1},
        {"patience": 3, "min_delta": -0.1}, {"patience": 3, "min_delta": math.nan},
        {"patience": 3, "statistic": ""},
    ],
)  # fmt: skip
def test_a_patience_that_cannot_work_is_refused(arguments):
    with pytest.raises(th.InvalidArgumentError):
        th.Patience(**{"statistic": "err"} | arguments)


def test_a_sealed_holdout_answers_no_query_and_a_live_one_has_no_runs():
    holdout = sealed()
    with pytest.raises(th.InvalidArgumentError, match="shows no value"):
        holdout.release("err", sums(holdout, 0.5)["err"], query="a")
    live = th.ReusableHoldout(
        "memory://", name="live", size=SIZE, statistics={"err": th.BoundedMean(0.0, 1.0)},
        mechanism=th.Ladder(step=0.1), budget=2,
    )  # fmt: skip
    with pytest.raises(th.InvalidArgumentError, match="answers with values"):
        live.run()


def test_a_run_stays_in_its_process():
    run = sealed().run()
    with pytest.raises(th.SealedValueError, match=r"run\.id"):
        pickle.dumps(run)
    assert copy.deepcopy(run) is run


def test_no_statistic_is_added_after_the_first_evaluation(tmp_path):
    url = f"sqlite:///{tmp_path / 'holdout.db'}"
    holdout = sealed(url)
    holdout.run().evaluate(sums(holdout, 0.5), query="a")
    with pytest.raises(th.HoldoutMismatchError, match="fixed before its first query"):
        sealed(url, err=th.BoundedMean(0.0, 1.0), more=th.BoundedMean(0.0, 2.0)).status()


class TestMetric:
    def metrics(self, holdout, run, model):
        names = list(holdout.statistics)
        return {n: th.ReusableHoldoutMetric(holdout, n, model=model, run=run) for n in names}

    def test_it_computes_nan_and_says_when_to_stop(self):
        holdout = sealed(err=th.BoundedMean(0.0, 1.0), acc=th.ZeroOne())
        model, run = torch.nn.Linear(1, 1).eval(), holdout.run(stop=th.Patience("err", 2))
        metrics, stops = self.metrics(holdout, run, model), []
        for epoch in range(4):
            torch.nn.init.constant_(model.weight, epoch)
            metrics["acc"].update(torch.arange(SIZE) < 4)
            metrics["err"].update(torch.full((SIZE,), 0.5 if epoch == 0 else 0.6))
            assert all(metric.compute().isnan() for metric in metrics.values())
            assert {metric.answer.kind for metric in metrics.values()} == {"sealed"}
            stops.append(metrics["err"].stop)
            for metric in metrics.values():
                metric.reset()
            if stops[-1]:
                break
        assert stops == [False, False, True]
        assert (run.outcome.evaluations, run.outcome.passes) == (3, 3)
        assert run.outcome.best_evaluation == 1

    def test_a_sealed_holdout_wants_a_run_and_a_live_one_none(self):
        with pytest.raises(th.InvalidArgumentError, match=r"run=holdout\.run"):
            th.ReusableHoldoutMetric(sealed(), "err")
        with pytest.raises(th.InvalidArgumentError, match="of another"):
            th.ReusableHoldoutMetric(sealed(), "err", run=sealed(name="other").run())


def test_a_share_is_not_used_again_once_another_run_has_said_something():
    holdout = sealed(budget=2, evaluations=5)
    first = holdout.run(stop=th.Patience("err", 3))
    first.evaluate(sums(holdout, 0.5), query="a")
    play(holdout, [0.5, 0.6], th.Patience("err", 1))  # speaks while the first is open
    assert first.give_up().reason == "given up"
    assert holdout.budget_left == 0
    assert not verify(holdout.address).findings


class TestNoise:
    def private(self, **changes):
        return th.ReusableHoldout(
            "memory://", name="val", size=SIZE, statistics={"err": th.BoundedMean(0.0, 1.0)},
            mechanism=th.Sealed(evaluations=20, epsilon=2000.0 / 3), budget=2, seed=5, **changes,
        )  # fmt: skip

    def test_with_little_noise_it_decides_as_without(self):
        holdout = self.private()
        outcome = play(holdout, [0.9, 0.5, 0.2, 0.6, 0.7, 0.8, 0.9], th.Patience("err", 2))
        assert (outcome.stopped_at, outcome.best_evaluation) == (5, 3)
        assert not verify(holdout.address).findings

    def test_a_run_costs_its_epsilon_from_the_first_comparison_on(self):
        holdout = self.private()
        run, spent = holdout.run(stop=th.Patience("err", 2)), []
        for query, value in (("a", 0.9), ("b", 0.5), ("c", 0.1)):
            run.evaluate(sums(holdout, value), query=query)
            spent.append(holdout.status().epsilon_spent)
        assert spent == [0.0, 0.0, holdout.mechanism.epsilon]
        assert holdout.status().epsilon == 2 * holdout.mechanism.epsilon

    def test_closing_shows_what_was_paid_for_and_erases_the_rest(self):
        holdout = self.private()
        play(holdout, [0.9, 0.5, 0.6, 0.7], th.Patience("err", 2))
        assert "shown by close(exact=True) only" in str(holdout.certificate())
        closing = holdout.close()
        assert (closing.values, closing.best, closing.exact) == ((), None, False)
        assert "no value was shown, and no sums are kept" in str(holdout.certificate())
        assert closing.runs[0].outcome.best_evaluation == 2
        with pytest.raises(th.HoldoutClosedError, match="erased"):
            holdout.close(exact=True)

    def test_exact_values_end_the_privacy_for_good(self):
        holdout = self.private()
        play(holdout, [0.9, 0.5, 0.6, 0.7], th.Patience("err", 2))
        assert holdout.close(exact=True).best.value == pytest.approx(0.5, abs=1e-4)
        assert math.isinf(holdout.status().epsilon)
        assert math.isinf(holdout.status().epsilon_spent)

    def test_a_repeated_pass_draws_no_second_choice(self, monkeypatch):
        from torch_holdout.mechanisms.private_patience import PrivateChoice

        kept, calls = PrivateChoice.keep, []
        monkeypatch.setattr(PrivateChoice, "keep", lambda *a: calls.append(a[2]) or kept(*a))
        holdout = self.private()
        run = holdout.run(stop=th.Patience("err", 3))
        for query in ("a", "a", "b", "a"):
            run.evaluate(sums(holdout, 0.5), query=query)
        assert calls == [1, 2]

    def test_other_statistics_do_not_make_a_stop_fail(self):
        """An error at the stop would tell the decision, uncharged, and draw again."""
        holdout = th.ReusableHoldout(
            "memory://", name="val", size=SIZE, budget=1, seed=5,
            statistics={"err": th.BoundedMean(0.0, 1.0), "acc": th.ZeroOne()},
            mechanism=th.Sealed(evaluations=20, epsilon=500.0),
        )  # fmt: skip
        run = holdout.run(stop=th.Patience("err", 2))
        hits = holdout.accumulator("acc")
        hits.update(torch.arange(SIZE) < 6)
        for number in range(9):  # evaluations that are no passes
            run.evaluate({"acc": hits}, query=f"other {number}")
        stops = [
            run.evaluate(sums(holdout, value), query=f"w{number}").stop
            for number, value in enumerate((0.2, 0.9, 0.9))
        ]
        assert stops == [False, False, True]
        assert (run.outcome.best_evaluation, run.outcome.stopped_at) == (10, 3)
        assert not verify(holdout.address).findings
