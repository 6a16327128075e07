"""Careless modules on two real gloo ranks: both are told, and neither waits for the other."""

import json
import os
import subprocess
import sys

import pytest

from support.programs import careless_ranks
from training.careless.careless import PATTERNS
from training.careless.ranks import CHOSEN, only_on_rank_zero

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def ranks_of(folder, scenario):
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    found = subprocess.run(
        [sys.executable, careless_ranks.__file__, str(folder), "2", scenario],
        capture_output=True, text=True, env=environment, timeout=180, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-3000:]
    return [json.loads((folder / "2" / f"rank{rank}.json").read_text()) for rank in range(2)]


def require_told(said, pattern):
    assert said["error"].startswith("UnguardedLogError"), said["error"]
    assert [name for name in pattern.names if name not in said["error"]] == []
    assert said["hits"] == []
    assert said["queries"] == 0


def test_both_ranks_refuse_what_both_do(tmp_path):
    chosen = [pattern for pattern in PATTERNS if pattern.id in CHOSEN]
    assert len(chosen) == len(CHOSEN)
    for rank in ranks_of(tmp_path, "careless"):
        for pattern in chosen:
            require_told(rank[pattern.id], pattern)


def test_both_ranks_stop_when_one_is_careless(tmp_path):
    first, second = ranks_of(tmp_path, "one_rank")
    for pattern in only_on_rank_zero:
        require_told(first[pattern.id], pattern)
        assert second[pattern.id]["error"] != "it went through"
        assert second[pattern.id]["hits"] == []
        assert second[pattern.id]["queries"] == 0
