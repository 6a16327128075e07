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


def test_lower_is_better_for_losses():
    holdout = ladder(mode="min", budget=10)
    answers = [ask(holdout, count, f"epoch {k}") for k, count in enumerate([40, 45, 34, 30, 28])]
    assert [a.value for a in answers] == [0.8, 0.8, 0.68, 0.68, 0.56]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=25), st.sampled_from(["min", "max"]))
def test_published_values_never_get_worse(counts, mode):
    """Also with so much noise that comparisons fire alone; the budget is kept."""
    holdout = ladder(mode=mode, budget=8, seed=3, rule={"step": 0.0, "sigma": 0.2})
    values = []
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
        th.Thresholdout(threshold=0.1, sigma=0.01, guess="train"),
        th.Thresholdout(threshold=0.1, sigma=0.01, guess="last", initial={"x": 0.5}),
    ):
        assert mechanism_of(mechanism.identity()) == mechanism
    with pytest.raises(th.LedgerError, match="Update torch_holdout"):
        mechanism_of({"kind": "of tomorrow"})
