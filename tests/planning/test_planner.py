import math
import pickle
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
import torch
import torch_holdout as th
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch_holdout.bounds import hoeffding
from torch_holdout.bounds.certificate import Transcript, certify_transcript
from torch_holdout.bounds.channels import Channel
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.ledger import Ledger
from torch_holdout.mechanisms import Mechanism
from torch_holdout.planning.curves import lasting_budget
from torch_holdout.planning.setting import PURPOSES, Setting

from support.builders.holdouts import ask, correct, make_holdout, sums_of

sizes = st.integers(50, 200_000)
budgets = st.integers(1, 60)
purposes = st.sampled_from(["early-stopping", "curve", "search"])


def planned_0_1_0(size, queries, purpose):
    """The mechanism of a plan of version 0.1.0: its noise follows the number of queries."""
    threshold = 1 / (2 * math.sqrt(size)) / (2 if purpose == "early-stopping" else 1)
    sigma = threshold / (6 * math.log(2 * max(queries, 20)))
    if purpose == "curve":
        return th.Thresholdout(threshold=threshold, sigma=sigma, guess="last")
    return th.Ladder(step=threshold, sigma=sigma)


@settings(max_examples=60, deadline=None)
@given(sizes, st.integers(1, 3000), budgets, purposes, st.floats(1e-4, 0.3))
@example(50, 17, 1, "early-stopping", 1e-4)
def test_certificates_move_the_way_they_must(size, queries, budget, purpose, failure):
    facts = {"queries": queries, "budget": budget, "failure": failure, "purpose": purpose}
    found = th.certificate(size=size, **facts).tolerance
    assert found >= hoeffding(size, failure)
    assert th.certificate(size=size, **{**facts, "queries": 2 * queries}).tolerance >= found
    assert th.certificate(size=size, **{**facts, "failure": failure / 2}).tolerance > found
    # Noise makes a certificate wider: more examples, or fewer releases, may afford some.
    noise = Setting(size, queries, failure, purpose).private
    larger = Setting(round(1.1 * size) + 1, queries, failure, purpose)
    if noise(budget) == larger.private(budget):
        # The grid follows the size in whole steps, so it takes a few per cent more examples.
        assert larger.certificate(budget).tolerance < found
    if noise(budget) == noise(budget + 1):
        assert th.certificate(size=size, **{**facts, "budget": budget + 1}).tolerance >= found
    two = th.certificate(size=size, **facts, statistics=2).tolerance
    assert two >= found


def test_a_plan_for_fewer_queries_is_never_wider():
    """1,500 seeded plans; of those that follow the queries with their noise 101 were wider."""
    random = Random(16)
    followed = 0
    for _ in range(1500):
        setting = Setting(
            size=int(10 ** random.uniform(1.7, 6)),
            queries=random.randint(1, 60),
            failure=10 ** random.uniform(-4, -0.5),
            purpose=random.choice(PURPOSES),
        )
        budget = random.randint(1, 5)
        twice = replace(setting, queries=2 * setting.queries)
        assert twice.certificate(budget).tolerance >= setting.certificate(budget).tolerance
        old, more = (
            replace(each, given=planned_0_1_0(each.size, each.queries, each.purpose))
            for each in (setting, twice)
        )
        followed += more.certificate(budget).tolerance < old.certificate(budget).tolerance
    assert followed > 50  # the broken twin


@pytest.mark.parametrize(
    ("size", "queries", "width"),
    [
        (700, 200, 0.3019),
        (2000, 200, 0.1852),
        (10_000, 50, 0.0781),
        (10_000, 200, 0.0873),
        (10_000, 1000, 0.0961),
        (50_000, 200, 0.0410),
    ],
)
def test_what_twenty_values_certified_in_0_1_0(size, queries, width):
    """The column of the Ladder, beside which sealed runs are measured; plans are narrower now."""
    mechanism = planned_0_1_0(size, queries, "early-stopping")
    found = th.certificate(size=size, queries=queries, budget=20, mechanism=mechanism)
    assert round(found.tolerance, 4) == width


