"""Which trial may be named by which answer: one that its own account gave, of that statistic."""

import pytest
import torch_holdout as th
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.tuning.claims import Pointer, best_claim, points_here
from torch_holdout.tuning.optuna import claim, sharing

from support.builders.holdouts import ask, correct, make_holdout, sums_of
from support.builders.sweeps import quiet_study

EXACT = th.LaplaceMechanism(epsilon=1000.0)
TWO = {"val_acc": th.ZeroOne(), "other": th.ZeroOne()}


def account(**changes):
    return make_holdout(**{"mechanism": EXACT, "budget": 9, "grid": 50, "seed": 1} | changes)


def test_a_trial_whose_model_was_never_asked_is_not_named():
    """Two trials: one asks the shared holdout, one reports what another holdout told it."""
    shared, foreign = account(), account()
    study = quiet_study()

    def objective(trial):
        with sharing(trial, shared) as own:
            asked = shared if trial.number == 0 else foreign
            own.report(ask(asked, 30 + trial.number, str(trial.number)), step=0)
            return own.value

    study.optimize(objective, n_trials=2, catch=(InvalidArgumentError,))
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL"]
    assert foreign.status().releases == 1
    assert claim(study, shared).trial == "0"


@pytest.mark.parametrize("kind", ["release", "guess"])
def test_an_answer_of_another_account_or_statistic_is_refused(kind):
    near = th.Thresholdout(threshold=0.3, sigma=0.0, guess="last")
    shared, foreign = (account(mechanism=near, statistics=TWO) for _ in range(2))
    for holdout, name in ((foreign, "val_acc"), (shared, "other")):
        for query in "ab":
            answer = holdout.release(name, sums_of(holdout, correct(30), name), query=query)
            if answer.kind == kind:
                with pytest.raises(InvalidArgumentError, match="another account or statistic"):
                    points_here(answer, shared, "val_acc")


def test_an_answer_that_does_not_say_whose_it_is_is_looked_up():
    """As unpickled from version 0.1.0, or made by hand."""
    holdout = account(statistics=TWO)
    released = ask(holdout, 30, "a")
    holdout.release("other", sums_of(holdout, correct(30), "other"), query="a")
    fields = (released.kind, 1, "release")
    assert points_here(th.Answer(released.value, *fields, position=1), holdout, "val_acc")
    for value, position in ((released.value, 2), (0.1, 1), (released.value, 7)):
        assert not points_here(th.Answer(value, *fields, position=position), holdout, "val_acc")


def test_pointers_of_others_are_no_claim():
    holdout = account(statistics=TWO)
    ask(holdout, 30, "a")
    mark = holdout.account
    for pointer in (
        Pointer("0", 0, 1, "another account", "val_acc"),
        Pointer("0", 0, 1, mark, "other"),
        Pointer("0", 0, 2, mark, "val_acc"),
    ):
        with pytest.raises(HoldoutError, match="nothing can be claimed"):
            best_claim([pointer], holdout, "val_acc", 0.05)
    for pointer in (Pointer("0", 0, 1, mark, "val_acc"), Pointer("0", 0, 1)):
        assert best_claim([pointer], holdout, "val_acc", 0.05).position == 1


def test_a_claim_computes_one_interval(monkeypatch):
    holdout = account()
    for count in (10, 40, 20):
        ask(holdout, count, str(count))
    every = holdout.intervals()
    monkeypatch.setattr(th.ReusableHoldout, "intervals", None)
    found = best_claim([Pointer("7", 0, k) for k in (1, 2, 3)], holdout, "val_acc", 0.05)
    assert (found.low, found.high, found.position) == (every[1].low, every[1].high, 2)


def test_a_study_of_version_0_1_0_is_still_claimed():
    """Its marks name trial, step and account, and its keys the statistic."""
    holdout, study = account(), quiet_study()
    trial = study.ask()
    released = ask(holdout, 30, "a")
    mark = {"trial": 0, "step": 3, "account": holdout.account}
    trial.set_user_attr("torch_holdout:val_acc:1", mark)
    study.tell(trial, released.value)
    found = claim(study, holdout)
    assert (found.trial, found.step, found.value) == ("0", 3, released.value)


@pytest.mark.filterwarnings("ignore")
def test_ray_is_not_told_of_foreign_answers(monkeypatch, tmp_path):
    from torch_holdout.tuning import ray

    told = []
    monkeypatch.setattr(ray.tune, "report", lambda row, checkpoint=None: told.append(row))
    shared, foreign = account(url=f"sqlite:///{tmp_path}/holdout.db"), account()

    def train(config, holdout):
        ray.report({"val_acc": th.Answer(0.5, "release", 1, "release", position=1)})
        ray.report({"val_acc": ask(holdout, 30, "a")})
        ray.report({"val_acc": ask(foreign, 30, "a")})

    with pytest.raises(InvalidArgumentError, match="another account or statistic"):
        ray.sharing(train, shared)({})
    assert [row["holdout/val_acc/position"] for row in told] == [-1, 1]
