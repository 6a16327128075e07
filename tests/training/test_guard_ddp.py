"""The guard on two real gloo ranks of Lightning's own DDP."""

import json
import os
import subprocess
import sys

import pytest

from support.programs import ddp_guard

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def run(folder, devices, scenario="fixed", check=True):
    folder.mkdir()
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    found = subprocess.run(
        [sys.executable, ddp_guard.__file__, str(folder), str(devices), scenario],
        capture_output=True, text=True, env=environment, timeout=180, check=False,
    )  # fmt: skip
    assert (found.returncode == 0) == check, found.stderr[-3000:]
    ranks = [
        json.loads((folder / f"rank{rank}.json").read_text())
        for rank in range(devices)
        if (folder / f"rank{rank}.json").exists()
    ]
    return ranks, found.stderr


def test_one_and_two_ranks_give_the_same_answer(tmp_path):
    """501 examples: the sampler repeats one. The same sums and the same seeded noise."""
    (one,), _ = run(tmp_path / "one", 1)
    two, _ = run(tmp_path / "two", 2)
    assert two[0]["metrics"] == two[1]["metrics"] == one["metrics"]
    for folder in ("one", "two"):
        # Learning rate 0 and BatchNorm in training: three different queries of two statistics.
        assert ddp_guard.holdout(tmp_path / folder).status().queries == 3 * 2


def test_a_step_from_outside_gives_what_the_modules_own_would(tmp_path):
    (one,), _ = run(tmp_path / "one", 1)
    two, _ = run(tmp_path / "two", 2, "step")
    assert two[0]["metrics"] == two[1]["metrics"] == one["metrics"]


def test_ranks_stay_equal_after_a_plateau_scheduler(tmp_path):
    ranks, _ = run(tmp_path / "train", 2, "train")
    assert ranks[0] == ranks[1]
    assert ranks[0]["lr"] < 0.1
    assert ddp_guard.holdout(tmp_path / "train").status().queries == 3 * 2


def test_the_guess_is_sharded_and_whole(tmp_path):
    (one,), _ = run(tmp_path / "one", 1, "guess")
    two, _ = run(tmp_path / "two", 2, "guess")
    assert two[0]["metrics"] == two[1]["metrics"] == one["metrics"]


def test_a_failure_reaches_both_ranks_without_a_hang(tmp_path):
    _, printed = run(tmp_path / "exhausted", 2, "exhausted", check=False)
    assert printed.count("BudgetExhaustedError") >= 2
    assert ddp_guard.holdout(tmp_path / "exhausted", budget=3).status().releases == 3


def test_foreign_data_is_refused_on_both_ranks_without_a_hang(tmp_path):
    ranks, printed = run(tmp_path / "foreign", 2, "foreign", check=False)
    assert printed.count("HoldoutMismatchError") >= 2
    assert "0 of 501 compared" in printed
    assert ranks == []
    assert ddp_guard.holdout(tmp_path / "foreign").status().queries == 0
