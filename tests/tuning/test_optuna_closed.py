"""After closing: an ordinary study with the closed values, for one objective and for several."""

import optuna
import pytest
from torch import nn
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.tuning.optuna import claim, closed_study, front, ranking, reask, sharing
from torch_holdout.tuning.sealed_claims import undominated

from support.builders.sealed_sweeps import (
    best_of,
    counted_sums,
    display_objective,
    plain_objective,
    quiet,
    sweep_account,
)

pytestmark = pytest.mark.filterwarnings("ignore")
STATE = optuna.trial.TrialState
LEVEL = 1e-4  # values are quantised before they are added


@pytest.fixture(scope="module")
def swept():
    """A closed plain sweep of 12 trials, six of them pruned, and one trial beyond the budget."""
    account = sweep_account(trials=12)
    study = quiet(pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=0))
    study.optimize(plain_objective(account, steps=3), n_trials=12)
    study.optimize(plain_objective(account, steps=3), n_trials=1)
    account.close()
    return study, account


def counts(number, steps):
    return [((17 * number + 5 * step) % 97) / 97 for step in range(steps)]


def test_a_closed_study_has_every_curve_and_its_intervals(swept):
    study, account = swept
    closed = closed_study(study, account)
    assert closed.directions == [optuna.study.StudyDirection.MAXIMIZE]  # of val_acc, not the loss
    assert len(closed.trials) == len(study.trials) == 13
    for old, new in zip(study.trials[:12], closed.trials, strict=False):
        raw = counts(old.number, len(old.intermediate_values))
        assert (new.number, new.params) == (old.number, old.params)
        assert new.state is STATE.COMPLETE
        assert new.value == pytest.approx(max(raw), abs=LEVEL)
        assert list(new.intermediate_values) == list(range(len(raw)))
        assert list(new.intermediate_values.values()) == pytest.approx(raw, abs=LEVEL)
        attributes = {key[14:]: each for key, each in new.user_attrs.items() if key[14:]}
        assert attributes["low"] <= new.value <= attributes["high"]
        assert attributes["state"] == old.state.name
        assert attributes["display"] == old.values
        assert attributes["evaluation"] == raw.index(max(raw)) + 1
        assert (new.datetime_start, new.distributions) == (old.datetime_start, old.distributions)
    assert {trial.state for trial in study.trials[:12]} == {STATE.COMPLETE, STATE.PRUNED}
    beyond = closed.trials[12]
    assert (beyond.state, beyond.values) == (STATE.PRUNED, None)


def test_the_winner_is_the_claim(swept):
    study, account = swept
    closed, won = closed_study(study, account), claim(study, account)
    assert str(closed.best_trial.number) == won.trial
    assert closed.best_value == won.value
    ranked = ranking(study, account)
    assert [each.value for each in ranked] == sorted((e.value for e in ranked), reverse=True)
    assert ranked[0].apart is False
    for each in ranked:
        assert each.apart == (each.high < won.low)
    assert {each.apart for each in ranked} == {True, False}
    assert "evaluation" in str(won)
    assert "for all evaluations at once" in str(won)
    assert f"trial {won.trial}" in str(won)


def test_a_closed_winner_is_not_asked_again(swept):
    with pytest.raises(InvalidArgumentError, match="no noise that could be drawn again"):
        reask(claim(*swept), swept[1], nn.Linear(1, 1), [])


def test_another_failure_and_another_statistic(swept):
    study, account = swept
    wide, narrow = claim(study, account, failure=0.01), claim(study, account, failure=0.2)
    assert (wide.failure, narrow.failure) == (0.01, 0.2)
    assert wide.low < narrow.low < narrow.high < wide.high
    with pytest.raises(HoldoutError, match="evaluation of 'val_loss'"):
        ranking(study, account, "val_loss")
    with pytest.raises(InvalidArgumentError, match="one of the statistics"):
        closed_study(study, account, "val_f1")


def test_a_closed_study_is_kept_where_it_is_asked_for(swept, tmp_path):
    study, account = swept
    storage = f"sqlite:///{tmp_path}/closed.db"
    made = closed_study(study, account, storage=storage)
    read = optuna.load_study(study_name=made.study_name, storage=storage)
    assert read.best_value == made.best_value
    assert [trial.state for trial in read.trials] == [trial.state for trial in made.trials]
    for wrong in (storage, "line", 3):  # the first has a study of that name
        with pytest.raises(InvalidArgumentError, match="storage"):
            closed_study(study, account, storage=wrong)


def test_the_users_plots_work_on_it(swept):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from optuna.visualization import matplotlib as plots

    closed = closed_study(*swept)
    drawn = [
        plots.plot_optimization_history(closed),
        plots.plot_intermediate_values(closed),
        plots.plot_slice(closed),
        plots.plot_param_importances(closed),
        plots.plot_timeline(closed),
        plots.plot_edf(closed),
    ]
    assert len(drawn) == 6
    points = plots.plot_optimization_history(closed).collections[0].get_offsets()
    assert len(points) == 12  # pruned trials have their values too
    plt.close("all")


