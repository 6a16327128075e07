"""Ray Tune on a local cluster of two workers: one budget, published values only."""

import json
import math
import traceback
from pathlib import Path

import pytest
import torch_holdout as th
from ray import tune
from ray.tune.error import TuneError
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from torch_holdout.errors import HoldoutError
from torch_holdout.tuning.ray import claim, sharing
from torch_holdout.tuning.ray.trials import EXHAUSTED

from support.builders.holdouts import ask, make_holdout
from support.builders.sweeps import EVERYTHING, shared_account
from support.machines.ray_cluster import ray_cluster, sweep
from support.oracles.leaks import raw_hits
from support.programs.ray_trials import RAW, failing_trial, lightning_trial

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]
METRIC = {"metric": "val_acc", "mode": "max"}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with ray_cluster():
        yield


def run(trainable, folder, space, **options):
    return sweep(trainable, folder, space, **METRIC, **options)


def reported(results):
    """Everything that schedulers have read."""
    found = []
    for result in results:
        lines = (Path(result.path) / "result.json").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        found += [row["val_acc"] for row in rows if not math.isnan(row["val_acc"])]
    return found


def published(account):
    return {interval.value for interval in account.intervals()}


def said_exhausted(results):
    return [(Path(result.path) / EXHAUSTED).exists() for result in results]


def test_two_trials_release_exactly_the_budget_and_nothing_raw_is_written(tmp_path):
    account = shared_account(f"sqlite:///{tmp_path}/holdout.db", budget=3)
    space = {"lr": 0.1, "epochs": 4, "raw": True, "save": True, "seed": tune.grid_search([1, 2])}
    scheduler = ASHAScheduler(max_t=4, grace_period=4)
    results = run(
        sharing(lightning_trial, account, every=True), tmp_path, space, scheduler=scheduler
    )
    assert [result.error for result in results] == [None, None]
    assert account.status().releases == 3
    assert len(reported(results)) == 3  # no stale value was reported
    assert set(reported(results)) <= published(account)
    assert any(said_exhausted(results))
    asked = account._ledger.answers(account._ledger.accounts()["val"])
    assert all(answer.run.startswith("sweep trial ") for answer in asked)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"result.json", "progress.csv", "checkpoint", "holdout.db"} <= {f.name for f in files}
    for file in files:
        assert raw_hits(file.read_bytes(), [RAW]) == [], file
    assert claim(results, account).value == max(published(account))


def test_population_based_training_reads_published_values_in_the_other_namespace(tmp_path):
    account = shared_account(f"sqlite:///{tmp_path}/holdout.db", budget=50)
    space = {"lr": tune.grid_search([1e-4, 0.5]), "epochs": 4, "save": True}
    space["namespace"] = "pytorch_lightning"
    scheduler = PopulationBasedTraining(
        perturbation_interval=1, hyperparam_mutations={"lr": tune.loguniform(1e-4, 1.0)}
    )
    results = run(
        sharing(lightning_trial, account, every=True), tmp_path, space, scheduler=scheduler
    )
    assert [result.error for result in results] == [None, None]
    assert len(reported(results)) >= 8
    assert set(reported(results)) <= published(account)
    assert said_exhausted(results) == [False, False]
    found = claim(results, account)
    assert found.value == max(published(account))
    assert found.trial in {result.metrics["trial_id"] for result in results}


def test_a_sweep_with_a_wrong_loader_stops_at_its_first_trial(tmp_path):
    account = shared_account(f"sqlite:///{tmp_path}/holdout.db", budget=5)
    space = {"lr": 0.1, "epochs": 1, "drops": True, "mark": str(tmp_path / "started.txt")}
    space["seed"] = tune.grid_search(list(range(20)))
    with pytest.raises(TuneError) as caught:
        run(sharing(lightning_trial, account), tmp_path, space)
    said = "".join(traceback.format_exception(caught.value))
    assert "drop_last=True and leaves out the last 17" in said
    assert account.status().queries == 0
    assert account.account not in said
    # Those that ran beside the first on the two workers, of 20.
    assert 1 <= len((tmp_path / "started.txt").read_text()) <= 4


def test_a_spent_holdout_ends_every_trial_before_it_trains(tmp_path):
    account = shared_account(f"sqlite:///{tmp_path}/holdout.db", budget=1)
    ask(account, 30, "earlier")
    results = run(sharing(lightning_trial, account), tmp_path, {"lr": 0.1, "epochs": 1})
    assert (results.num_terminated, results.num_errors) == (1, 0)
    assert (reported(results), said_exhausted(results)) == ([], [True])
    assert math.isnan(results[0].metrics["val_acc"])
    with pytest.raises(HoldoutError, match="nothing can be claimed"):
        claim(results, account)


def test_a_trial_tried_again_gets_no_new_noise_and_a_relative_ledger_stays_where_it_was(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    account = make_holdout("sqlite:///holdout.db", mechanism=EVERYTHING)
    space = {"mark": str(tmp_path / "asked.txt")}
    results = run(sharing(failing_trial, account), tmp_path, space, failures=1)
    first, again = [line.split() for line in (tmp_path / "asked.txt").read_text().splitlines()]
    assert (first[0], again[0]) == ("release", "repeat")
    assert first[1] == again[1]
    assert first[2] != str(tmp_path)  # Ray changed the working directory
    assert account.status().queries == 1
    assert [file.name for file in tmp_path.rglob("*.db")] == ["holdout.db"]
    assert reported(results) == [float(first[1])]


def test_a_memory_ledger_is_refused_before_anything_is_sent():
    with pytest.raises(th.InvalidArgumentError, match="memory:// ledger stays in its process"):
        sharing(lightning_trial, make_holdout())
