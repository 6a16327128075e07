"""``torch-holdout report``: the page, JSON, CSV, and sentences about wrong input."""

import csv
import io
import json
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
import torch_holdout as th
from torch_holdout import bounds
from torch_holdout.cli import app
from torch_holdout.holdout.reading import AccountReading
from torch_holdout.report.wording import named
from typer.testing import CliRunner

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import HOSTILE, charged_records, empty, hostile_names, several_runs


def call(*arguments):
    found = CliRunner().invoke(app, ["report", *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


@pytest.fixture
def ledger(tmp_path):
    several_runs(f"sqlite:///{tmp_path}/holdout.db", budget=12, epochs=4)
    return tmp_path / "holdout.db"


def test_writes_a_page_and_says_where_and_what(ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = call(ledger)
    assert (found.exit_code, found.stderr) == (0, "")
    first, verdict = found.stdout.splitlines()
    assert first == "report.html"
    assert verdict.startswith("'digits-val': No releases left of 12;")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<!doctype html>" in text
    assert "holdout.db" in text
    assert str(tmp_path) not in text  # a reader of the page learns no folder
    assert call(ledger, "-o", tmp_path / "deep" / "x.html").exit_code == 0
    assert (tmp_path / "deep" / "x.html").is_file()


def test_reads_only(ledger, tmp_path):
    # SQLite may leave its empty companions behind, as it does after a status.
    companions = {tmp_path / f"holdout.db{ending}" for ending in ("-wal", "-shm")}
    files = {path: path.read_bytes() for path in {*tmp_path.iterdir()} - companions}
    stamp = ledger.stat().st_mtime_ns
    for options in ((), ("--json",), ("--csv",)):
        assert call(ledger, "-o", tmp_path / "out" / "page.html", *options).exit_code == 0
    assert ledger.stat().st_mtime_ns == stamp
    left = {path for path in tmp_path.iterdir() if path.is_file()} - companions
    assert {path: path.read_bytes() for path in left} == files


def test_json_is_the_report(ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = call(ledger, "--json")
    assert (found.exit_code, found.stderr) == (0, "")
    assert not (tmp_path / "report.html").exists()
    content = json.loads(found.stdout)
    (holdout,) = content["holdouts"]
    assert holdout["headline"].startswith("No releases left")
    assert {finding["about"] for finding in holdout["verdict"]} >= {"Guesses", "Privacy", "Runs"}
    assert any("clipped" in sentence for sentence in holdout["not_promised"])
    assert holdout["status"]["releases"] == 12
    assert [s["name"] for s in holdout["statistics"]] == ["val_loss", "val_acc"]
    assert {run["name"] for run in holdout["statistics"][0]["runs"]} <= {
        *("baseline", "wide", "wide + dropout", "cosine schedule")
    }
    both = call(ledger, "--json", "-o", tmp_path / "page.html")
    assert json.loads(both.stdout)["holdouts"][0]["status"] == holdout["status"]
    assert both.stderr.startswith(str(tmp_path / "page.html"))


def test_infinity_is_null_in_json(tmp_path):
    holdout = make_holdout(f"sqlite:///{tmp_path}/l.db", mechanism=th.Ladder(step=0.02))
    holdout.status()
    (found,) = json.loads(call(tmp_path / "l.db", "--json").stdout)["holdouts"]
    assert found["status"]["epsilon"] is None


def test_csv_has_every_answer_with_its_interval(ledger, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = call(ledger, "--csv")
    assert (found.exit_code, found.stderr) == (0, "")
    assert not (tmp_path / "report.html").exists()
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    assert list(rows[0]) == [
        *("holdout", "position", "asked_at", "run", "statistic", "kind"),
        *("value", "low", "high", "run_number", "evaluation"),
    ]
    holdout = several_runs(f"sqlite:///{ledger}", budget=12, epochs=0)
    intervals = holdout.intervals()
    assert len(rows) == len(intervals) == holdout.status().queries
    for row, interval in zip(rows, intervals, strict=True):
        assert (int(row["position"]), row["kind"]) == (interval.position, interval.kind)
        assert (float(row["low"]), float(row["high"])) == (interval.low, interval.high)
        assert float(row["value"]) == interval.value


def test_csv_text_is_no_formula_and_numbers_stay(tmp_path):
    holdout = make_holdout(
        f"sqlite:///{tmp_path}/l.db",
        name="-1+2",
        statistics={"val_acc": th.BoundedMean(-1.0, 1.0)},
    )
    names = ['=HYPERLINK("http://x", "y")', "+1", "@SUM(A1)"]
    for name in names:
        with th.named_run(name):
            ask(holdout, 0, name, fresh=True)
    lines = call(tmp_path / "l.db", "--csv").stdout
    row, *others = csv.DictReader(io.StringIO(lines))
    assert row["holdout"] == "'-1+2"
    assert [found["run"] for found in (row, *others)] == [f"'{name}" for name in names]
    assert -1 <= float(row["low"]) <= float(row["value"]) <= float(row["high"])
    assert row["low"].startswith("-")


def test_json_and_csv_together_are_refused(ledger):
    found = call(ledger, "--json", "--csv")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "Expected --json or --csv, but got both" in found.stderr


def test_one_account_by_name_and_a_wrong_one(ledger, tmp_path):
    charged_records(f"sqlite:///{ledger}")
    content = json.loads(call(ledger, "--name", "patients-2026", "--json").stdout)
    assert (len(content["holdouts"]), len(content["records"])) == (0, 1)
    assert content["records"][0]["headline"].startswith("99 questions answered")
    assert [finding["about"] for finding in content["records"][0]["verdict"]] == ["Privacy"]
    assert any("weights" in sentence for sentence in content["records"][0]["not_promised"])
    wrong = call(ledger, "--name", "nobody", "-o", tmp_path / "page.html")
    assert wrong.exit_code == 2
    assert "'digits-val', 'patients-2026'" in wrong.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("options", [(), ("--json",), ("--csv",)])
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE th_holdouts SET releases = 0",
        "UPDATE th_queries SET value = 0.1 WHERE position = 1",
        "UPDATE th_holdouts SET registration = replace(registration, 'thresholdout', 'unheard')",
    ],
)
def test_a_damaged_ledger_is_the_sentence_of_status(ledger, tmp_path, damage, options):
    with sqlite3.connect(ledger) as connection:
        connection.execute(damage)
    connection.close()
    found = call(ledger, "-o", tmp_path / "page.html", *options)
    status = CliRunner().invoke(app, ["status", str(ledger)])
    assert (found.exit_code, found.stdout) == (2, "")
    assert "fit together" in found.stderr or "unheard" in found.stderr
    assert found.stderr == status.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nope.db",), "Expected a ledger file"),
        (("memory://x",), "its own process"),
        (("holdout.db", "--failure", "7"), "number between 0 and 1, but got 7.0"),
        (("holdout.db", "--failure", "7", "--csv"), "number between 0 and 1, but got 7.0"),
        (("holdout.db", "-o", "holdout.db"), "is a ledger or another database"),
    ],
)
def test_wrong_input_is_a_sentence(ledger, monkeypatch, arguments, sentence):
    monkeypatch.chdir(ledger.parent)
    before = ledger.read_bytes()
    found = call(*arguments)
    assert (found.exit_code, found.stdout) == (2, "")
    assert sentence in found.stderr
    assert ledger.read_bytes() == before
    assert not (ledger.parent / "report.html").exists()


def test_an_empty_ledger(tmp_path):
    empty(f"sqlite:///{tmp_path}/empty.db")
    found = call(tmp_path / "empty.db", "-o", tmp_path)
    assert found.exit_code == 0
    assert found.stdout.splitlines()[1] == "The ledger has no account yet."
    assert (tmp_path / "report.html").is_file()
    assert call(tmp_path / "empty.db", "--csv").stdout.count("\n") == 1


@pytest.mark.parametrize("mode", [0o600, 0o400])
@pytest.mark.parametrize("version", ["v1", "v2", "v3", "v4", "v5"])
def test_ledgers_of_earlier_versions_stay_what_they_are(tmp_path, version, mode):
    """Runs of the earlier version may still be writing to it; an archived one is read-only."""
    assets = Path(__file__).parent.parent / "assets"
    shutil.copy(assets / f"ledger_{version}.db", tmp_path / "old.db")
    (tmp_path / "old.db").chmod(mode)
    before = (tmp_path / "old.db").read_bytes()
    found = call(tmp_path / "old.db", "-o", tmp_path / "page.html")
    assert (found.exit_code, found.stderr) == (0, "")
    assert "Releases left" in (tmp_path / "page.html").read_text(encoding="utf-8")
    for command in (("report", "--json"), ("report", "--csv"), ("status",)):
        name, *options = command
        found = CliRunner().invoke(app, [name, str(tmp_path / "old.db"), *options])
        assert (found.exit_code, found.stderr) == (0, "")
    assert (tmp_path / "old.db").read_bytes() == before


def test_parameters_of_training_records_that_cannot_be_read_are_a_sentence(tmp_path):
    """The frozen ledger of schema 6 has such an account; its holdouts are read by name."""
    path = tmp_path / "old.db"
    shutil.copy(Path(__file__).parent.parent / "assets" / "ledger_v6.db", path)
    path.chmod(0o600)
    for command in (("report", "--json"), ("status",)):
        name, *options = command
        found = CliRunner().invoke(app, [name, str(path), *options])
        assert (found.exit_code, found.stdout) == (2, "")
        assert "readable parameters of training records 'records'" in found.stderr
        readable = CliRunner().invoke(app, [name, str(path), *options, "--name", "ladder"])
        assert (readable.exit_code, readable.stderr) == (0, "")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("UPDATE th_runs SET run = x'ff00'", "the name of a run is not text"),
        (
            "UPDATE th_refusals SET count = 'many'",
            "queries after the budget was gone are miscounted",
        ),
        ("UPDATE th_refusals SET count = -3", "queries after the budget was gone are miscounted"),
        (
            "UPDATE th_refusals SET last_at = x'00'",
            "queries after the budget was gone are miscounted",
        ),
    ],
)
def test_labels_that_cannot_be_read_are_a_sentence(ledger, tmp_path, damage, sentence):
    with sqlite3.connect(ledger) as connection:
        connection.execute(damage)
    connection.close()
    found = call(ledger, "-o", tmp_path / "page.html")
    assert (found.exit_code, found.stdout) == (2, "")
    assert sentence in found.stderr
    assert not (tmp_path / "page.html").exists()
    checked = CliRunner().invoke(app, ["verify", str(ledger)])
    assert checked.exit_code == 1
    assert f"the ledger: {sentence}" in checked.stdout


