"""The Ladder through the door."""

import pytest
import torch_holdout as th
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import mechanism_of

from support.builders.holdouts import ask, make_holdout


def ladder(mode="max", size=50, **changes):
    return make_holdout(
        statistics={"val_acc": th.BoundedMean(0.0, 1.0, mode=mode)},
        mechanism=th.Ladder(**{"step": 0.1, **changes.pop("rule", {})}),
        size=size,
        grid=50,
        **changes,
    )


def test_publishes_only_improvements():
    holdout = ladder(budget=10)
    asked = [20, 22, 26, 30, 32, 10, 36, 36]
    answers = [ask(holdout, count, f"epoch {k}") for k, count in enumerate(asked)]
    assert [a.value for a in answers] == [0.4, 0.4, 0.52, 0.52, 0.64, 0.64, 0.64, 0.64]
    kinds = ["release", "guess", "release", "guess", "release", "guess", "guess", "guess"]
    assert [a.kind for a in answers] == kinds
    assert holdout.status().releases == 3


@pytest.mark.parametrize(("mode", "asked"), [("max", [20, 26, 30, 45]), ("min", [30, 26, 18, 5])])
def test_a_baseline_is_beaten_first(mode, asked):
    """Nothing is told, and nothing is spent, before the first model is better by a step."""
    bar = 0.53 if mode == "max" else 0.47
    holdout = ladder(mode=mode, budget=2, rule={"baseline": {"val_acc": bar}})
    answers = [ask(holdout, count, f"epoch {k}") for k, count in enumerate(asked)]
    assert [a.kind for a in answers] == ["guess", "guess", "guess" if mode == "max" else "release",
                                         "release"]  # fmt: skip
    assert answers[0].value == answers[1].value == bar
    assert holdout.certificate().releases == holdout.status().releases
    assert "[" not in str(answers[0])


def test_a_statistic_without_a_baseline_has_its_first_query_released():
    statistics = {"val_acc": th.ZeroOne(), "other": th.ZeroOne()}
    rule = th.Ladder(step=0.1, baseline={"other": 0.5})
    holdout = make_holdout(statistics=statistics, mechanism=rule)
    right = [True] * 20 + [False] * 30
    told = holdout.ask({"val_acc": right, "other": right}, query="a")
    assert [answer.kind for answer in told.values()] == ["release", "guess"]


def test_a_ladder_with_a_baseline_is_charged_for_its_first_comparison():
    rule = {"step": 0.1, "sigma": 0.001, "baseline": {"val_acc": 0.5}}
    holdout = ladder(budget=10, rule=rule, seed=1)
    a = 1 / (50 * 0.001)
    assert ask(holdout, 20, "first").kind == "guess"
    assert holdout.status().epsilon_spent == pytest.approx(a)
    assert ask(holdout, 45, "second").kind == "release"
    assert holdout.status().epsilon_spent == pytest.approx(2 * a)


def test_without_a_baseline_a_ladder_is_registered_as_it_was():
    """Accounts of ledgers that knew no baseline are opened by the same words."""
    assert th.Ladder(step=0.1).identity() == {"kind": "ladder", "step": 0.1, "sigma": 0.0}
    assert th.Ladder(step=0.1, baseline={}) == th.Ladder(step=0.1)
    assert repr(th.Ladder(step=0.1)) == "Ladder(step=0.1, sigma=0.0)"
    beaten = th.Ladder(step=0.1, baseline={"x": 1})
    assert hash(beaten) == hash(th.Ladder(step=0.1, baseline={"x": 1.0}))
    assert beaten != th.Ladder(step=0.1)


def test_a_baseline_lies_within_the_bounds_of_a_registered_statistic():
    for baseline in ({"val_acc": 1.5}, {"other": 0.5}):
        with pytest.raises(InvalidArgumentError):
            ladder(rule={"baseline": baseline})
    for baseline in (0.5, {"val_acc": "x"}, {"val_acc": float("nan")}, {5: 0.5}):
        with pytest.raises(InvalidArgumentError):
            th.Ladder(step=0.1, baseline=baseline)