# Several objectives


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A closed study of two displays in a real Trainer, and the raw values."""
    account, raw = sweep_account(trials=6), {}
    study = quiet(
        optuna.samplers.NSGAIISampler(seed=0, population_size=3),
        directions=["minimize", "maximize"],
    )
    objective = display_objective(
        account, tmp_path_factory.mktemp("several"), raw, log=("display_loss", "display_acc")
    )
    study.optimize(objective, n_trials=6)
    account.close()
    return study, account, raw


@pytest.mark.integration
def test_two_displays_are_read_and_two_statistics_closed(several):
    study, account, raw = several
    assert [trial.state for trial in study.trials] == [STATE.COMPLETE] * 6
    assert all(len(trial.values) == 2 for trial in study.trials)
    closed = closed_study(study, account, ["val_loss", "val_acc"])
    assert [d.name for d in closed.directions] == ["MINIMIZE", "MAXIMIZE"]
    for trial in closed.trials:  # the values of one model: the one whose loss is best
        best = min(raw[trial.number], key=lambda each: each["val_loss"])
        expected = [best["val_loss"], best["val_acc"]]
        assert trial.values == pytest.approx(expected, abs=5 * LEVEL)
    assert len(closed.best_trials) >= 1
    for name in ("val_loss", "val_acc"):
        found = {each.trial: each.value for each in ranking(study, account, name)}
        assert found == pytest.approx(best_of(raw, name), abs=5 * LEVEL)
    assert claim(study, account, "val_loss").statistic == "val_loss"


@pytest.mark.integration
def test_the_front_is_that_of_all_trials_and_epochs(several):
    study, account, raw = several
    points = {
        (str(number), epoch): (each["val_loss"], each["val_acc"])
        for number, curve in raw.items()
        for epoch, each in enumerate(curve, 1)
    }
    expected = {
        place
        for place, (loss, acc) in points.items()
        if not any(x <= loss and y >= acc and (x, y) != (loss, acc) for x, y in points.values())
    }
    found = front(study, account, ["val_loss", "val_acc"])
    assert {(point.trial, point.evaluation) for point in found} == expected
    for point in found:
        assert point.values == pytest.approx(points[point.trial, point.evaluation], abs=5 * LEVEL)
        for name, value in zip(("val_loss", "val_acc"), point.values, strict=True):
            own = point.claims[name]
            assert own.low <= own.value == value <= own.high


def test_an_objective_that_is_no_statistic_keeps_what_was_told():
    account = sweep_account(trials=4)
    study = quiet(optuna.samplers.RandomSampler(seed=0), directions=["minimize", "minimize"])

    def objective(trial):
        with sharing(trial, account, "val_acc", display="display_loss") as shared:
            size = trial.suggest_int("size", 1, 100)
            for step in range(2):
                sums = counted_sums(account, 10 * trial.number + 30 * step)
                shared.evaluate(sums, query=f"{trial.number} {step}", step=step)
                shared.report(1.0 / (1 + step), step)
            return shared.value, size

    study.optimize(objective, n_trials=4)
    account.close()
    closed = closed_study(study, account, ["val_acc", None])
    assert [d.name for d in closed.directions] == ["MAXIMIZE", "MINIMIZE"]
    for trial in closed.trials:
        assert trial.values == pytest.approx(
            [(10 * trial.number + 30) / 97, trial.params["size"]], abs=LEVEL
        )
    sizes = {str(trial.number): trial.params["size"] for trial in study.trials}
    found = front(study, account, ["val_acc", None])
    assert [point.values[1] for point in found] == [sizes[point.trial] for point in found]
    assert found[0].trial == "3"  # the most accurate, by its second evaluation
    for wrong in ([None, None], [], None, ["val_acc", None, None]):
        with pytest.raises(InvalidArgumentError, match="objective"):
            front(study, account, wrong)


def test_the_front_of_some_points():
    assert undominated([], [True]) == []
    assert undominated([(1.0,), (2.0,), (2.0,)], [True]) == [1, 2]
    points = [(1.0, 5.0, 2.0), (1.0, 4.0, 2.0), (0.0, 9.0, 9.0), (3.0, 3.0, 3.0)]
    assert undominated(points, [False, False, False]) == [2, 1, 3]
    assert undominated(points, [True, True, True]) == [3, 0, 2]


def test_an_objective_that_no_trial_could_tell_is_not_left_out_silently():
    account = sweep_account(trials=2)
    study = quiet(optuna.samplers.RandomSampler(seed=0), directions=["maximize", "minimize"])

    def objective(trial):
        with sharing(trial, account) as shared:
            shared.evaluate(counted_sums(account, 30 + trial.number), query=f"{trial.number}")
            return 0.9, 1.0  # a made-up accuracy and a size: a trial without a display tells none

    study.optimize(objective, n_trials=2)
    account.close()
    for action in (front, closed_study):
        with pytest.raises(HoldoutError, match=r"a sealed trial tells nothing. Name statistics"):
            action(study, account, ["val_acc", None])
    assert [point.values for point in front(study, account, ["val_acc"])] == [(31 / 97,)]
