"""The paragraph for a paper: released and closed values with their intervals, and nothing else."""

import json
import re

import pytest
import torch_holdout as th
from torch_holdout.cli import app
from torch_holdout.ledger import Ledger
from torch_holdout.report import content, summarise
from typer.testing import CliRunner

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import charged_records, several_runs
from support.builders.sealed import sealed_runs

ACC = {"val_acc": th.ZeroOne()}


def card(holdout, failure=0.05):
    return card_at(holdout.address, failure)


def card_at(url, failure=0.05):
    whole = content(summarise(Ledger(url), failure))
    (account,) = (*whole["holdouts"], *whole["records"])
    return account["model_card"]


def live(url, **changes):
    facts = {"size": 1000, "statistics": ACC, "mechanism": th.Ladder(step=0.01), "budget": 5}
    return make_holdout(url, **(facts | changes))


def test_a_release_is_claimed_with_its_interval_and_a_guess_is_not():
    holdout = live("memory://card")
    for query, right in enumerate((800, 805, 850)):
        ask(holdout, right, str(query))
    best = max((i for i in holdout.intervals() if i.kind == "release"), key=lambda i: i.value)
    text = card(holdout)
    assert "A holdout of 1,000 examples" in text
    assert "answered 3 questions: 2 with a released value, of a budget of 5, and 1 by a gue" in text
    assert f"The best of 2 released values of val_acc is {best.value:.2f}" in text
    low, high = map(float, re.search(r"lies between ([\d.]+) and ([\d.]+)\.", text).groups())
    assert low <= best.low < best.high <= high  # rounded outwards
    assert "With 95 % confidence all intervals of released values hold at once" in text
    assert "No privacy is claimed" in text
    for assumption in holdout.certificate().assumptions:
        assert assumption in text
    assert "With 99.9 % confidence" in card(holdout, 0.001)


def test_the_command_prints_it(tmp_path):
    several_runs(f"sqlite:///{tmp_path}/l.db", budget=12)
    printed = CliRunner().invoke(app, ["report", str(tmp_path / "l.db"), "--json"])
    (holdout,) = json.loads(printed.stdout)["holdouts"]
    assert holdout["model_card"] == card_at(f"sqlite:///{tmp_path}/l.db")
    assert "hold at once" in holdout["model_card"]


def test_nothing_is_claimed_before_there_is_a_value():
    holdout = live("memory://fresh-card")
    holdout.status()
    assert "0 with a released value" in card(holdout)
    assert "No value is claimed." in card(holdout)
    assert "lies between" not in card(holdout)


def test_a_sealed_holdout_has_a_value_only_when_it_is_closed():
    holdout, _ = sealed_runs("memory://sealed-card")
    before = card(holdout)
    assert "showed decisions and no value: 29 evaluations in 3 runs" in before
    assert "has not been closed: no value is known, and none is claimed" in before
    assert "lies between" not in before
    closing = holdout.close()
    text = card(holdout)
    best = closing.best
    shown = rf"best of 29 values of val_loss is ([\d.]+) \(run {best.run} '\w+', evaluation 9\)"
    assert float(re.search(shown, text)[1]) == pytest.approx(best.value, abs=0.005)
    assert "all intervals of the holdout's own values hold at once" in text
    assert text.count("lies between") == 2  # val_loss and val_acc


def test_a_closed_private_holdout_claims_no_value_and_states_its_epsilon():
    mechanism = th.Sealed(evaluations=20, epsilon=1.0)
    holdout, _ = sealed_runs("memory://private-card", mechanism=mechanism)
    holdout.close()
    text = card(holdout)
    assert "no exact value was published" in text
    assert "No value is claimed." in text
    assert "cost at most epsilon" in text
    assert "lies between" not in text


@pytest.mark.parametrize("seed", [None, 0])
def test_privacy_is_claimed_with_noise_and_without_a_seed(seed):
    """A twin: the same account with a seed claims none."""
    mechanism = th.Thresholdout(threshold=0.03, sigma=0.01, guess="last")
    holdout = live(f"memory://noise-{seed}", size=2000, mechanism=mechanism, seed=seed)
    ask(holdout, 1000, "a")
    assert ("cost at most epsilon 0.5, replacing one holdout example" in card(holdout)) == (
        seed is None
    )
    assert ("No privacy is claimed" in card(holdout)) == (seed is not None)


def test_an_epsilon_above_ten_is_no_claim():
    mechanism = th.Thresholdout(threshold=0.03, sigma=0.0005, guess="last")
    holdout = live("memory://loud", mechanism=mechanism, budget=10)
    ask(holdout, 500, "a")
    assert 10 < holdout.status().epsilon < 100
    assert "No privacy is claimed" in card(holdout)


def test_what_a_group_is_stands_in_it(tmp_path):
    grouped = th.GroupedMean(0.0, 1.0, mode="max", groups=[i // 5 for i in range(1000)])
    holdout = live(f"sqlite:///{tmp_path}/g.db", statistics={"val_acc": grouped})
    ask(holdout, 900, "a")
    assert "is a mean over 200 groups of the 1,000 rows" in card(holdout)


def test_training_records(tmp_path):
    charged_records(f"sqlite:///{tmp_path}/records.db")
    text = card_at(f"sqlite:///{tmp_path}/records.db")
    assert "99 questions answered" in text
    assert "all answers together cost at most epsilon" in text
    assert "members saw only their part" in text