def test_the_known_case_of_a_wider_plan_for_fewer_queries():
    facts = {"size": 50, "budget": 1, "failure": 1e-4}
    few, many = (th.certificate(queries=q, **facts).tolerance for q in (17, 34))
    assert few < many


@settings(max_examples=25, deadline=None)
@given(st.floats(0.02, 0.3), st.integers(10, 1000), st.integers(1, 20), purposes)
def test_size_and_certificate_invert_each_other(tolerance, queries, budget, purpose):
    facts = {"queries": queries, "budget": budget, "purpose": purpose}
    size = th.required_holdout_size(tolerance=tolerance, **facts)
    assert th.certificate(size=size, **facts).tolerance <= tolerance
    assert th.certificate(size=size - 1, **facts).tolerance > tolerance
    # And back: the tolerance of a size needs that size, but for the grid's steps.
    again = th.required_holdout_size(
        tolerance=th.certificate(size=size, **facts).tolerance, **facts
    )
    assert again == pytest.approx(size, rel=0.01)


@settings(max_examples=25, deadline=None)
@given(sizes, st.floats(0.02, 0.5), st.integers(1, 20), purposes)
def test_queries_and_certificate_invert_each_other(size, tolerance, budget, purpose):
    facts = {"size": size, "budget": budget, "purpose": purpose}
    found = th.max_queries(tolerance=tolerance, **facts)
    if found:
        assert th.certificate(queries=found, **facts).tolerance <= tolerance
    if found < 10**9:
        assert th.certificate(queries=found + 1, **facts).tolerance > tolerance


@settings(max_examples=25, deadline=None)
@given(sizes, st.integers(1, 500), st.floats(0.02, 0.5), purposes)
def test_a_tolerance_gives_the_largest_budget(size, queries, tolerance, purpose):
    facts = {"size": size, "queries": queries, "purpose": purpose}
    plan = th.plan(tolerance=tolerance, **facts)
    lasting = Setting(size, queries, 0.05, purpose).lasting_budget
    assert plan.budget >= lasting
    if plan.useful:
        assert plan.refusal is None
        assert plan.certificate.tolerance <= tolerance
        if plan.budget < queries:
            larger = th.certificate(budget=plan.budget + 1, **facts).tolerance
            assert larger > tolerance
    else:
        assert plan.budget == lasting
        assert plan.refusal in plan.explanation
        assert "runs=1" in plan.refusal
        assert "examples" in plan.refusal


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([100, 1000, 10_000]), st.integers(1, 120), st.integers(1, 150), purposes)
def test_no_way_to_spend_the_budget_is_worse_than_the_plan(size, queries, budget, purpose):
    """Every number of releases at the last planned query, by the account's own formula."""
    plan = th.plan(size=size, queries=queries, budget=budget, purpose=purpose)
    ladder = purpose != "curve"
    channel = Channel(
        units=size,
        resolution=65536,
        grid=plan.grid,
        sigma=plan.mechanism.sigma,
        threshold=plan.mechanism.step if ladder else plan.mechanism.threshold,
        rule="improvement" if ladder else "both",
    )
    for releases in range(1, min(budget, queries) + 1):
        facts = Transcript(
            queries=queries,
            releases=releases,
            last_release=queries,
            budget=budget,
            rounds=budget,
            planned=queries,
        )
        found = certify_transcript(facts, {"x": channel}, 0.05)
        assert found.tolerance <= plan.certificate.tolerance + 1e-12
        assert found.guess_tolerance <= plan.certificate.guess_tolerance + 1e-12


