"""The command line never ends in a traceback: a sentence, and exit code 2."""

import importlib
import io
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import typer
from torch_holdout import cli
from typer.testing import CliRunner

from support.builders.holdouts import ask, make_holdout

COMMAND = [sys.executable, "-c", "from torch_holdout.cli import main; main()"]
READERS = ["status", "prices", "verify", "report", "close"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a ledger, and with much that is none."""
    holdout = make_holdout(f"sqlite:///{tmp_path}/holdout.db", seed=1)
    ask(holdout, 20, "query")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("hello")
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(monkeypatch, *arguments):
    """Run the entry point in this process; return the exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["torch-holdout", *arguments])
    with monkeypatch.context() as streams:
        streams.setattr(sys, "stdout", out)
        streams.setattr(sys, "stderr", err)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return ended.value.code, out.getvalue(), err.getvalue()


PATHS = {
    "loop": "a symbolic link that leads back to itself",
    "sqlite:///loop": "a symbolic link that leads back to itself",
    "a\udcffb.db": "a name in UTF-8",
    "sqlite:///a\udcffb.db": "a name in UTF-8",
    "folder": "a folder",
    "fifo": "not a file",
    "": "an empty name",
    " ": "an empty name",
    "a\0b": "no file can have that name",
    "sqlite:///a%00b": "no file can have that name",
    "a" * 5000: "File name too long",
    "a/" * 3000: "File name too long",
    "missing.db": "there is none",
    "missing/folder.db": "there is none",
    "text.db/inside": "Not a directory",
    "empty.db": "empty, cut off or something else",
    "text.db": "empty, cut off or something else",
    "/dev/null": "not a file",
    "sqlite:///": "sqlite:///relative.db",
    "sqlite://": "sqlite:///relative.db",
    "sqlite:///x?mode=ro": "without options",
    "ftp://host/file": "a ledger URL like",
    "http://[::1": "a ledger URL like",
    "memory://x": "its own process",
}


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("place", PATHS, ids=lambda place: ascii(place[:30]))
def test_what_is_no_ledger_is_a_sentence(folder, monkeypatch, command, place):
    code, out, err = call(monkeypatch, command, place)
    assert (code, out) == (2, "")
    assert err.startswith("torch-holdout: Expected ")
    assert PATHS[place] in err
    assert err.count("\n") == 1
    assert not (folder / "report.html").exists()


def test_a_file_that_may_not_be_read_is_a_sentence(folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    code, _, err = call(monkeypatch, "status", "holdout.db")
    assert code == 2
    assert "you may not read it" in err


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("fifo", "is something else"),
        ("/dev/null", "is something else"),
        ("loop", "symbolic links"),
        ("text.db/page.html", "Not a directory"),
        ("a" * 5000, "File name too long"),
        ("a\udcff.html", "a name in UTF-8"),
        ("/proc/nothing/page.html", "No such file"),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_what_cannot_be_written_is_a_sentence(folder, monkeypatch, output, words):
    code, out, err = call(monkeypatch, "report", "holdout.db", "-o", output)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    if not output.startswith("/proc"):
        code, out, err = call(monkeypatch, "demo", "--picture", output)
        assert (code, out) == (2, "")
        assert words in err


def test_a_folder_gets_the_page(folder, monkeypatch):
    code, out, err = call(monkeypatch, "report", "holdout.db", "-o", "folder")
    assert (code, err) == (0, "")
    assert out.startswith("folder/report.html\n")
    assert (folder / "folder" / "report.html").exists()


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "1", "1e-400", "1e-300", "abc", ""])
@pytest.mark.parametrize(
    "command", [["status"], ["prices"], ["report"], ["report", "--csv"]], ids=" ".join
)
def test_a_wrong_failure_prints_nothing_else(folder, monkeypatch, command, value):
    name, *options = command
    code, out, err = call(monkeypatch, name, "holdout.db", *options, "--failure", value)
    assert (code, out) == (2, "")
    assert "failure" in err


@pytest.mark.parametrize("name", ["", "nobody", "a\udcff", "x" * 9999, "\0"], ids=ascii)
def test_a_name_that_is_no_account(folder, monkeypatch, name):
    code, out, err = call(monkeypatch, "status", "holdout.db", "--name", name)
    assert (code, out) == (2, "")
    assert "Expected one of the accounts ['val']" in err
    assert len(err) < 500


def help_texts():
    names = typer.main.get_command(cli.app).commands
    for arguments in ([], *([name] for name in names)):
        yield CliRunner().invoke(cli.app, [*arguments, "--help"], terminal_width=80).output


def test_help_names_no_types_of_python():
    texts = list(help_texts())
    assert len(texts) == 12
    for text in texts:
        assert re.findall(r"<\w+( range)?>|\b(INTEGER|FLOAT|TEXT|bool|str|int)\b", text) == []
        assert "..." not in text.replace("[ARGS]...", "")  # no sentence is cut off
        assert max(map(len, text.splitlines())) <= 80


def test_an_interrupt_ends_with_130_and_nothing_else(monkeypatch):
    def interrupted(**options):
        raise KeyboardInterrupt

    module = importlib.import_module("torch_holdout.planning.plan")
    monkeypatch.setattr(module, "plan", interrupted)
    assert call(monkeypatch, "plan", "--queries", "5", "--size", "99") == (130, "", "")


@pytest.mark.integration
def test_control_c_ends_with_130_and_no_traceback():
    process = subprocess.Popen(
        [*COMMAND, "audit"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Jobs that a shell starts in the background inherit that it is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    first = process.stderr.readline()  # it has begun
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert first.startswith("auditing")
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.integration
@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--size", "999", "--queries", "9"]])
def test_a_reader_that_goes_away_or_is_not_there(arguments):
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=120) == 1
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments],
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.integration
def test_a_terminal_that_cannot_show_a_name_gets_it_escaped(folder):
    holdout = make_holdout(f"sqlite:///{folder}/names.db", name="caf\u00e9 \u2603", seed=1)
    ask(holdout, 20, "query")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run(
        [*COMMAND, "status", "names.db"], env=environment, capture_output=True, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"\\u2603" in shown.stdout
