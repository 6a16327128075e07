"""The guard on one, two and four real gloo ranks: what is published, what is charged, who dies."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch_holdout as th
from torch_holdout.ledger import Ledger
from torch_holdout.lightning import HoldoutGuard

from support.programs import ddp_guard

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def run(folder, scenario, *worlds):
    """Run groups of ranks; return each rank's exit code and what it found, by size of the group."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    sizes = ",".join(map(str, worlds))
    printed = subprocess.run(
        [sys.executable, ddp_guard.__file__, str(folder), sizes, scenario],
        capture_output=True, text=True, env=environment, timeout=240, check=True,
    )  # fmt: skip
    codes = dict(zip(worlds, json.loads(printed.stdout.splitlines()[-1]), strict=True))
    found = {}
    for world in worlds:
        paths = [folder / str(world) / f"rank{rank}.json" for rank in range(world)]
        found[world] = [json.loads(p.read_text()) if p.exists() else None for p in paths]
    return codes, found, printed.stderr


def without_time(ranks):
    return [{key: value for key, value in rank.items() if key != "seconds"} for rank in ranks]


def checked(folder):
    """Open a ledger, check every row against its counters, and return what was answered."""
    ledger = Ledger(f"sqlite:///{folder}/holdout.db")
    found = {}
    for account in ledger.accounts().values():
        summary, answers = ledger.summary(account, check=True), ledger.answers(account)
        assert summary.queries == len(answers)
        assert summary.releases == sum(answer.kind == "release" for answer in answers)
        found[summary.name] = [replace(answer, asked_at="", run=None) for answer in answers]
    return found


def test_one_two_and_four_ranks_have_the_same_sums_and_answers(tmp_path):
    """Holdouts of 501, 7, 3, 2 and 1 examples: the sampler pads, or gives a rank only padding.

    Without noise and with an answer for every possible sum, equal answers are equal integer sums.
    """
    codes, found, errors = run(tmp_path, "validated", 1, 2, 4)
    assert codes == {1: [0], 2: [0] * 2, 4: [0] * 4}, errors[-3000:]
    (alone,) = without_time(found[1])
    assert len(alone["answers"]) == 5 * 2 * 4
    for world in (2, 4):
        assert without_time(found[world]) == [alone] * world
        assert checked(tmp_path / str(world)) == checked(tmp_path / "1")  # and no charge more


def test_ranks_stay_equal_with_everything_at_once(tmp_path):
    """Uneven data, BatchNorm, bf16, accumulation, evaluations inside an epoch and an accumulation,
    two loaders with a holdout each, a plateau scheduler, and a resume from inside an epoch.
    """
    codes, found, errors = run(tmp_path, "trained", 4)
    assert codes[4] == [0] * 4, errors[-3000:]
    ranks = without_time(found[4])
    assert ranks == [ranks[0]] * 4
    first, resumed = ranks[0]["first"], ranks[0]["resumed"]
    assert first["lr"] < 0.01
    assert resumed["lr"] <= first["lr"]
    assert first["queries"] == [4, 4]  # two evaluations in each of two epochs
    assert resumed["queries"] == [7, 7]  # the ledger goes on: three evaluations more
    before, after = ranks[0]["start"]
    assert before == {}
    assert set(after) == {"value", "other"}  # the run's last values, from the checkpoint
    answers = checked(tmp_path / "4")
    assert {name: len(rows) for name, rows in answers.items()} == {"value": 7, "other": 7}
    assert_published_only_charged(tmp_path / "4", answers, ranks=range(4))


def assert_published_only_charged(folder, answers, ranks):
    """Every value a rank published stands in the ledger, in that order."""
    count = 0
    for rank in ranks:
        path = folder / f"published{rank}.txt"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for name, rows in answers.items():
            published = [line[name] for line in lines]
            assert published == [row.value for row in rows][: len(published)]
            count += len(published)
    return count