def test_hostile_names_in_a_terminal(tmp_path):
    names = [*HOSTILE[4:], *HOSTILE[:4]]
    hostile_names(f"sqlite:///{tmp_path}/h.db", names)
    found = call(tmp_path / "h.db", "-o", tmp_path / "page.html")
    assert found.exit_code == 0
    assert found.stdout.splitlines()[1].startswith(f"{named(HOSTILE[4])}: No releases left")
    rows = list(csv.DictReader(io.StringIO(call(tmp_path / "h.db", "--csv").stdout)))
    assert {row["holdout"] for row in rows} == {HOSTILE[4]}


def test_a_ledger_on_postgresql(postgres, tmp_path):
    url = postgres.new_url()
    several_runs(url, budget=12, epochs=4)
    charged_records(url)
    found = call(url, "-o", tmp_path / "page.html")
    assert (found.exit_code, found.stderr) == (0, "")
    assert "'digits-val': No releases left" in found.stdout
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "wide + dropout" in text
    assert "patients-2026" in text
    assert len(call(url, "--csv").stdout.splitlines()) > 12


def test_a_table_computes_no_summary(ledger, monkeypatch, tmp_path):
    calls = []
    original = AccountReading.certificate
    monkeypatch.setattr(
        AccountReading, "certificate", lambda *given: (calls.append(given), original(*given))[1]
    )
    assert call(ledger, "--csv").exit_code == 0
    assert calls == []
    assert call(ledger, "--csv", "-o", tmp_path / "page.html").exit_code == 0
    assert len(calls) == 1


