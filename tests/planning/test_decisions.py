"""Plans for sealed runs."""

import math
from dataclasses import replace

import pytest
import torch_holdout as th
from torch_holdout.bounds import hoeffding
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.planning.decisions import sealed_size, sealed_tolerance

from support.builders.holdouts import make_holdout

LEVELS = 0.5 / 65536  # what rounding an example to a level adds


@pytest.mark.parametrize(
    ("size", "evaluations", "runs", "expected"),
    [
        (10_000, 50, 1, 0.019692),
        (10_000, 200, 1, 0.021381),
        (50_000, 300, 1, 0.009772),
        (10_000, 200, 10, 0.023514),
    ],
)
def test_the_numbers_of_the_theorem(size, evaluations, runs, expected):
    plan = th.plan(size=size, queries=evaluations, runs=runs)
    assert plan.mechanism == th.Sealed(evaluations=evaluations)
    assert (plan.budget, plan.unit, plan.epsilon) == (runs, "run", math.inf)
    # Run 10 of 10 is the worst; the first has a larger share.
    last = 0.0 if runs == 1 else math.log((0.09 + 0.05) / (0.09 + 0.1 / 110)) / 2e4
    tolerance = math.sqrt(expected**2 + last) + LEVELS
    assert plan.certificate.tolerance == pytest.approx(tolerance, abs=2e-6)


def test_widths_over_one_fresh_query():
    fresh = hoeffding(10_000, 0.05)
    facts = {"size": 10_000, "queries": 200}
    for runs, statistics, ratio in ((1, 1, 1.6), (1, 2, 1.64), (20, 1, 2.05), (20, 2, 2.1)):
        plan = th.plan(runs=runs, statistics=statistics, **facts)
        assert plan.certificate.tolerance <= ratio * fresh


def test_without_a_way_it_is_one_run():
    plan = th.plan(size=10_000, queries=200)
    given = th.plan(size=10_000, queries=200, runs=1)
    assert plan == replace(given, arguments=given.arguments | {"runs": None})
    assert (plan.budget, plan.patience, plan.min_delta) == (1, 10, 0.0)
    assert plan.useful


def test_a_plan_says_what_showing_values_would_certify():
    plan = th.plan(size=10_000, queries=200, runs=1)
    shown = th.certificate(size=10_000, queries=200, budget=20).tolerance
    assert shown == pytest.approx(0.0824, abs=5e-5)
    assert "Budget: 1 run of 200 evaluations" in str(plan)
    assert "Showing 20 values instead (budget=20) would certify +-0.0824" in str(plan)
    assert "display" not in str(plan)


def test_several_runs_are_for_a_display_to_stop():
    plan = th.plan(size=10_000, queries=200, runs=20)
    stopped = sealed_tolerance(10_000, 200, 0.05, runs=20, statistics=1, stops=19)
    assert stopped == pytest.approx(0.08, abs=2e-4)
    assert "let a display set (th.split) stop the runs" in str(plan)
    assert "the last run would be within 0.0801" in str(plan)


def test_statistics_cost_their_logarithm_and_it_is_said():
    one, three = (th.plan(size=10_000, queries=200, statistics=k) for k in (1, 3))
    first, second = (2e4 * (p.certificate.tolerance - LEVELS) ** 2 for p in (one, three))
    assert second - first == pytest.approx(math.log(3))
    assert "ln 3 = 1.099 nats" in str(three)
    assert "ln" not in str(one).split()


def test_more_examples_for_a_weak_certificate():
    plan = th.plan(size=100, queries=200)
    assert "The certificate is weak: it is above 0.1." in str(plan)
    needed = sealed_size(0.1, 200, 0.05, runs=1, statistics=1)
    assert f"It would take {needed} examples for 0.1" in str(plan)
    assert th.plan(size=needed, queries=200).certificate.tolerance <= 0.1
    assert th.plan(size=needed - 1, queries=200).certificate.tolerance > 0.1
    assert "Nothing useful" in str(th.plan(size=10, queries=200))


@pytest.mark.parametrize("other", [{"budget": 20}, {"tolerance": 0.1}])
def test_decisions_and_values_are_planned_apart(other):
    with pytest.raises(InvalidArgumentError, match="Expected `runs`"):
        th.plan(size=10_000, queries=200, runs=1, **other)


@pytest.mark.parametrize("runs", [0, -1, 1.5, True, "2"])
def test_runs_are_a_whole_number(runs):
    with pytest.raises(InvalidArgumentError, match="`runs` to be a whole number from 1"):
        th.plan(size=10_000, queries=200, runs=runs)


def test_an_account_of_it_is_the_one_made_by_hand(tmp_path):
    url = f"sqlite:///{tmp_path}/holdout.db"
    planned = make_holdout(url, plan=th.plan(size=50, queries=10, runs=2))
    assert planned.status().budget == 2
    by_hand = make_holdout(url, size=50, budget=2, mechanism=th.Sealed(evaluations=10))
    assert by_hand.account == planned.account
