"""The demo runs, explains itself, and draws."""

import subprocess
import sys

from torch_holdout.experiments.digits import Epoch, Run, splits


def run(*arguments, cwd):
    command = [sys.executable, "-c", "from torch_holdout.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_the_demo_prints_and_draws(tmp_path):
    found = run("demo", "--epochs", "3", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    for words in ("release <- chosen", "on fresh data", "a raw holdout says", "What the number is"):
        assert words in " ".join(found.stdout.split())
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 20_000
    again = run("demo", "--epochs", "2", cwd=tmp_path)
    assert again.returncode == 0


def test_wrong_words_get_a_sentence(tmp_path):
    found = run("demo", "--epochs", "none", cwd=tmp_path)
    assert found.returncode == 2
    assert "Traceback" not in found.stderr


def test_only_a_release_is_chosen():
    epochs = [Epoch(1, 0.5, "release", 3, 0.5), Epoch(2, 0.4, "guess", 3, 0.4)]
    assert Run(epochs, None).chosen.number == 1


def test_a_third_of_the_labels_is_replaced():
    train, holdout, fresh = splits()
    assert (len(train), len(holdout)) == (400, 700)
    assert len(fresh) == 1797 - 1100
    again = splits()[1]
    assert all((a == b).all() for a, b in zip(holdout.tensors, again.tensors, strict=True))
