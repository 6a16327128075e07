"""What a Ray trial reports, without a cluster."""

import math

import pytest
import torch_holdout as th
from torch_holdout.errors import InvalidArgumentError, PartialPassError
from torch_holdout.holdout.results import Answer
from torch_holdout.tuning import ray as tuning

from support.builders.guarded import guard_class
from support.builders.holdouts import ask, make_holdout

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def told(monkeypatch, tmp_path):
    """What Tune is told."""
    found = []

    class Context:
        def get_trial_dir(self):
            return str(tmp_path)

        def get_trial_name(self):
            return "train_1"

    monkeypatch.setattr(tuning.tune, "report", lambda told, checkpoint=None: found.append(told))
    monkeypatch.setattr(tuning.tune, "get_context", Context)
    return found


def trial_of(body, tmp_path, **changes):
    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", **changes)
    tuning.sharing(lambda config, holdout: body(holdout), account)({})
    return account


def test_a_release_and_a_near_guess_are_told(told, tmp_path):
    def body(holdout):
        tuning.report({"val_acc": ask(holdout, 30, "a")})
        tuning.report({"val_acc": ask(holdout, 30, "b")})

    trial_of(body, tmp_path, mechanism=th.Thresholdout(threshold=0.2, sigma=0.0, guess="last"))
    assert [row["holdout/val_acc/is_release"] for row in told] == [True, False]
    assert [row["holdout/val_acc/position"] for row in told] == [1, 2]
    assert set(told[0]) == {
        "val_acc",
        "holdout/val_acc/is_release",
        "holdout/val_acc/position",
        "holdout/budget_left",
        "holdout/account",
    }


def test_a_trial_is_named(told, tmp_path):
    account = trial_of(lambda holdout: ask(holdout, 20, "a"), tmp_path)
    ledger = account._ledger
    assert [a.run for a in ledger.answers(ledger.accounts()["val"])] == ["trial train_1"]


def test_a_ladders_guess_is_not_told(told, tmp_path):
    def body(holdout):
        tuning.report({"val_acc": ask(holdout, 30, "a")})
        tuning.report({"val_acc": ask(holdout, 5, "b")})

    trial_of(body, tmp_path, mechanism=th.Ladder(step=0.01))
    assert len(told) == 1


def test_no_answer_fails_the_trial_and_tells_tune_why(told, tmp_path):
    with pytest.raises(PartialPassError, match="but got None"):
        trial_of(lambda holdout: tuning.report({"val_acc": None}), tmp_path)
    (row,) = told
    assert "but got None" in row[tuning.PROBLEM]
    assert "val_acc" not in row


def test_a_trial_with_nothing_to_tell_says_so_once(told, tmp_path):
    def body(holdout):
        ask(holdout, 30, "another trial's")
        tuning.report({"val_acc": ask(holdout, 5, "b")})
        tuning.report({"val_acc": ask(holdout, 4, "c")})

    trial_of(body, tmp_path, mechanism=th.Ladder(step=0.01))
    (row,) = told
    assert math.isnan(row["val_acc"])
    assert (row["holdout/val_acc/is_release"], row["holdout/val_acc/position"]) == (False, -1)


def test_a_trial_that_reports_in_its_own_way_is_left_alone(told, tmp_path):
    trial_of(lambda holdout: ask(holdout, 30, "a"), tmp_path)
    assert told == []


def test_a_stale_value_ends_the_trial(told, tmp_path):
    def body(holdout):
        tuning.report({"val_acc": ask(holdout, 30, "a")})
        tuning.report({"val_acc": Answer(0.99, "exhausted", 0)})
        pytest.fail("the trial goes on")

    trial_of(body, tmp_path)
    assert len(told) == 1
    assert "is spent" in (tmp_path / tuning.EXHAUSTED).read_text()


def test_another_error_is_not_swallowed(told, tmp_path):
    def body(holdout):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        trial_of(body, tmp_path)
    with pytest.raises(InvalidArgumentError, match="called in a trial"):
        tuning.report({})


def test_a_second_account_made_in_a_trial_is_refused(told, tmp_path, monkeypatch):
    """As on a worker: a relative path is then in the trial's own working directory."""
    (tmp_path / "trial").mkdir()

    def body(holdout):
        monkeypatch.chdir(tmp_path / "trial")
        own = make_holdout("sqlite:///holdout.db")
        with pytest.raises(InvalidArgumentError, match="second budget"):
            tuning.reporting(guard_class("lightning.pytorch")(own), ["val_acc"])

    monkeypatch.chdir(tmp_path)
    trial_of(body, tmp_path)


def test_metrics_are_named(told, tmp_path):
    def body(holdout):
        guard = guard_class("lightning.pytorch")(holdout)
        for metrics in ([], None, {"val_acc": "acc"}):
            with pytest.raises(InvalidArgumentError, match="name the statistics"):
                tuning.reporting(guard, metrics)
        with pytest.raises(InvalidArgumentError, match="train_loss"):
            tuning.reporting(guard, ["train_loss"])
        callback = tuning.reporting(guard, "val_acc")

        class Trainer:
            world_size = 1
            callbacks = ()

        with pytest.raises(InvalidArgumentError, match="among the Trainer's callbacks"):
            callback.setup(Trainer(), None, "fit")
        Trainer.world_size = 2
        with pytest.raises(InvalidArgumentError, match="DDP is not supported"):
            callback.setup(Trainer(), None, "fit")

    trial_of(body, tmp_path)
