"""Two processes, as torchrun starts them, give the numbers of one."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch_holdout as th

from support.builders.hugging_face import sealed
from support.programs import hugging_face_ranks

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What one process publishes, and each of two."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "one").mkdir()
    (folder / "two").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, hugging_face_ranks.__file__, str(folder / "two")],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    printed = [process.communicate(timeout=240)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], printed[0][-2000:] + printed[1]
    one = hugging_face_ranks.scenarios(folder / "one", 1)
    ranks = [json.loads((folder / "two" / f"rank{rank}.json").read_text()) for rank in range(2)]
    return folder, json.loads(json.dumps(one)), ranks


@pytest.mark.parametrize("way", ["shards", "everywhere"])
def test_an_evaluation_of_two_processes_is_that_of_one(both, way):
    """45 examples: accelerate's own shares would repeat some, and a block's order counts too."""
    _, one, two = both
    assert two[0][way] == two[1][way] == one[way]
    assert one["shards"]["eval_first"] == one["everywhere"]["eval_first"]


def test_a_live_training_of_two_processes_publishes_what_one_does(both):
    _, one, two = both
    assert two[0]["live"] == two[1]["live"]
    assert len(two[0]["live"]) == len(one["live"]) == hugging_face_ranks.EPOCHS
    for ours, theirs in zip(one["live"], two[0]["live"], strict=True):
        assert ours == theirs


def test_a_sealed_training_of_two_processes_ends_as_one_does(both):
    folder, one, two = both
    assert two[0]["sealed"] == two[1]["sealed"] == one["sealed"]
    assert two[0]["weights"] == two[1]["weights"]
    curves = []
    for name in ("one", "two"):
        account = hugging_face_ranks.account(folder / name, "sealed", sealed)
        curves.append([each.value for each in account.close().curve("loss")])
    assert curves[0] == pytest.approx(curves[1], abs=1e-3)
    assert isinstance(account.mechanism, th.Sealed)
