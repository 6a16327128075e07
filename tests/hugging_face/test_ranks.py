"""Two processes, as torchrun starts them, give the numbers of one."""

import json
import os
import socket
import subprocess
import sys

import pytest
from transformers import BertForTokenClassification

from support.builders.hugging_face import SIZE, Rows, raw_values, sealed, trainer_for
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


def test_one_process_gets_the_answers_of_two_again_for_free(both):
    """The same weights are the same query, however many processes asked."""
    folder, _, two = both
    assert two[0]["live"] == two[1]["live"]
    account = hugging_face_ranks.account(folder / "two", "live", seed=3)
    asked = account.status().queries
    assert asked == 2 * hugging_face_ranks.EPOCHS
    for epoch, published in enumerate(two[0]["live"], 1):
        trainer = trainer_for("tokens", folder / "again", account, model=saved(folder, epoch))
        metrics = trainer.evaluate()
        for name in ("eval_loss", "eval_accuracy"):
            assert metrics[name] == published[name]
    assert account.status().queries == asked


def test_a_sealed_training_of_two_processes_has_the_values_of_one(both):
    folder, one, two = both
    assert two[0]["sealed"] == two[1]["sealed"] == one["sealed"]
    assert two[0]["weights"] == two[1]["weights"]
    account = hugging_face_ranks.account(folder / "two", "sealed", sealed)
    rows = Rows("tokens", SIZE, 2)
    for epoch, found in enumerate(account.close().curve("loss"), 1):
        raw = raw_values(saved(folder, epoch, "sealed"), rows, "tokens")
        assert found.value == pytest.approx(raw["loss"], abs=5 / 2**16)  # one level


def saved(folder, epoch, way="live"):
    """The weights that two processes evaluated after an epoch of three steps."""
    place = folder / "two" / way / f"checkpoint-{3 * epoch}"
    return BertForTokenClassification.from_pretrained(place)