class TestPlan:
    def test_the_issues_example(self):
        plan = th.plan(size=10_000, queries=200, budget=20)
        assert plan.mechanism == th.Ladder(step=0.005)
        assert plan.certificate.tolerance == pytest.approx(0.0824, abs=0.0001)
        assert plan.epsilon == math.inf
        assert (plan.patience, plan.min_delta) == (50, pytest.approx(0.5 / 200))
        assert plan.useful
        assert "Budget: 20 releases" in str(plan)
        assert "Showing decisions instead (runs=1, queries=200) would certify +-0.0214" in str(plan)

    def test_purposes(self):
        error = 1 / (2 * math.sqrt(10_000))
        curve = th.plan(size=10_000, queries=200, budget=20, purpose="curve").mechanism
        assert curve == th.Thresholdout(threshold=2 * error, sigma=0, guess="last")
        search = th.plan(size=10_000, queries=200, budget=20, purpose="search").mechanism
        assert search == th.Ladder(step=error)

    def test_theory_s_cost_of_noise(self):
        """n = 1e4, T = 4u, m = 200: 0.36 per release."""
        sigma = 4 * 0.005 / (6 * math.log(400))
        assert 2 / (sigma * 10_000) == pytest.approx(0.36, abs=0.005)

    def test_finds_a_size(self):
        plan = th.plan(queries=200, budget=20, tolerance=0.05)
        assert plan.size == th.required_holdout_size(tolerance=0.05, queries=200, budget=20)
        assert plan.useful

    def test_finds_a_size_for_a_budget_that_lasts(self):
        plan = th.plan(queries=200, tolerance=0.05)
        assert plan.useful
        assert plan.budget == lasting_budget(200, plan.mechanism.step) == 23
        smaller = th.plan(size=plan.size - 1, queries=200, tolerance=0.05)
        assert not smaller.useful

    def test_a_tolerance_buys_no_budget_that_a_steep_start_spends(self):
        """Once three, four and four releases, gone after as many epochs."""
        for size, tolerance in ((500, 0.2), (2000, 0.1), (10_000, 0.05)):
            plan = th.plan(size=size, queries=200, tolerance=tolerance)
            assert (plan.budget, plan.useful) == (lasting_budget(200, plan.mechanism.step), False)
            assert "Showing decisions instead (runs=1, queries=200) would certify" in plan.refusal
        assert "It would take 32,553 examples for 0.05" in plan.refusal

    def test_a_budget_that_a_steep_start_spends_comes_with_a_way_out(self):
        plan = th.plan(size=10_000, queries=200, budget=10)
        assert "took up to 20 releases" in str(plan)
        assert "Validate every 3rd time only, and plan for queries=67" in str(plan)
        assert "steep" not in str(th.plan(size=10_000, queries=67, budget=10))
        assert "may end early" in str(th.plan(size=500, queries=50, budget=2, purpose="search"))

    def test_says_when_nothing_useful_can_be_certified_and_what_would_help(self):
        plan = th.plan(size=150, queries=200, budget=20)
        assert not plan.useful
        assert "Nothing useful can be certified" in plan.explanation
        assert "It would take" in plan.explanation
        assert "vault" in plan.explanation

    def test_says_when_the_tolerance_is_not_reached(self):
        plan = th.plan(size=1000, queries=200, budget=20, tolerance=0.05)
        assert not plan.useful
        assert "The wanted tolerance of 0.05 is not reached" in plan.explanation

    def test_no_noise_where_epsilon_would_protect_nobody(self):
        open_plan = th.plan(size=1000, queries=200, budget=20)
        assert (open_plan.mechanism.sigma, open_plan.epsilon) == (0, math.inf)
        assert "Privacy: none, epsilon is infinite." in str(open_plan)
        facts = {"size": 10**6, "queries": 200, "budget": 5, "purpose": "curve"}
        private, pure = th.plan(delta=1e-6, **facts), th.plan(**facts)
        assert "at delta 1e-06" in str(private)
        assert private.epsilon < pure.epsilon <= 10
        assert pure.epsilon == pytest.approx(5 * 2 / (10**6 * pure.mechanism.sigma))

    def test_noise_goes_where_epsilon_passes_ten(self):
        """The largest budget with noise, and the one after it."""
        facts = {"size": 100_000, "queries": 200}
        budget = max(b for b in range(1, 60) if th.plan(budget=b, **facts).epsilon < math.inf)
        assert 9 < th.plan(budget=budget, **facts).epsilon <= 10
        assert th.plan(budget=budget + 1, **facts).mechanism.sigma == 0
        # The largest budget of a tolerance is found on either side of it.
        for wanted in (budget - 1, budget, budget + 1, budget + 5):
            tolerance = th.certificate(budget=wanted, **facts).tolerance
            assert Setting(100_000, 200, 0.05, "early-stopping").largest_budget(tolerance) >= wanted

    def test_other_mechanisms_can_be_certified(self):
        noisy = th.Ladder(step=0.005, sigma=0.0001)
        facts = {"size": 10_000, "queries": 200, "budget": 20}
        assert (
            th.certificate(mechanism=noisy, **facts).tolerance > th.certificate(**facts).tolerance
        )
        quiet = th.Ladder(step=0.01)
        fine, coarse = (
            th.certificate(mechanism=quiet, grid=grid, **facts).tolerance for grid in (400, 100)
        )
        assert coarse < fine

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"size": 0}, "whole number from 1"),
            ({"size": -5}, "whole number from 1"),
            ({"size": 1.5}, "whole number from 1"),
            ({"queries": 0}, "whole number from 1"),
            ({"budget": -1}, "whole number from 1"),
            ({"failure": 0}, "between 0 and 1"),
            ({"failure": 1.0}, "between 0 and 1"),
            ({"failure": float("nan")}, "between 0 and 1"),
            ({"tolerance": 1.5}, "at most 1"),
            ({"tolerance": 0}, "above 0"),
            ({"tolerance": float("nan")}, "above 0"),
            ({"purpose": "fun"}, "'early-stopping' or 'curve' or 'search'"),
            ({"delta": 0.0}, "between 0 and 1"),
            ({"statistics": 0}, "whole number from 1"),
            ({"size": None}, "`tolerance` to find the size for"),
        ],
        ids=str,
    )
    def test_bad_arguments(self, change, expected):
        with pytest.raises(ValueError, match="Expected") as caught:
            th.plan(**{"size": 1000, "queries": 100, "budget": 5, **change})
        assert isinstance(caught.value, InvalidArgumentError)
        assert expected in str(caught.value)

    @pytest.mark.parametrize(
        "change",
        [
            {"queries": np.int64(200), "size": np.int64(10_000), "budget": np.int64(20)},
            {"failure": Fraction(1, 20), "delta": Fraction(1, 10**6)},
            {"failure": np.float32(0.05), "delta": np.float32(1e-6)},
        ],
        ids=str,
    )
    def test_other_kinds_of_numbers_are_the_same_numbers(self, change, tmp_path):
        plain = {"size": 10_000, "queries": 200, "budget": 20, "delta": 1e-6}
        found, expected = th.plan(**{**plain, **change}), th.plan(**plain)
        assert found.certificate.tolerance == pytest.approx(expected.certificate.tolerance, 1e-6)
        assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-4)
        assert type(found.queries) is int
        holdout = th.ReusableHoldout(
            f"sqlite:///{tmp_path}/holdout.db",
            name="val",
            statistics={"val_acc": th.ZeroOne()},
            plan=found,
        )
        assert holdout.status().budget == 20

    @pytest.mark.parametrize("value", [np.int8(20), np.int16(20), np.int32(20), np.uint8(20)])
    def test_narrow_numbers_do_not_overflow(self, value):
        for name in ("queries", "budget", "size"):
            facts = {"size": 100, "queries": 50, "budget": 5}
            found = th.certificate(**{**facts, name: value})
            assert found == th.certificate(**{**facts, name: 20})
        assert hoeffding(value, 0.05) == hoeffding(20, 0.05)

    def test_a_wanted_tolerance_nobody_can_reach_is_advice_not_an_error(self):
        assert "No number of examples" in str(th.plan(size=1000, queries=200, tolerance=1e-9))

    def test_confidence_is_never_rounded_up_to_certainty(self):
        for way in ({"budget": 20}, {"runs": 3}):
            made = th.plan(size=10_000, queries=200, failure=1e-7, **way)
            assert "99.99999 % confidence" in str(made)
        with pytest.raises(InvalidArgumentError, match="at least 1e-100"):
            th.plan(size=10_000, queries=200, failure=1e-320)

    def test_none_is_no_number(self):
        for call in (th.required_holdout_size, th.max_queries):
            for missing in ("tolerance", "budget"):
                facts = {"tolerance": 0.1, "budget": 5, missing: None}
                facts |= {"queries": 50} if call is th.required_holdout_size else {"size": 500}
                with pytest.raises(InvalidArgumentError, match=missing):
                    call(**facts)

    def test_an_unreachable_tolerance(self):
        with pytest.raises(InvalidArgumentError, match="some holdout can reach"):
            th.required_holdout_size(tolerance=1e-9, queries=10, budget=1)


