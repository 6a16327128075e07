"""Private early stopping: what leaves a run, by exact enumeration; ties, signs and draws."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout._noise.laplace import geometric_error
from torch_holdout._noise.streams import NoiseStream, SeededNoise, fresh_secret
from torch_holdout.accounting import Pure, compose
from torch_holdout.audit.evidence import ScriptedNoise
from torch_holdout.audit.private_runs import RunGame
from torch_holdout.audit.twins import RUN_FAULTS
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import Sealed
from torch_holdout.mechanisms.private_patience import (
    CHOICE_SHARE,
    STOP_SHARE,
    PrivateChoice,
    PrivatePatience,
)

from support.oracles.laws import geometric
from support.oracles.run_laws import RunLaws, largest_loss

EPSILON = 6.0


def by_hand(epsilon=EPSILON, resolution=1, patience=1, **faults):
    """The rule of the specification, from its constants."""
    stop, choice = 0.3 * epsilon, 0.7 * epsilon
    scales = {"threshold": 5.175 * resolution / stop, "comparison": 6.520 * resolution / stop}
    centre = math.floor(2 * scales["comparison"] - scales["threshold"])
    scales["choice"] = 2 * resolution / choice
    return RunLaws(**{"patience": patience, "centre": centre, **scales, **faults})


@pytest.mark.parametrize(
    ("resolution", "patience", "passes", "values"),
    [(1, 1, 4, 12), (1, 1, 5, 6), (1, 2, 4, 12), (1, 2, 5, 6), (2, 1, 3, 14), (2, 2, 4, 5)],
)
def test_a_run_costs_epsilon(resolution, patience, passes, values):
    """The joint law of stop and choice, over all short runs and all their neighbours."""
    rule = by_hand(resolution=resolution, patience=patience)
    loss = largest_loss(rule, values=values, passes=passes, moves=resolution)
    assert 0.75 * EPSILON < loss <= EPSILON
    if (resolution, patience, passes) == (1, 1, 4):
        assert loss > 0.9999 * EPSILON  # not a digit to spare


def test_the_parts_cost_their_shares():
    """Nothing is said of the best evaluation; or nothing is compared."""
    stop = largest_loss(by_hand(times=0), values=12, passes=4, moves=1)
    assert 0.999 * STOP_SHARE * EPSILON < stop <= STOP_SHARE * EPSILON
    choice = largest_loss(by_hand(patience=9), values=12, passes=4, moves=1)
    assert choice == pytest.approx(CHOICE_SHARE * EPSILON)


FAULTS = {
    "threshold redrawn at each evaluation": {"redrawn": True},
    "selection without noise": {"choice": 0},
    "comparison noise halved": {"comparison": 6.520 / (0.3 * EPSILON) / 2},
    "outcome drawn twice": {"times": 2},
}


@pytest.mark.parametrize("fault", RUN_FAULTS)
def test_twins_cost_more_in_the_same_enumeration(fault):
    passes, values = (5, 6) if "redrawn" in fault else (4, 12)
    loss = largest_loss(by_hand(**FAULTS[fault]), values=values, passes=passes, moves=1)
    assert loss > 1.05 * EPSILON
    if fault == "outcome drawn twice":
        assert loss == pytest.approx((STOP_SHARE + 2 * CHOICE_SHARE) * EPSILON, rel=1e-3)


def test_a_redrawn_threshold_costs_more_with_every_pass():
    """Sixty silent passes: the rule's cost stays, the twin's grows."""
    runs = [[20, *[24] * 60], [21, *[23] * 60]]

    def silence(rule):
        outcomes, law = rule.law(runs)
        silent = [place for place, (ended, _) in enumerate(outcomes) if ended is None]
        first, second = law[:, silent].sum(axis=1)
        return abs(math.log(first / second))

    assert silence(by_hand()) == pytest.approx(2 / by_hand().threshold, rel=1e-9)  # met exactly
    assert silence(by_hand(redrawn=True)) > 2 * EPSILON


def test_the_constants_are_the_best_split_rounded_up():
    """Costs 2/b1 + 4/b2 of 1 at the least variance b1^2 + b2^2."""
    assert 0.9999 < 2 / 5.175 + 4 / 6.520 <= 1
    exact = 2 * (1 + 2 ** (2 / 3)), 4 * (1 + 2 ** (-2 / 3))
    assert exact == pytest.approx((5.175, 6.520), abs=5e-4)
    rule = PrivatePatience(epsilon=0.5, resolution=2**16)
    for scale, factor in ((rule.threshold_scale, 5.175), (rule.comparison_scale, 6.520)):
        assert scale == pytest.approx(factor * 2**16 / 0.15)
    assert rule.choice.scale == pytest.approx(2 * 2**16 / 0.35)


SUMS = ((5, 11, 3, 0), (0, 0, 0, 0), (3, 9, 4, 4, 8))


@pytest.mark.parametrize("fault", ["", *RUN_FAULTS])
@pytest.mark.parametrize("totals", SUMS)
def test_the_rules_own_code_has_that_law(totals, fault):
    """The audit runs the rule over every noise it can draw: the law is the one by hand."""
    for patience in (1, 2):
        rule = PrivatePatience(epsilon=EPSILON, resolution=1, patience=patience)
        found = RunGame(rule, totals, fault).law()
        oracle = by_hand(patience=patience, **(FAULTS[fault] if fault else {}))
        outcomes, (chances,) = oracle.law([totals])
        assert math.fsum(found.values()) == pytest.approx(1, abs=1e-8)
        for outcome, chance in zip(outcomes, chances, strict=True):
            assert found.get(outcome, 0.0) == pytest.approx(chance, abs=1e-8)


def test_signs_and_min_delta_in_the_law():
    rule = PrivatePatience(epsilon=EPSILON, resolution=1, patience=1, mode="max", min_delta=2)
    found = RunGame(rule, (5, -1, 7, 10)).law()
    oracle = by_hand()
    oracle.centre -= 2
    outcomes, (chances,) = oracle.law([(-5, 1, -7, -10)])
    for outcome, chance in zip(outcomes, chances, strict=True):
        assert found.get(outcome, 0.0) == pytest.approx(chance, abs=1e-8)


def test_stop_and_choice_are_independent_given_the_sums():
    """Threshold, comparison and both evaluations' noise at once: the joint law is the product."""
    rule = PrivatePatience(epsilon=40.0, resolution=1, patience=1)
    totals, law = (1, 1), {}
    scales = (rule.threshold_scale, rule.comparison_scale, rule.choice.scale, rule.choice.scale)
    laws = [list(geometric(scale, reach=25).items()) for scale in scales]
    for a, p in laws[0]:
        threshold = rule.draw_threshold(ScriptedNoise([a]))
        for b, q in laws[1]:
            stops = rule.stops(totals, threshold, ScriptedNoise([b]))
            for c, r in laws[2]:
                first = rule.choice.keep(1, 1, None, ScriptedNoise([c]))
                for d, s in laws[3]:
                    best = rule.choice.keep(1, 2, first, ScriptedNoise([d]))
                    outcome = (2 if stops else None, (best[1],))
                    law[outcome] = law.get(outcome, 0.0) + p * q * r * s
    expected = RunGame(rule, totals).law()
    assert law == pytest.approx(expected, abs=1e-8)


