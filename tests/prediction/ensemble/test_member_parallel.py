"""Members shared by two real gloo ranks."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from support.programs import member_ranks

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def run(folder, devices, package="lightning.pytorch", scenario="members", resume=None, check=True):
    folder.mkdir()
    if resume is not None:
        shutil.copy(resume, folder / "resume.ckpt")
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    environment["OMP_NUM_THREADS"] = "1"
    found = subprocess.run(
        [sys.executable, member_ranks.__file__, str(folder), str(devices), package, scenario],
        capture_output=True, text=True, env=environment, timeout=180, check=False,
    )  # fmt: skip
    assert (found.returncode == 0) == check, found.stderr[-3000:]
    ranks = [folder / f"rank{rank}.pt" for rank in range(devices)]
    return [torch.load(rank) for rank in ranks if rank.exists()], found.stderr


def agree(one, other):
    assert torch.equal(one["votes"], other["votes"])
    for name, value in one["state"].items():
        assert torch.allclose(value.double(), other["state"][name].double(), atol=1e-5), name


def test_two_ranks_train_what_one_does(tmp_path):
    """Five members, so that one rank has two and one has three; both end with all."""
    (one,), _ = run(tmp_path / "one", 1)
    two, _ = run(tmp_path / "two", 2)
    agree(one, two[0])
    assert all(torch.equal(v, two[1]["state"][n]) for n, v in two[0]["state"].items())
    assert one["outputs"].shape == (5, 40, 3)

    for file in ("kept/epoch=1.ckpt", "end.ckpt"):
        kept = [torch.load(tmp_path / folder / file) for folder in ("one", "two")]
        ours, theirs = (k["optimizer_states"][0]["state"] for k in kept)
        for place, own in ours.items():
            for name, value in own.items():
                assert torch.allclose(value, theirs[place][name], atol=1e-5), (file, name)

    # A checkpoint of two ranks goes on with one, and one of one with two.
    (after_two,), _ = run(tmp_path / "2-1", 1, resume=tmp_path / "two" / "kept" / "epoch=1.ckpt")
    after_one, _ = run(
        tmp_path / "1-2", 2, "pytorch_lightning", resume=tmp_path / "one" / "kept" / "epoch=1.ckpt"
    )
    agree(one, after_two)
    agree(one, after_one[0])


def test_plain_ddp_is_refused(tmp_path):
    _, printed = run(tmp_path / "ddp", 2, scenario="ddp", check=False)
    assert "MemberParallelStrategy" in printed
