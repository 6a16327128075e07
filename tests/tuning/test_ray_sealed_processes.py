"""Ray Tune on sealed holdouts, on a local cluster of two workers: one run a trial, no value out."""

import json
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
import ray
import torch
from ray import tune
from ray.tune.error import TuneError
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from ray.tune.search.optuna import OptunaSearch
from torch_holdout.errors import HoldoutError
from torch_holdout.tuning.ray import claim, closed_results, ranking, sharing

from support.builders.guarded import SIZE as GUARDED_SIZE
from support.builders.guarded import data, network, value_on
from support.machines.ray_cluster import ray_cluster, sweep
from support.oracles.leaks import raw_hits
from support.programs.ray_sealed_trials import (
    EPOCHS,
    SIZE,
    correct_of,
    display_of,
    loss_of,
    plain_trial,
    sealed_sweep_account,
)
from support.programs.ray_trials import guarded_trial

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]
DISPLAY = {"metric": "display_acc", "mode": "max"}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with ray_cluster():
        yield


def address(folder):
    return f"sqlite:///{folder}/holdout.db"


def model_at(place):
    """Read which model a checkpoint of ``plain_trial`` has."""
    return json.loads((Path(place) / "model.json").read_text())


def require_scripted(results, account, trials):
    """Compare a closed sweep of ``plain_trial`` with its script: every evaluation, once."""
    closing = account.close()
    made = [closing.curve("val_acc", run.number) for run in closing.runs]
    assert [len(curve) for curve in made if curve] == [EPOCHS] * len(trials)
    ranked = ranking(results, account, "val_acc")
    configs = {result.metrics["trial_id"]: result.config["x"] for result in results}
    assert sorted(configs[each.trial] for each in ranked) == sorted(trials)
    for each in ranked:
        x = configs[each.trial]
        best = max(range(EPOCHS), key=lambda epoch: correct_of(x, epoch))
        assert each.value == pytest.approx(correct_of(x, best) / SIZE)
        assert each.step == f"epoch {best}"
        assert each.low <= each.value <= each.high
        assert model_at(each.weights) == {"x": x, "epoch": best}
    return ranked


def test_tpe_and_asha_read_the_display_and_nothing_sealed_leaves_before_closing(tmp_path):
    account = sealed_sweep_account(address(tmp_path), budget=4)
    results = sweep(
        sharing(plain_trial, account, display="display_acc"),
        tmp_path,
        {"x": tune.randint(0, 6)},
        search_alg=OptunaSearch(seed=3),
        scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=2),
        num_samples=4,
        reuse_actors=True,
        **DISPLAY,
    )
    assert (results.num_errors, account.budget_left) == (0, 0)
    lengths = [len(result.metrics_dataframe) for result in results]
    assert min(lengths) < EPOCHS  # ASHA has stopped one
    for result in results:
        shown = list(result.metrics_dataframe["display_acc"])
        assert shown == [display_of(result.config["x"], epoch) for epoch in range(len(shown))]
        assert not {"val_acc", "val_loss"} & set(result.metrics)
    secrets = [loss_of(x, epoch) for x in range(6) for epoch in range(EPOCHS)]
    for file in (tmp_path / "ray").rglob("*"):
        assert not file.is_file() or raw_hits(file.read_bytes(), secrets) == [], file
    with pytest.raises(HoldoutError, match=r"Call holdout\.close\(\)"):
        claim(results, account, "val_acc")
    assert account.status().budget_left == 0  # still open

    closing = account.close()
    grid = closed_results(results, account, "val_acc")
    winner = claim(results, account, "val_acc")
    assert type(grid) is type(results)
    best = grid.get_best_result("val_acc", "max")
    assert best.metrics["trial_id"] == winner.trial
    assert best.metrics["val_acc"] == winner.value == closing.best_of("val_acc").value
    assert best.checkpoint.path == winner.weights == best.metrics["holdout/weights"]
    x, epoch = best.config["x"], model_at(winner.weights)["epoch"]
    assert winner.value == pytest.approx(correct_of(x, epoch) / SIZE)
    assert best.get_best_checkpoint("val_acc", "max").path == winner.weights
    assert list(grid.get_dataframe("val_loss", "min")["trial_id"]) == [
        result.metrics["trial_id"] for result in results
    ]
    for result, length in zip(grid, lengths, strict=True):
        table = result.metrics_dataframe
        assert len(table) == length
        for name, script in (("val_loss", loss_of), ("display_acc", display_of)):
            expected = [script(result.config["x"], epoch) for epoch in range(length)]
            assert list(table[name]) == pytest.approx(expected, rel=1e-4)
        inside = table["holdout/val_loss/low"] <= table["val_loss"]
        assert bool((inside & (table["val_loss"] <= table["holdout/val_loss/high"])).all())
    assert "val_acc" not in results[0].metrics  # the sweep's own results stay as they were


