"""The demo runs, explains itself, and draws."""

import json
import logging
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch_holdout
from torch_holdout._demo import digits
from torch_holdout._demo.digits import splits
from torch_holdout._demo.picture import certified
from torch_holdout._demo.ways import Epoch, Training, best_release, raw_way, sealed_way

from support.machines.base_site import closure, environment, linked

ROOT = Path(torch_holdout.__file__).parent.parent
WAYS = ["raw values", "guarded values", "sealed run"]


def run(*arguments, cwd, python=sys.executable):
    command = [str(python), "-c", "from torch_holdout.cli import main; main()", *arguments]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=path)


def test_the_demo_prints_and_draws(tmp_path):
    shown = run("demo", "--epochs", "3", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    printed = " ".join(shown.stdout.split())
    for words in ("raw values", "guarded values", "sealed run", "by a raw holdout", "of it:"):
        assert words in printed
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 20_000
    assert "releases left" in (tmp_path / "demo" / "demo-live.html").read_text()
    assert "digits-sealed" in (tmp_path / "demo" / "demo.html").read_text()
    again = run("demo", "--epochs", "2", "--json", cwd=tmp_path)
    assert again.returncode == 0
    content = json.loads(again.stdout)
    assert [e["number"] for e in content["early_stopping"]["live"]["epochs"]] == [1, 2]
    assert [way["name"] for way in content["early_stopping"]["ways"]] == WAYS
    assert content["attack"]["raw"]["claimed"] > 0.65
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert left == {"demo/demo.png", "demo/demo.html", "demo/demo-live.html"}
    assert (content["report"], content["live_report"]) == ("demo/demo.html", "demo/demo-live.html")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The raw way and the sealed one, in full."""
    folder = tmp_path_factory.mktemp("ledger")
    training = Training(str(folder), progress=False)
    return raw_way(training), sealed_way(training, f"sqlite:///{folder}/holdout.db")


def test_a_sealed_run_chooses_as_raw_values_do(both):
    raw, sealed = both
    assert sealed.chosen.number == raw.chosen.number
    assert len(sealed.epochs) == len(raw.epochs) == raw.chosen.number + 12
    assert [epoch.fresh for epoch in sealed.epochs] == [epoch.fresh for epoch in raw.epochs]


def test_the_loggers_are_left_as_they_were(tmp_path):
    names = ("pytorch_lightning", "lightning_fabric", "torch_holdout")
    before = [logging.getLogger(name).level for name in names], list(warnings.filters)
    raw_way(Training(str(tmp_path), progress=False, epochs=1))
    assert ([logging.getLogger(name).level for name in names], list(warnings.filters)) == before


def test_the_certificate_is_one_to_quote(both):
    raw, sealed = both
    assert sealed.distance <= sealed.chosen.published / 4
    assert sealed.low <= sealed.chosen.fresh <= sealed.high
    for end in (sealed.low, sealed.high):  # "to within" is for both ends
        assert abs(end - sealed.chosen.published) <= sealed.distance
    assert raw.distance is None
    assert certified(raw) == "nothing"


def test_wrong_words_get_a_sentence(tmp_path):
    found = run("demo", "--epochs", "none", cwd=tmp_path)
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    (tmp_path / "holdout.db").write_text("a ledger")
    for name in ("demo.html", "holdout.db"):
        page = run("demo", "--picture", name, cwd=tmp_path)
        assert page.returncode == 2
        assert "such as demo.png" in page.stderr
    assert (tmp_path / "holdout.db").read_text() == "a ledger"
    nowhere = run("demo", "--picture", "holdout.db/demo.png", cwd=tmp_path)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")  # before anything is trained
    assert "Not a directory" in nowhere.stderr


def test_only_a_release_is_chosen():
    epochs = [Epoch(1, 0.5, "release", 3, 0.5), Epoch(2, 0.4, "guess", 3, 0.4)]
    assert best_release(epochs).number == 1


def test_a_third_of_the_labels_is_replaced():
    train, holdout, fresh = splits()
    assert (len(train), len(holdout)) == (400, 700)
    assert len(fresh) == 1797 - 1100
    again = splits()[1]
    assert all((a == b).all() for a, b in zip(holdout.tensors, again.tensors, strict=True))


@pytest.fixture(scope="module")
def base_python(tmp_path_factory):
    """A Python with the base dependencies only: no scikit-learn, no matplotlib, no extra."""
    folder = tmp_path_factory.mktemp("base")
    lines = (ROOT / "pyproject.toml").read_text().split("dependencies = [")[1].split("]")[0]
    needed = re.findall(r'"([^"]+)"', lines)
    return environment(folder / "venv", linked(closure(needed).values(), folder / "site"))


@pytest.mark.slow
def test_the_demo_needs_no_extra(base_python, tmp_path):
    absent = "import importlib.util as u; print([u.find_spec(n) for n in ('sklearn','matplotlib')])"
    found = subprocess.run([str(base_python), "-c", absent], capture_output=True, text=True)
    assert found.stdout.strip() == "[None, None]"
    found = run("demo", "--epochs", "3", cwd=tmp_path, python=base_python)
    assert found.returncode == 0, found.stderr[-3000:]
    printed = " ".join(found.stdout.split())
    for words in ("Generated patterns", "sealed run", "by a raw holdout", "demo.txt"):
        assert words in printed
    assert "For real digits and a picture: pip install 'torch-holdout[demo]'" in printed
    table = (tmp_path / "demo" / "demo.txt").read_text()
    assert all(name in table for name in WAYS)
    assert "raw holdout 71" in table
    assert not list(tmp_path.rglob("*.png"))


def test_generated_patterns_are_of_the_same_shape(monkeypatch):
    real = splits()
    monkeypatch.setattr(digits, "has_digits", lambda: False)
    generated = splits()
    for a, b in zip(real, generated, strict=True):
        assert [t.shape for t in a.tensors] == [t.shape for t in b.tensors]
        assert [t.dtype for t in a.tensors] == [t.dtype for t in b.tensors]
    x, y = generated[0].tensors
    assert float(x.min()) >= 0
    assert float(x.max()) <= 1
    assert len(torch.unique(y)) == 10
