"""What the command says of a folder: its ledgers, what is left, what is next."""

import json
import os
import sqlite3

import pytest
from torch_holdout.cli import app
from torch_holdout.report.here import MOST, folder_content
from typer.testing import CliRunner

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import charged_records
from support.builders.sealed import make_sealed, passes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*options):
    found = CliRunner().invoke(app, options)
    assert (found.exit_code, found.stderr) == (0, "")
    return found.stdout


def test_a_ledger_with_budget_left_is_priced_next(folder):
    holdout = make_holdout(f"sqlite:///{folder}/mine.db", seed=1)
    ask(holdout, 20, "query")
    printed = said()
    left = holdout.status()
    assert f"mine.db: holdout '{left.name}', {left.size:,} examples" in printed
    assert f"{left.budget_left} of {left.budget} releases left" in printed
    assert "\nNext:\n  torch-holdout prices mine.db " in printed
    found = json.loads(said("--json"))
    assert found["next"] == "torch-holdout prices mine.db"
    assert found["ledgers"][0]["accounts"][0]["budget_left"] == left.budget_left


def test_it_shows_no_value_and_charges_nothing(folder):
    holdout = make_holdout(f"sqlite:///{folder}/mine.db", seed=1)
    answer = ask(holdout, 20, "query")
    before = (holdout.status().queries, holdout.budget_left)
    assert str(answer.value) not in said() + said("--json")
    assert (holdout.status().queries, holdout.budget_left) == before


def test_open_and_closed_runs(folder):
    holdout = make_sealed(f"sqlite:///{folder}/sealed.db", budget=1)
    run = holdout.run()
    run.evaluate(passes(holdout, val_loss=1.0, val_acc=0.5), query="first")
    printed = said()
    assert "0 of 1 run left, 1 run open" in printed
    assert "Next:\n  torch-holdout status sealed.db" in printed
    run.end()
    printed = said()
    assert "open" not in printed.partition("First:")[0]
    assert "Next:\n  torch-holdout close sealed.db" in printed
    holdout.close()
    printed = said()
    assert "closed" in printed
    assert "Next:\n  torch-holdout report sealed.db" in printed


def test_a_spent_budget_is_reported(folder):
    holdout = make_holdout(f"sqlite:///{folder}/spent.db", seed=1, budget=1)
    ask(holdout, 20, "query")
    assert holdout.budget_left == 0
    assert "Next:\n  torch-holdout report spent.db" in said()


def test_records_are_named(folder):
    charged_records(f"sqlite:///{folder}/private.db")
    printed = said()
    assert "private.db: records " in printed
    assert "Next:\n  torch-holdout status private.db" in printed


def test_two_ledgers_of_one_size_are_pointed_at(folder):
    for place, name in enumerate(("first", "second")):
        make_holdout(f"sqlite:///{folder}/{name}.db").status()
        os.utime(folder / f"{name}.db", (place + 1, place + 1))
    printed = said()
    assert printed.index("second.db: ") < printed.index("first.db: ")  # the one written last
    assert "each voids the other's claims" in printed
    (folder / "second.db").unlink()
    assert "voids" not in said()


def test_what_is_no_ledger_is_left_out_and_untouched(folder):
    with sqlite3.connect(folder / "other.db") as other:
        other.execute("create table t (x)")
    other.close()
    (folder / "text.db").write_text("hello")
    assert "In this folder" not in said()
    found = json.loads(said("--json"))
    assert all(each["problem"] for each in found["ledgers"])
    assert found["next"] == "torch-holdout plan"
    assert sorted(os.listdir()) == ["other.db", "text.db"]


def test_only_some_are_opened(folder):
    for number in range(MOST + 2):
        (folder / f"{number}.db").write_text("no ledger")
    _, content = folder_content([path.name for path in folder.glob("*.db")])
    assert (len(content["ledgers"]), content["not_opened"]) == (MOST, 2)


def test_json_belongs_after_a_command():
    found = CliRunner().invoke(app, ["--json", "audit"])
    assert found.exit_code == 2
    assert "Put it after audit" in found.stderr
