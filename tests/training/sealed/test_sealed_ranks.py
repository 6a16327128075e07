"""A sealed run on two real gloo ranks: one decision, and all ranks stop together."""

import json
import os
import subprocess
import sys

import pytest

from support.machines.soak import soak
from support.programs import sealed_ranks
from support.programs.sealed_ranks import SEEDS

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def run(folder, scenario, world=2):
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    printed = subprocess.run(
        [sys.executable, sealed_ranks.__file__, str(folder), str(world), scenario],
        capture_output=True, text=True, env=environment, timeout=soak(1200, 240), check=True,
    )  # fmt: skip
    assert json.loads(printed.stdout.splitlines()[-1]) == [[0] * world], printed.stderr[-4000:]
    paths = [folder / str(world) / f"rank{rank}.json" for rank in range(world)]
    ranks = [json.loads(path.read_text()) for path in paths]
    return [{k: v for k, v in rank.items() if k != "seconds"} for rank in ranks], printed.stderr


@pytest.mark.soak
def test_two_ranks_stop_together_where_raw_early_stopping_does(tmp_path):
    ranks, said = run(tmp_path, "as_raw")
    assert ranks[0] == ranks[1]
    assert ranks[0]["sealed"] == ranks[0]["raw"]
    assert ranks[0]["files"] == [True] * SEEDS
    assert len({epoch for epoch, _ in ranks[0]["raw"]}) >= 2
    assert said.count("stopped by patience") == SEEDS  # the first rank speaks
    for seed in range(SEEDS):
        own = sealed_ranks.account(tmp_path / "2", name=f"val{seed}")
        assert own.budget_left == 0
        assert own.close().runs[0].weights == ranks[0]["paths"][seed]


def test_two_ranks_go_on_and_read_the_first_ranks_files(tmp_path):
    ranks, _ = run(tmp_path, "resumed")
    assert ranks[0] == ranks[1]
    assert ranks[0]["slots"] == [f"slot-{n}.pt" for n in range(3)]
    assert (ranks[0]["best"], ranks[0]["stopped"], ranks[0]["steps"]) == (2, 4, 2)
    left = [path for path in (tmp_path / "2" / "kept").rglob("*") if path.is_file()]
    assert [path.suffix for path in left] == [".pt"]  # only the best weights


def test_sharded_weights_are_kept_in_shards(tmp_path):
    ranks, _ = run(tmp_path, "shards")
    expected = {"best": 2, "moved": True, "restored": True, "written": True}
    assert ranks == [{"memory": expected, "files": expected}] * 2
    assert list((tmp_path / "2" / "files").rglob("slot*")) == []