class TestHoldoutFromAPlan:
    def holdout(self, plan, url="memory://", **changes):
        return make_holdout(url, plan=plan, **changes)

    def test_takes_everything_from_the_plan(self):
        plan = th.plan(size=50, queries=10, budget=3)
        holdout = self.holdout(plan)
        assert (holdout.size, holdout.budget, holdout.mechanism) == (50, 3, plan.mechanism)
        assert holdout.status().statistics["val_acc"]["grid"] == plan.grid

    @pytest.mark.parametrize("statistics", [1, 2])
    def test_the_account_says_in_the_end_what_the_plan_said(self, statistics):
        plan = th.plan(size=50, queries=10, budget=5, statistics=statistics)
        names = ["val_acc", "other"][:statistics]
        holdout = self.holdout(plan, statistics={name: th.ZeroOne() for name in names}, seed=1)
        planned = plan.certificate.tolerance
        assert holdout.certificate().tolerance < planned
        # Half of them each: the last of ten queries is the fifth release.
        for k in range(5):
            ask(holdout, 5, f"worse {k}")
        for k in range(5):
            ask(holdout, 10 * (k + 1), f"better {k}")
        found = holdout.certificate()
        assert found.theorem == plan.certificate.theorem
        if holdout.status().releases == 5 and holdout.status().queries == 10:
            assert found.tolerance == pytest.approx(planned)
        else:
            assert found.tolerance <= planned

    def test_copies_and_reopened_holdouts_keep_the_plan(self, tmp_path):
        import pickle

        plan = th.plan(size=50, queries=10, budget=3)
        url = f"sqlite:///{tmp_path}/holdout.db"
        holdout = self.holdout(plan, url)
        ask(holdout, 20, "first")
        copy = pickle.loads(pickle.dumps(holdout))
        assert copy.certificate() == holdout.certificate()
        assert self.holdout(plan, url).certificate() == holdout.certificate()

    def test_another_plan_is_another_holdout(self, tmp_path):
        url = f"sqlite:///{tmp_path}/holdout.db"
        given = th.plan(size=50, queries=10, budget=3)
        ask(self.holdout(given, url), 20, "first")
        other = th.plan(size=50, queries=11, budget=3)
        with pytest.raises(th.HoldoutMismatchError, match="planned: stored 10, given 11"):
            self.holdout(other, url).status()
        with pytest.raises(th.HoldoutMismatchError, match="planned"):
            make_holdout(
                url, size=50, budget=3, mechanism=given.mechanism, grid=given.grid
            ).status()

    def test_contradictions_are_refused(self):
        plan = th.plan(size=50, queries=10, budget=3)
        with pytest.raises(InvalidArgumentError, match="`budget` to come from the plan"):
            self.holdout(plan, budget=4)
        assert self.holdout(plan, size=50).size == 50
        for odd in (True, np.array([50, 51]), "50"):
            with pytest.raises(InvalidArgumentError, match="`size` to come from the plan"):
                self.holdout(plan, size=odd)
        with pytest.raises(InvalidArgumentError, match="Plan"):
            self.holdout({"size": 50})

    def test_without_a_plan_the_parameters_are_needed(self):
        with pytest.raises(InvalidArgumentError, match=r"`mechanism`, or plan="):
            self.holdout(None, size=50, budget=3)


