"""Sweeps by a ratio: the trial with the best quotient is named, with the quotient's interval."""

import optuna
import pytest
import torch
import torch_holdout as th
from torch_holdout.tuning.optuna import claim, closed_study, ranking, sharing

from support.builders.sealed_sweeps import quiet

SIZE = 300
LOSS = th.Ratio(th.BoundedMean(0.0, 1280.0), th.BoundedMean(64, 128), 0.0, 10.0)
# Loss per token, and tokens: trial 1 is best, although its sum of losses is the largest.
TRIALS = [(2.5, 64), (1.5, 128), (2.0, 64)]


def account(mechanism):
    return th.ReusableHoldout(
        "memory://", name="val", size=SIZE, statistics={"loss": LOSS}, mechanism=mechanism,
        budget=5, grid=1000 if mechanism.shows_values else None,
    )  # fmt: skip


def sums_of(holdout, number):
    level, tokens = TRIALS[number]
    sums, each = holdout.accumulator("loss"), torch.full((SIZE,), tokens)
    sums.update(level * each, each)
    return sums


def study_of(objective):
    study = quiet(optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=len(TRIALS))
    return study


def test_a_live_sweep_names_the_best_quotient():
    holdout = account(th.Thresholdout(threshold=0.01, sigma=0.0, guess="last"))

    def objective(trial):
        with sharing(trial, holdout) as shared:
            sums = sums_of(holdout, trial.number)
            shared.report(holdout.release("loss", sums, query=str(trial.number)), step=0)
            return shared.value

    study = study_of(objective)
    found = claim(study, holdout)
    assert (found.trial, found.value) == ("1", pytest.approx(1.5, abs=0.01))
    assert found.low <= 1.5 <= found.high
    assert found.high > holdout.close().curve("loss")[1].high  # which knows both sums


@pytest.mark.filterwarnings("ignore")
def test_a_sealed_sweep_names_the_best_quotient_at_closing():
    holdout = account(th.Sealed(evaluations=2))

    def objective(trial):
        with sharing(trial, holdout, "loss") as shared:
            shared.evaluate({"loss": sums_of(holdout, trial.number)}, query=str(trial.number))
            return shared.value

    study = study_of(objective)
    holdout.close()
    found = claim(study, holdout)
    assert found.trial == "1"
    assert found.value == pytest.approx(1.5, abs=1e-3)
    assert [each.trial for each in ranking(study, holdout)] == ["1", "2", "0"]
    values = [trial.value for trial in closed_study(study, holdout).trials]
    assert values == pytest.approx([level for level, _ in TRIALS], abs=1e-3)