def test_a_table_of_answers_is_refused_where_charges_of_records_were_edited(tmp_path):
    path = tmp_path / "ledger.db"
    charged_records(f"sqlite:///{path}")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE th_charges SET charge = 1")
    connection.commit()
    connection.close()
    result = CliRunner().invoke(app, ["report", str(path), "--csv"])
    assert result.exit_code == 2
    assert "fit together" in result.stderr


PACKAGE = str(Path(th.__file__).parent)


def calls_in_the_package(action):
    """How many Python functions of the package are called."""
    count = 0

    def listen(frame, event, argument):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(listen)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_a_report_of_two_rows_takes_few_calls(tmp_path, monkeypatch):
    """About 6,000; 79,000 when optimisers checked their arguments in every step.

    The failure is one that no other test asks for: what is computed once is computed here.
    """
    monkeypatch.chdir(tmp_path)
    holdout = make_holdout(f"sqlite:///{tmp_path}/holdout.db")
    ask(holdout, 30, "a")
    ask(holdout, 40, "b")
    assert calls_in_the_package(lambda: call("holdout.db", "--failure", "0.0431")) < 20_000


def test_twin_that_checks_in_every_step_is_counted():
    assert calls_in_the_package(lambda: [bounds.hoeffding(100, 0.05) for _ in range(5000)]) > 20_000