@pytest.mark.parametrize("scenario", ["killed_in_step", "killed_after_commit"])
def test_a_killed_rank_ends_the_others_and_leaves_a_whole_ledger(tmp_path, scenario):
    """SIGKILL in a validation step; and to rank 0, after it has charged and before it answers."""
    codes, found, _ = run(tmp_path, scenario, 3)
    victim = 2 if scenario == "killed_in_step" else 0
    survivors = [rank for rank in range(3) if rank != victim]
    assert codes[3][victim] == -9
    assert found[3][victim] is None
    for rank in survivors:
        assert codes[3][rank] == 1
        assert "Error" in found[3][rank]["error"]
        assert found[3][rank]["seconds"] < 60  # the group's timeout is 20 s
    answers = checked(tmp_path / "3")
    charged = sum(map(len, answers.values()))
    assert charged == (2 if victim else 3)  # rank 0 died with one answer paid for: it is lost
    assert assert_published_only_charged(tmp_path / "3", answers, ranks=range(3)) == 3 * 2
    assert "budget" not in found[3][survivors[0]]["error"]


@pytest.mark.filterwarnings("ignore")
def test_sharded_weights_are_the_same_query_as_whole_ones(tmp_path):
    """Two ranks with fully_shard, exact and in bf16; then the same weights in one process."""
    codes, found, errors = run(tmp_path, "sharded", 2)
    assert codes[2] == [0, 0], errors[-3000:]
    first, second = without_time(found[2])
    assert first == second
    folder = tmp_path / "2"
    for name in ("exact", "mixed"):
        assert first[name]["kinds"] == ["release"] * 2 + ["repeat"] * 2
        account = ddp_guard.holdout(folder, name=name, size=101)
        before = account.status().queries
        assert before == 2 + 2 * 2  # asked about, then trained for two epochs
        guard = HoldoutGuard(account)
        _, (val, _) = ddp_guard.loaders_of_two()
        ddp_guard.trainer_of(1, [guard]).validate(ddp_guard.Sharded(), val, verbose=False)
        assert [answer.kind for answer in guard.answers.values()] == ["repeat"] * 2
        assert account.status().queries == before
    assert first["same identity"]
    assert first["metric"] == ["release", "repeat"]


@pytest.mark.filterwarnings("ignore")
def test_sharded_weights_are_compared_with_a_training_value(tmp_path):
    """One, two and three batches of training examples for two ranks: each makes as many passes."""
    codes, found, errors = run(tmp_path, "sharded_guesses", 1, 2)
    assert codes == {1: [0], 2: [0, 0]}, errors[-3000:]
    (alone,), ranks = without_time(found[1]), without_time(found[2])
    assert ranks[0] == ranks[1]
    for batches, passes in (("1", 1), ("2", 1), ("3", 2)):
        assert ranks[0][batches]["values"] == alone[batches]["values"]
        looks = 1  # the first batch is also run as marked tensors
        assert alone[batches]["passes"] == 11 + looks + int(batches)
        assert ranks[0][batches]["passes"] == 6 + looks + passes  # 51 examples each, by 10


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("mark", "message"),
    [("_fsdp_flattened", "FullyShardedDataParallel"), ("ds_tensor", "DeepSpeed's stage 3")],
)
def test_weights_that_no_process_has_whole_are_refused(mark, message):
    """Both need an accelerator, so their marks stand for them."""
    module = ddp_guard.Sharded()
    setattr(module.layers[0].weight, mark, torch.ones(1))
    account = ddp_guard.holdout("unused", url="memory://", size=101)
    _, (val, _) = ddp_guard.loaders_of_two()
    trainer = ddp_guard.trainer_of(1, [HoldoutGuard(account)])
    with pytest.raises(th.HoldoutError, match=f"'layers.0.weight' is cut up by {message}"):
        trainer.validate(module, val, verbose=False)
    assert account.status().queries == 0


def test_ranks_that_see_the_same_examples_are_refused(tmp_path):
    codes, found, _ = run(tmp_path, "same_examples", 2)
    assert codes[2] == [1, 1]
    for rank in found[2]:
        assert "Expected each of 2 ranks to evaluate examples of its own" in rank["error"]
    assert not (tmp_path / "2" / "holdout.db").exists()
