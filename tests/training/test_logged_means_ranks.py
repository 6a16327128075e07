"""``LoggedMean`` on two real gloo ranks: batches of each rank are the units, padding is refused."""

import json
import os
import subprocess
import sys

import pytest
import torch

from support.programs import logged_ranks
from support.programs.logged_ranks import SIZE

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    printed = subprocess.run(
        [sys.executable, logged_ranks.__file__, str(folder), "1,2", "logged"],
        capture_output=True, text=True, env=environment, timeout=240, check=True,
    )  # fmt: skip
    assert json.loads(printed.stdout.splitlines()[-1]) == [[0], [0, 0]], printed.stderr[-3000:]
    return {
        world: [
            json.loads((folder / str(world) / f"rank{rank}.json").read_text())
            for rank in range(world)
        ]
        for world in (1, 2)
    }


def test_ranks_have_the_same_answers_and_the_values_of_one(found):
    (alone,), (first, second) = found[1], found[2]
    assert first["shares"] == second["shares"]
    x = torch.linspace(-1, 1, SIZE)
    mean = float((0.5 * x).abs().mean())
    right = float(((x > 0) == (x > 0.3)).double().mean())
    for ranks in (alone, first):
        assert ranks["shares"]["value"][0] == pytest.approx(mean, abs=2 / 65536)
        assert ranks["shares"]["correct"] == pytest.approx([right, "release"], abs=1e-9)
        assert [kind for _, kind in ranks["again"].values()] == ["repeat", "repeat"]


def test_equal_copies_on_every_rank_count_once(found):
    assert found[2][0]["copies"] == found[2][1]["copies"] == found[1][0]["copies"]


def test_other_ranks_than_the_registered_ones_are_refused_on_all(found):
    for ranks in (*found[1], *found[2]):
        assert "Error" in ranks["other ranks"]
        assert "rank" in ranks["other ranks"]


def test_a_size_that_ranks_cannot_divide_is_refused(found):
    assert isinstance(found[1][0]["padded"], dict)
    for ranks in found[2]:
        assert ranks["padded"].startswith("PartialPassError")
        assert "count an example twice" in ranks["padded"]
        assert ranks["queries"] == [2, 2, 0, 0]