def test_trials_killed_twice_are_counted_once_and_the_budget_is_exact(tmp_path):
    account = sealed_sweep_account(address(tmp_path), budget=2)
    marks = tmp_path / "marks"
    marks.mkdir()
    # Before its first report a trial starts over; later it goes on from its checkpoint.
    space = {"x": tune.grid_search([1, 2]), "kill": [0, 2], "marks": str(marks)}
    trainable = sharing(plain_trial, account, display="display_acc")
    results = sweep(trainable, tmp_path, space, failures=2, **DISPLAY)
    assert (results.num_terminated, results.num_errors) == (2, 0)
    assert len(list(marks.iterdir())) == 4
    assert account.budget_left == 0
    ranked = require_scripted(results, account, [1, 2])
    for result in closed_results(results, account, "val_acc"):
        expected = [correct_of(result.config["x"], epoch) / SIZE for epoch in range(EPOCHS)]
        assert list(result.metrics_dataframe["val_acc"]) == pytest.approx(expected)
    assert [each.apart for each in ranked] == [False, False]


@pytest.mark.parametrize("bare", [True, False])
def test_trials_killed_after_their_run_has_ended_are_counted_once(tmp_path, bare):
    """Without a checkpoint a trial starts over; from its last one nothing is left to evaluate."""
    account = sealed_sweep_account(address(tmp_path), budget=4)
    marks = tmp_path / "marks"
    marks.mkdir()
    space = {"x": tune.grid_search([1, 2]), "kill": [EPOCHS], "marks": str(marks), "bare": bare}
    trainable = sharing(plain_trial, account, display="display_acc")
    results = sweep(trainable, tmp_path, space, failures=1, **DISPLAY)
    assert (results.num_terminated, results.num_errors) == (2, 0)
    assert len(list(marks.iterdir())) == 2
    assert account.budget_left == 2
    account.close()
    best = {each.trial: each.value for each in ranking(results, account, "val_acc")}
    configs = {result.metrics["trial_id"]: result.config["x"] for result in results}
    assert best == {
        trial: pytest.approx(max(correct_of(x, epoch) for epoch in range(EPOCHS)) / SIZE)
        for trial, x in configs.items()
    }


def test_a_sweep_without_display_goes_on_after_its_driver_was_killed(tmp_path):
    account = sealed_sweep_account(address(tmp_path), budget=2)
    pace = tmp_path / "pace"
    pace.mkdir()
    program = (
        "import sys, ray; from support.programs.ray_sealed_trials import drive;"
        "ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False);"
        "drive(*sys.argv[2:])"
    )
    cluster = ray.get_runtime_context().gcs_address
    arguments = [cluster, address(tmp_path), str(tmp_path / "ray"), str(pace)]
    driver = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while len(list(pace.glob(f"* {EPOCHS - 1}"))) < 2:
            assert driver.poll() is None
            time.sleep(0.1)
    finally:
        driver.kill()
        driver.wait()
    (pace / "go").touch()
    trainable = sharing(plain_trial, account)
    tuner = tune.Tuner.restore(str(tmp_path / "ray" / "sweep"), trainable=trainable)
    results = tuner.fit()
    assert (results.num_terminated, results.num_errors) == (2, 0)
    assert account.budget_left == 0
    assert "display_acc" not in results[0].metrics
    require_scripted(results, account, [1, 2])
    again = tune.Tuner.restore(str(tmp_path / "ray" / "sweep"), trainable=trainable).get_results()
    assert claim(again, account, "val_acc") == claim(results, account, "val_acc")


def test_population_based_training_hands_over_weights_and_not_runs(tmp_path):
    account = sealed_sweep_account(address(tmp_path), budget=2, size=GUARDED_SIZE)
    space = {"lr": tune.grid_search([1e-5, 0.5]), "epochs": 3, "namespace": "pytorch_lightning"}
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        synch=True,  # both wait for each other, so one takes the other's weights for certain
        hyperparam_mutations={"lr": tune.loguniform(1e-4, 1.0)},
        quantile_fraction=0.5,
    )
    trainable = sharing(guarded_trial, account, display=["display_acc"])
    results = sweep(trainable, tmp_path, space, scheduler=scheduler, reuse_actors=True, **DISPLAY)
    assert results.num_errors == 0
    # One trial went on from the other's weights.
    assert (tmp_path / "ray" / "sweep" / "pbt_global.txt").read_text()
    assert account.budget_left == 0

    closing = account.close()
    assert [run.evaluations for run in closing.runs] == [3, 3]
    runs = [set(result.metrics_dataframe["holdout/run"]) for result in results]
    assert sorted(map(len, runs)) == [1, 1]
    assert set.union(*runs) == {run.id for run in closing.runs}
    for each in ranking(results, account, "val_loss"):
        state = torch.load(Path(each.weights) / "checkpoint", weights_only=False)
        net = network("pytorch_lightning")
        net.load_state_dict(state["state_dict"])
        assert value_on(net, data())["val_loss"] == pytest.approx(each.value, rel=1e-3)


def test_a_searcher_that_would_read_a_sealed_statistic_is_refused(tmp_path):
    account = sealed_sweep_account(address(tmp_path), budget=2)
    with pytest.raises(TuneError) as caught:
        sweep(
            sharing(plain_trial, account),
            tmp_path,
            {"x": tune.grid_search([1, 2]), "quiet": True},
            scheduler=ASHAScheduler(),
            metric="val_acc",
            mode="max",
        )
    said = "".join(traceback.format_exception(caught.value))
    assert "'val_acc', 'val_loss' sealed until holdout.close()" in said
    assert "sharing(..., display=...)" in said