class TestIntervals:
    def test_one_for_each_answer(self):
        holdout = make_holdout(seed=3, budget=5)
        first = ask(holdout, 20, "a")
        again = ask(holdout, 20, "b")
        far = ask(holdout, 45, "c")
        assert [first.kind, again.kind, far.kind] == ["release", "guess", "release"]
        found = holdout.intervals()
        assert [i.kind for i in found] == ["release", "guess", "release"]
        assert [i.position for i in found] == [1, 2, 3]
        assert holdout.interval(far) == found[2]
        assert 0.9 in holdout.interval(far)
        assert holdout.interval(ask(holdout, 45, "c")) == found[2]  # a repeat is the same answer
        wide = holdout.interval(far, failure=1e-6)
        assert wide.low < found[2].low

    def test_releases_are_inside_the_certificate(self):
        holdout = make_holdout(seed=3, budget=5, size=50)
        for k, count in enumerate([10, 30, 50, 5]):
            ask(holdout, count, str(k))
        claim = holdout.certificate()
        for interval in holdout.intervals():
            if interval.kind == "release":
                assert interval.low >= interval.value - claim.tolerance - 1e-9
                assert interval.high <= interval.value + claim.tolerance + 1e-9

    def test_exhausted_answers_have_none(self):
        holdout = make_holdout(seed=3, budget=1)
        ask(holdout, 20, "a")
        gone = ask(holdout, 45, "b")
        assert gone.kind == "exhausted"
        with pytest.raises(InvalidArgumentError, match="certify nothing"):
            holdout.interval(gone)

    def test_an_answer_of_another_account_or_statistic_has_none(self):
        """The same value at the same position of both: only the answer itself can tell."""
        wide = {"loss": th.BoundedMean(0.0, 64.0), "other": th.BoundedMean(0.0, 64.0)}
        exact = th.Ladder(step=0.0)
        holdout = make_holdout(name="wide", mechanism=exact, statistics=wide, grid=64)
        sums = {name: sums_of(holdout, torch.ones(50), name) for name in wide}
        own = holdout.release_all(sums, query="a")
        foreign = ask(make_holdout(mechanism=exact), 50, "a")
        assert (foreign.value, foreign.position) == (own["loss"].value, own["loss"].position)
        with pytest.raises(InvalidArgumentError, match="given by another account"):
            holdout.interval(foreign)
        mixed = replace(own["loss"], statistic="other")
        with pytest.raises(InvalidArgumentError, match=r"of statistic 'loss'.* is of 'other'"):
            holdout.interval(mixed)
        for position in (None, 0, 3, 2**70, "1"):
            with pytest.raises(InvalidArgumentError, match="in this holdout's ledger"):
                holdout.interval(replace(own["loss"], position=position))
        assert holdout.interval(own["other"]) == holdout.intervals()[1]

    def test_an_answer_without_its_account_is_found_by_position_and_value(self):
        """As version 0.1.0 pickled them: the fields that came later are missing."""
        holdout = make_holdout(seed=3, budget=5)
        answer = ask(holdout, 20, "a")
        state = {k: v for k, v in vars(answer).items() if k not in ("account", "statistic")}
        old = object.__new__(th.Answer)
        old.__dict__.update(state)
        assert (old.account, old.statistic, old) == (None, None, answer)
        assert holdout.interval(old) == holdout.interval(answer)
        assert pickle.loads(pickle.dumps(answer)).account == holdout.account

    def test_one_interval_is_that_of_all_and_reads_one_row(self, monkeypatch):
        """Four statistics of two units values: releases before are counted over all of them."""
        names = {f"s{k}": th.ZeroOne() for k in range(3)} | {"b": th.BoundedMean(0.0, 2.0)}
        holdout = make_holdout(seed=3, budget=60, statistics=names)
        answers = [
            holdout.release(name, sums_of(holdout, correct(k, 50), name), query=str(k))
            for k in range(0, 50, 5)
            for name in names
        ]
        every = holdout.intervals()
        assert len({answer.kind for answer in answers}) == 2
        monkeypatch.setattr(Ledger, "answers", None)  # all rows: not to be read
        assert [holdout.interval(answer) for answer in answers] == every

    def test_a_mechanism_without_a_certificate_gets_none(self):
        class Silent(Mechanism):
            def identity(self):
                return {"kind": "silent"}

            def guess_for(self, statistic, last, given):
                return None

            def epsilon_per_step(self, units):
                return 1.0

            def decide(self, query):
                raise NotImplementedError

        holdout = make_holdout(mechanism=Silent())
        with pytest.raises(th.HoldoutError, match="No certificate is known for Silent"):
            holdout.certificate()