def test_ties_are_strict_and_the_first_wins():
    rule = PrivatePatience(epsilon=1.0, resolution=1, patience=1)
    threshold = rule.draw_threshold(ScriptedNoise([0]))
    assert threshold == math.floor(2 * rule.comparison_scale - rule.threshold_scale)
    assert not rule.stops([4, 4], threshold, ScriptedNoise([threshold]))
    assert rule.stops([4, 4], threshold, ScriptedNoise([threshold + 1]))
    assert rule.stops([4, 5], threshold, ScriptedNoise([threshold]))
    kept = rule.choice.keep(10, 1, None, ScriptedNoise([2]))
    assert kept == (8, 1)
    assert rule.choice.keep(9, 2, kept, ScriptedNoise([1])) == (8, 1)
    assert rule.choice.keep(9, 3, kept, ScriptedNoise([2])) == (7, 3)


def test_the_state_survives_json():
    rule = PrivatePatience(epsilon=1.0, resolution=2**16, patience=1)
    state = {"threshold": None, "kept": None}
    stream = SeededNoise(3).stream("json")
    for number, total in enumerate((10**9, 3 * 10**8, 10**12), start=1):
        if state["threshold"] is None and rule.compares(number):
            state["threshold"] = rule.draw_threshold(stream)
        state["kept"] = rule.choice.keep(total, number, state["kept"], stream)
        assert json.loads(json.dumps(state)) == {**state, "kept": list(state["kept"])}
        state = json.loads(json.dumps(state))
    assert state["kept"][1] == 2
    assert rule.stops([10**9, 3 * 10**8, 10**12], state["threshold"], stream)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 99))
