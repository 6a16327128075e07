"""``torch-holdout submit``: what it prints, and the exit code that a loop reads."""

import io
import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
from torch_holdout import cli
from torch_holdout.service.submit_command import ExitCode

from support.machines.board_stand_in import TOKEN, standing_in

RIGHT = np.arange(40) % 10
COMMAND = [sys.executable, "-c", "from torch_holdout.cli import main; main()"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for right in (5, 20, 25, 30):
        wrong = (RIGHT + 1) % 10
        np.save(f"right{right}.npy", np.where(np.arange(40) < right, RIGHT, wrong))
    return tmp_path


@pytest.fixture
def call(monkeypatch):
    """Run the entry point in this process; return the exit code and what it printed."""

    def run(*arguments):
        out, err = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "argv", ["torch-holdout", "submit", *arguments])
        with monkeypatch.context() as streams:
            streams.setattr(sys, "stdout", out)
            streams.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        return ended.value.code, out.getvalue(), err.getvalue()

    return run


def test_better_is_0_and_text_goes_to_stderr(board, call):
    code, out, err = call("right30.npy", "--board", board.url)
    assert (code, out) == (ExitCode.BETTER, "")
    assert "better. 0.75 is told. 49 submissions and 7 releases left." in err


def test_not_better_is_3(board, call):
    call("right30.npy", "--board", board.url)
    code, _, err = call("right20.npy", "--board", board.url)
    assert code == ExitCode.NOT_BETTER
    assert "not better. What it had to beat, by a step, is 0.75. 48 submissions" in err


@pytest.mark.parametrize(
    ("mode", "codes"),
    [("gate", [0, 3, 0]), ("sealed", [0, 0, 0]), ("ladder", [0, 3, 0]), ("record", [0, 3, 0])],
)
def test_a_loop_reads_one_code_on_every_board(token, call, mode, codes):
    with standing_in(RIGHT, mode=mode) as board:
        files = ["right25.npy", "right20.npy", "right30.npy"]
        for _ in range(2):  # a repeat has the code of the first time
            assert [call(each, "--board", board.url)[0] for each in files] == codes


def test_json_is_what_the_board_sent_and_nothing_else(board, call):
    code, out, err = call("right30.npy", "--board", board.url, "--json")
    assert code == 0
    assert err == ""
    (answer,) = board.answers.values()
    assert json.loads(out) == answer


def test_nothing_left_is_4(token, call):
    with standing_in(RIGHT, submissions=1) as board:
        call("right30.npy", "--board", board.url)
        assert call("right20.npy", "--board", board.url)[0] == ExitCode.NOTHING_LEFT
        board.state = "closed"
        assert call("right20.npy", "--board", board.url)[0] == ExitCode.NOTHING_LEFT


def test_a_wrong_token_and_a_wrong_file_are_5(board, call, monkeypatch):
    np.save("short.npy", RIGHT[:30])
    for file in ("short.npy", "missing.npy"):
        code, out, err = call(file, "--board", board.url)
        assert (code, out) == (ExitCode.REFUSED, "")
        assert err.startswith("torch-holdout: Expected")
    monkeypatch.setenv("TORCH_HOLDOUT_TOKEN", "th_other_other")
    assert call("right30.npy", "--board", board.url)[0] == ExitCode.REFUSED
    monkeypatch.delenv("TORCH_HOLDOUT_TOKEN")
    code, _, err = call("right30.npy", "--board", board.url)
    assert code == ExitCode.REFUSED
    assert "TORCH_HOLDOUT_TOKEN" in err


def test_a_board_that_is_away_is_6(board, call):
    board.stop()
    code, out, err = call("right30.npy", "--board", board.url, "--wait", "0")
    assert (code, out) == (ExitCode.UNREACHABLE, "")
    assert "cannot be reached" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("right30.npy",),
        ("right30.npy", "--board", "digits"),
        ("right30.npy", "--board", "http://host/boards/digits"),
        ("--board", "https://host/boards/digits"),
        ("right30.npy", "--board", "https://host/boards/digits", "--token-file", "missing"),
        ("right30.npy", "--board", "https://host/boards/digits", "--wait", "-1"),
    ],
)
def test_usage_is_2(call, arguments):
    code, out, err = call(*arguments)
    assert (code, out) == (ExitCode.USAGE, "")
    assert "Traceback" not in err


def test_a_token_may_stand_in_a_file(board, call, monkeypatch, folder):
    monkeypatch.delenv("TORCH_HOLDOUT_TOKEN")
    (folder / "token").write_text(f"{TOKEN}\n")
    code, _, err = call("right30.npy", "--board", board.url, "--token-file", "token")
    assert code == 0
    assert TOKEN not in err


def test_a_dry_run_sends_nothing(board, call, monkeypatch):
    monkeypatch.delenv("TORCH_HOLDOUT_TOKEN")
    code, _, err = call("right30.npy", "--board", board.url, "--dry-run")
    assert code == 0
    assert "fits" in err
    found = json.loads(call("right30.npy", "--board", board.url, "--dry-run", "--json")[1])
    assert found["rows"] == 40
    np.save("short.npy", RIGHT[:30])
    assert call("short.npy", "--board", board.url, "--dry-run")[0] == ExitCode.REFUSED
    assert board.count("PUT") == 0
    assert board.answers == {}


def test_final_names_a_finalist(board, call):
    call("right30.npy", "--board", board.url, "--final")
    assert board.finalists == list(board.answers)


def test_a_board_that_was_set_back_is_said(board, call):
    for file in ("right20.npy", "right25.npy", "right30.npy"):
        call(file, "--board", board.url)
    board.forget(1)
    code, _, err = call("right5.npy", "--board", board.url)
    assert code == ExitCode.NOT_BETTER
    assert "was set back" in err


def test_a_shell_loop_keeps_and_reverts(board, folder):
    """Train three times; the fourth submission finds nothing left, which ends the loop."""
    board.submissions = 3
    submit = shlex.join([*COMMAND, "submit", "preds.npy", "--board", board.url])
    script = f"""
train() {{ n=$((n + 1)); cp "$(sed -n ${{n}}p files)" preds.npy; }}
while train && {submit} 2>log; r=$?; [ $r -eq 0 ] || [ $r -eq 3 ]; do
  [ $r -eq 0 ] && echo keep || echo revert
done; echo ends with $r
"""
    (folder / "files").write_text("right25.npy\nright20.npy\nright30.npy\nright5.npy\n")
    ended = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, cwd=folder, env=os.environ
    )
    assert ended.stdout.split("\n")[:4] == ["keep", "revert", "keep", "ends with 4"]


def test_an_error_that_nobody_expected_is_1(board, call, monkeypatch, folder):
    """So that a crash is never read as an answer."""
    code = "import torch_holdout.service.client.uploads as u\nu.npy = None\n"
    code += "from torch_holdout.cli import main; main()"
    arguments = ["submit", "right30.npy", "--board", board.url]
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True)
    assert ended.returncode == 1
    assert board.answers == {}