def test_lower_is_better_for_losses():
    holdout = ladder(mode="min", budget=10)
    answers = [ask(holdout, count, f"epoch {k}") for k, count in enumerate([40, 45, 34, 30, 28])]
    assert [a.value for a in answers] == [0.8, 0.8, 0.68, 0.68, 0.56]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=25),
    st.sampled_from(["min", "max"]),
    st.sampled_from([None, 0.47, 0.5]),
)
def test_published_values_never_get_worse(counts, mode, baseline):
    """Also with so much noise that comparisons fire alone; the budget is kept."""
    rule = {"step": 0.0, "sigma": 0.2, "baseline": baseline and {"val_acc": baseline}}
    holdout = ladder(mode=mode, budget=8, seed=3, rule=rule)
    values = [] if baseline is None else [baseline]
    for k, count in enumerate(counts):
        answer = ask(holdout, count, f"epoch {k}")
        if answer.kind != "exhausted":
            values.append(answer.value)
    assert values == sorted(values, reverse=mode == "min")
    assert holdout.status().releases <= 8


def test_charges():
    """The first release costs a; a round a when it opens and a for its answer."""
    holdout = ladder(budget=10, rule={"step": 0.1, "sigma": 0.001}, seed=1)
    a = 1 / (50 * 0.001)
    ask(holdout, 20, "first")
    assert holdout.status().epsilon_spent == pytest.approx(a)
    ask(holdout, 21, "second")
    assert holdout.status().epsilon_spent == pytest.approx(2 * a)
    assert ask(holdout, 40, "third").kind == "release"
    assert holdout.status().epsilon_spent == pytest.approx(3 * a)
    assert holdout.status().epsilon == pytest.approx(20 * a)


def test_cannot_be_asked_again():
    holdout = ladder()
    ask(holdout, 20, "first")
    with pytest.raises(InvalidArgumentError, match="only improvements"):
        ask(holdout, 20, "first", fresh=True)
    assert holdout.status().releases == 1
    assert ask(holdout, 20, "first").kind == "repeat"


def test_statistics_are_fixed_before_the_first_query(tmp_path):
    """Its certificate counts sequences over all statistics; a later one would break the count."""
    url = f"sqlite:///{tmp_path}/holdout.db"
    rule = {"mechanism": th.Ladder(step=0.1), "grid": 50}
    one, two = {"val_acc": th.ZeroOne()}, {"val_acc": th.ZeroOne(), "other": th.ZeroOne()}
    make_holdout(url, statistics=one, **rule).status()
    holdout = make_holdout(url, statistics=two, **rule)
    ask(holdout, 20, "first")
    three = two | {"third": th.ZeroOne()}
    with pytest.raises(th.HoldoutMismatchError, match="fixed before its first query"):
        make_holdout(url, statistics=three, **rule).status()
    assert set(holdout.status().statistics) == set(two)


def test_status_shows_the_step():
    assert "step 0.1" in str(ladder().status())


@pytest.mark.parametrize(
    "arguments",
    [{"step": -0.1}, {"step": 1.0}, {"step": float("nan")}, {"step": "x"}, {"step": True}]
    + [{"step": 0.1, "sigma": s} for s in (-1.0, 1e-20, 1e9, float("inf"))],
    ids=str,
)
def test_bad_parameters(arguments):
    with pytest.raises(InvalidArgumentError):
        th.Ladder(**arguments)


def test_known_by_the_ledgers_name():
    for mechanism in (
        th.Ladder(step=0.1, sigma=0.01),
        th.Ladder(step=0.1, baseline={"x": 0.5}),
        th.Thresholdout(threshold=0.1, sigma=0.01, guess="train"),
        th.Thresholdout(threshold=0.1, sigma=0.01, guess="last", initial={"x": 0.5}),
    ):
        assert mechanism_of(mechanism.identity()) == mechanism
    with pytest.raises(th.LedgerError, match="Update torch_holdout"):
        mechanism_of({"kind": "of tomorrow"})