def test_the_largest_and_the_smallest_are_mirror_images(totals, patience, seed):
    found = []
    for mode, sign in (("min", 1), ("max", -1)):
        rule = PrivatePatience(epsilon=3.0, resolution=1, patience=patience, mode=mode)
        stream, kept, threshold = SeededNoise(seed).stream("mirror"), None, None
        signed, stops = [sign * total for total in totals], []
        for number in range(1, len(totals) + 1):
            kept = rule.choice.keep(signed[number - 1], number, kept, stream)
            if rule.compares(number) and threshold is None:
                threshold = rule.draw_threshold(stream)
            stops.append(rule.stops(signed[:number], threshold, stream))
        found.append((kept, stops))
    assert found[0] == found[1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=15), st.integers(1, 4))
def test_without_noise_it_is_the_window_rule(totals, patience):
    """Of an epsilon so large that all draws are 0: stop once the last passes are all worse."""
    rule = PrivatePatience(epsilon=1e5, resolution=1, patience=patience)
    stream, kept = SeededNoise(1).stream("window"), None
    threshold = rule.draw_threshold(stream)
    for number, total in enumerate(totals, start=1):
        kept = rule.choice.keep(total, number, kept, stream)
        before, last = totals[: max(0, number - patience)], totals[:number][-patience:]
        expected = bool(before) and min(last) > min(before)
        assert rule.stops(totals[:number], threshold, stream) == expected
    assert kept == (min(totals), 1 + totals.index(min(totals)))


def test_every_pass_does_the_same_work():
    """The bytes read depend on the number of the pass only, not on sums or outcomes."""
    reads = []

    def read(size):
        reads.append(size)
        return fresh_secret(size)

    rule, stream = PrivatePatience(epsilon=1.0, resolution=2**16, patience=3), NoiseStream(read)
    threshold = rule.draw_threshold(stream)
    for totals in ([0] * 8, list(range(0, 8 * 10**7, 10**7)), [10**7] * 7 + [0]):
        passes = []
        for number in range(1, 9):
            reads.clear()
            rule.stops(totals[:number], threshold, stream)
            passes.append(list(reads))
        assert passes[:3] == [[]] * 3
        assert all(one == passes[3] != [] for one in passes[3:])
    reads.clear()
    kept = (-(10**9), 1)
    for total in (0, -(10**10), 10**10):
        rule.choice.keep(total, 2, kept, stream)
    assert len(reads) == 3
    assert len(set(reads)) == 1


def test_a_comparison_without_the_runs_threshold_is_refused():
    rule = PrivatePatience(epsilon=1.0, resolution=1, patience=1)
    assert not rule.stops([987654], None, SeededNoise(1).stream())
    with pytest.raises(InvalidArgumentError, match="threshold") as refused:
        rule.stops([987654, 987655], None, SeededNoise(1).stream())
    assert "98765" not in str(refused.value)


def test_charges_add_up():
    rule = Sealed(evaluations=10, epsilon=0.5)
    assert rule.budget_charges({7}, 1) == [Pure(0.5)]
    assert compose(rule.budget_charges({7}, 4)).epsilon == 2.0


def test_the_samplers_error_counts_every_draw():
    rule = PrivatePatience(epsilon=1.0, resolution=2**16, patience=20)
    scales = (rule.threshold_scale, rule.comparison_scale, rule.choice.scale)
    each = [geometric_error(scale) for scale in scales]
    assert rule.sampler_error(20) == pytest.approx(each[0] + 20 * each[2])
    assert rule.sampler_error(200) == pytest.approx(each[0] + 180 * each[1] + 200 * each[2])


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"resolution": 0},
        {"mode": "best"},
        {"patience": 0},
        {"min_delta": -1},
        {"min_delta": 0.5},
    ],
)
def test_bad_parameters_are_refused(change):
    (name,) = change
    with pytest.raises(InvalidArgumentError, match=name):
        PrivatePatience(**{"epsilon": 1.0, "resolution": 1, **change})
    if name in ("epsilon", "resolution", "mode"):
        with pytest.raises(InvalidArgumentError, match=name):
            PrivateChoice(**{"epsilon": 1.0, "resolution": 1, **change})
