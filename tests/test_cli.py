import subprocess
import sys

import torch_holdout


def run(*arguments):
    command = [sys.executable, "-c", "from torch_holdout.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_version():
    found = run("--version")
    assert (found.returncode, found.stdout.strip()) == (0, torch_holdout.__version__)


def test_help_and_wrong_words():
    assert "honest" in run("--help").stdout
    wrong = run("nonsense")
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
