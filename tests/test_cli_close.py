"""``torch-holdout close``: says what will happen, asks, and never closes by accident."""

import json
import os
import pty
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch_holdout as th
from torch_holdout.cli import app
from torch_holdout.ledger import Ledger, verify
from typer.testing import CliRunner

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import charged_records
from support.builders.sealed import make_sealed, play, sealed_runs

COMMAND = [sys.executable, "-c", "from torch_holdout.cli import main; main()"]
ASSETS = Path(__file__).parent / "assets"


def call(*arguments):
    found = CliRunner().invoke(app, ["close", *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def is_closed(path, name="val"):
    ledger = Ledger(f"sqlite:///{path}", reads_only=True)
    return ledger.closing(ledger.accounts()[name]) is not None


@pytest.fixture
def ledger(tmp_path):
    sealed_runs(f"sqlite:///{tmp_path}/holdout.db")
    return tmp_path / "holdout.db"


def on_a_terminal(path, typed):
    """Run the command with a terminal to type on; return its code and what it printed."""
    main, side = pty.openpty()
    command = [*COMMAND, "close", str(path)]
    process = subprocess.Popen(
        command, stdin=side, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(side)
    os.write(main, typed)
    out, err = process.communicate(timeout=120)
    os.close(main)
    return process.returncode, out, err


def test_says_what_will_happen_and_then_shows_the_closing(ledger):
    found = call(ledger, "--yes")
    assert found.exit_code == 0
    assert found.stderr.splitlines() == [
        "Closing holdout 'val' cannot be undone: nothing can be asked afterwards.",
        "It has 3 runs with 29 evaluations. Of these run 3 ('wide + dropout') is still open, and "
        "ends without an outcome.",
        "Every value that it has kept becomes public, with an interval.",
        "Of its budget 2 runs will never be used.",
    ]
    assert found.stdout.rstrip() == str(make_sealed(f"sqlite:///{ledger}").close())
    again = call(ledger)  # nothing is left to be asked about
    assert (again.exit_code, again.stdout, again.stderr) == (0, found.stdout, "")
    assert verify(f"sqlite:///{ledger}").findings == []


def test_without_a_terminal_it_wants_to_be_told(ledger):
    before = ledger.read_bytes()
    found = call(ledger)
    assert (found.exit_code, found.stdout) == (2, "")
    assert "Expected --yes, because there is no terminal to ask on" in found.stderr
    assert "Nothing was closed." in found.stderr
    assert ledger.read_bytes() == before
    assert not is_closed(ledger)


@pytest.mark.parametrize("typed", [b"n\n", b"\n", b"\x04"])
def test_on_a_terminal_anything_but_yes_closes_nothing(ledger, typed):
    code, out, err = on_a_terminal(ledger, typed)
    assert (code, out) == (1, "")
    assert "Close it for good? [y/N]" in err
    assert "Traceback" not in err
    assert not is_closed(ledger)


def test_on_a_terminal_yes_closes(ledger):
    code, out, err = on_a_terminal(ledger, b"y\n")
    assert code == 0
    assert "cannot be undone" in err
    assert out.rstrip() == str(make_sealed(f"sqlite:///{ledger}").close())


def test_json_is_the_closing(ledger):
    found = call(ledger, "--yes", "--json")
    closing = make_sealed(f"sqlite:///{ledger}").close()
    assert json.loads(found.stdout) == json.loads(json.dumps(asdict(closing)))


def test_the_failure_is_that_of_the_intervals(ledger):
    rarely = json.loads(call(ledger, "--yes", "--json", "--failure", "1e-6").stdout)
    usual = json.loads(call(ledger, "--json").stdout)
    assert (rarely["failure"], usual["failure"]) == (1e-6, 0.05)
    assert rarely["values"][0]["low"] < usual["values"][0]["low"]


def test_one_of_several(ledger):
    play(make_sealed(f"sqlite:///{ledger}", name="other"), "alone", 0.3)
    charged_records(f"sqlite:///{ledger}")
    several = call(ledger, "--yes")
    assert (several.exit_code, several.stdout) == (2, "")
    assert "the holdouts ['val', 'other']. Choose one with --name. Nothing" in several.stderr
    records = call(ledger, "--yes", "--name", "patients-2026")
    assert records.exit_code == 2
    assert "is an account of training records, which is never closed" in records.stderr
    wrong = call(ledger, "--yes", "--name", "nobody")
    assert wrong.exit_code == 2
    assert "'val', 'other', 'patients-2026'" in wrong.stderr
    assert call(ledger, "--yes", "--name", "other").exit_code == 0
    assert (is_closed(ledger, "val"), is_closed(ledger, "other")) == (False, True)


def test_a_ledger_without_a_holdout(tmp_path):
    charged_records(f"sqlite:///{tmp_path}/records.db")
    found = call(tmp_path / "records.db", "--yes")
    assert found.exit_code == 2
    assert "the ledger has none. Nothing was closed." in found.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nope.db", "--yes"), "Expected a ledger file"),
        (("memory://x", "--yes"), "its own process"),
        (("text.db", "--yes"), "text.db"),
        (("holdout.db", "--yes", "--failure", "7"), "between 0 and 1, but got 7.0"),
        (("holdout.db", "--yes", "--failure", "nan"), "between 0 and 1, but got nan"),
    ],
)
def test_wrong_input_is_a_sentence(ledger, monkeypatch, arguments, sentence):
    (ledger.parent / "text.db").write_text("no ledger")
    monkeypatch.chdir(ledger.parent)
    found = call(*arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert sentence in found.stderr
    assert "Traceback" not in found.stderr
    assert not is_closed(ledger)
    assert not (ledger.parent / "nope.db").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to any file")
def test_a_file_that_cannot_be_written(ledger):
    ledger.chmod(0o400)
    found = call(ledger, "--yes")
    assert (found.exit_code, found.stdout) == (2, "")
    assert not is_closed(ledger)


class TestNoise:
    @pytest.fixture
    def noisy(self, tmp_path):
        mechanism = th.Sealed(evaluations=40, epsilon=1.0)
        sealed_runs(f"sqlite:///{tmp_path}/noisy.db", mechanism=mechanism, seed=3)
        return tmp_path / "noisy.db"

    def test_what_is_erased_is_said(self, noisy):
        asked = call(noisy)
        assert "the sums of all evaluations are erased for good. With --exact" in asked.stderr
        found = call(noisy, "--yes")
        assert found.exit_code == 0
        assert "no exact value was published, and no sums are kept" in found.stdout
        gone = call(noisy, "--exact")
        assert gone.exit_code == 2
        assert "has erased them for good" in gone.stderr

    def test_exact_shows_all_and_ends_the_privacy(self, noisy):
        found = call(noisy, "--exact", "--yes")
        assert found.exit_code == 0
        assert "epsilon is infinite for good" in found.stderr
        assert "best: run" in found.stdout
        status = CliRunner().invoke(app, ["status", str(noisy)]).stdout
        assert "epsilon at most infinite" in status

    def test_a_live_account_has_nothing_exact(self, tmp_path):
        holdout = make_holdout(f"sqlite:///{tmp_path}/live.db", seed=1)
        ask(holdout, 30, "a")
        found = call(tmp_path / "live.db", "--exact", "--yes")
        assert found.exit_code == 2
        assert "has kept no sums" in found.stderr
        assert not is_closed(tmp_path / "live.db")
        found = call(tmp_path / "live.db", "--yes")
        assert found.exit_code == 0
        assert "It has given 1 answer; they can still be repeated." in found.stderr
        assert "it has kept no sums, so no new value is published" in found.stderr


def test_a_live_account_without_noise(tmp_path):
    url = f"sqlite:///{tmp_path}/live.db"
    holdout = make_holdout(url, mechanism=th.Ladder(step=0.05))
    ask(holdout, 30, "a")
    found = call(tmp_path / "live.db", "--yes")
    assert "best: query 1, val_acc 0.600 in [" in found.stdout
    assert "Of its budget 4 releases will never be used." in found.stderr
    assert ask(holdout, 30, "a").kind == "repeat"
    with pytest.raises(th.HoldoutClosedError):
        ask(holdout, 31, "b")


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "v4"])
def test_ledgers_of_earlier_versions(tmp_path, version):
    path = tmp_path / "old.db"
    shutil.copy(ASSETS / f"ledger_{version}.db", path)
    path.chmod(0o600)
    (name, *_) = Ledger(f"sqlite:///{path}", reads_only=True).names()
    found = call(path, "--name", name, "--yes")
    assert found.exit_code == 0
    assert is_closed(path, name)
    assert verify(f"sqlite:///{path}").findings == []
