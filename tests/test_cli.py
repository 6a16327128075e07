import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch_holdout
import typer
from torch_holdout.cli import app
from typer.testing import CliRunner

from support.builders.holdouts import ask, make_holdout
from support.builders.reports import charged_records
from support.builders.sealed import make_sealed, sealed_runs


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


def test_alone_it_says_what_to_do_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = call()
    assert (found.returncode, found.stderr) == (0, "")
    named = re.findall(r"^  torch-holdout (\w+)", found.stdout, flags=re.MULTILINE)
    assert sorted(named) == sorted({name.split()[0] for name in command_names()})
    assert "status holdout.db" in found.stdout
    make_holdout(f"sqlite:///{tmp_path}/mine.db").status()
    assert "status mine.db" in call().stdout


def commands():
    """All commands by name, those of a group as "board plan"."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        for own, part in getattr(command, "commands", {"": command}).items():
            found[f"{name} {own}".strip()] = part
    return found


def command_names():
    return list(commands())


@pytest.mark.parametrize("name", command_names())
class TestEveryCommand:
    def test_has_help_with_an_example_that_parses(self, name):
        command = commands()[name]
        text = call(*name.split(), "--help").stdout
        examples = re.findall(rf"torch-holdout {name}[^\n]*", command.help)
        assert "Example: torch-holdout" in command.help
        assert examples
        for example in examples:
            words = example.removeprefix(f"torch-holdout {name}").split()
            command.make_context(name, words, resilient_parsing=False)
        for option in command.params:
            assert option.help, option.name
        assert "Usage" in text

    def test_has_json(self, name):
        command = commands()[name]
        assert "--json" in [text for option in command.params for text in option.opts]

    def test_has_no_colours_where_there_is_no_terminal(self, name):
        found = run(*name.split(), "--help")
        assert (found.returncode, found.stderr) == (0, "")
        assert "\x1b" not in found.stdout

    def test_wrong_options_are_a_sentence(self, name):
        found = call(*name.split(), "--nonsense")
        assert found.returncode == 2
        assert "--nonsense" in found.stderr
        assert "Traceback" not in found.stderr


def test_the_exit_codes_are_those_of_the_help(tmp_path):
    """0, 1 and 2 of the epilog, one of each; the others have tests of their own."""
    assert "Exit codes: 0 done; 1 done, and the answer is no" in call("--help").stdout
    ledger(tmp_path)
    place = str(tmp_path / "holdout.db")
    assert call("verify", place).returncode == 0
    with sqlite3.connect(place) as opened:
        opened.execute("delete from th_queries where position = 2")
    opened.close()
    assert call("verify", place).returncode == 1
    assert call("verify", str(tmp_path / "nothing.db")).returncode == 2


def test_ledgers_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_holdout(f"sqlite:///{tmp_path}/holdout.db").status()
    (tmp_path / "notes.txt").write_text("")
    completion = {
        "_TORCH_HOLDOUT_COMPLETE": "complete_bash",
        "COMP_WORDS": "torch-holdout status h",
        "COMP_CWORD": "2",
    }
    found = subprocess.run(
        [shutil.which("torch-holdout", path=Path(sys.executable).parent)],
        env={**os.environ, **completion},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.split() == ["holdout.db"]


def call(*arguments):
    """The same without a new process."""
    found = CliRunner().invoke(app, arguments)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    found.returncode = found.exit_code
    return found


def ledger(tmp_path, **changes):
    """A ledger with one holdout that has been asked three times."""
    holdout = make_holdout(f"sqlite:///{tmp_path}/holdout.db", seed=1, **changes)
    for count in (20, 21, 45):
        ask(holdout, count, f"query {count}")
    return holdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is full")
def test_a_full_disk_gets_a_sentence():
    command = [sys.executable, "-c", "from torch_holdout.cli import main; main()", "plan"]
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [*command, "--size", "1000", "--queries", "10", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert found.returncode == 2
    assert found.stderr.startswith("torch-holdout: No space left on device.")
    assert "Traceback" not in found.stderr


class TestPlan:
    def test_a_table_and_a_sentence_each(self):
        found = run("plan", "--size", "10000", "--queries", "200", "--budget", "20")
        assert (found.returncode, found.stderr) == (0, "")
        for words in ("Ladder", "20 releases", "+-0.0824", "min_delta", "patience", "epsilon"):
            assert words in found.stdout
        for start in ("- Mechanism:", "- Budget:", "- Certificate:", "- Privacy:"):
            assert start in found.stdout

    def test_json_is_the_plan(self):
        found = call("plan", "--size", "10000", "--queries", "200", "--budget", "20", "--json")
        content = json.loads(found.stdout)
        plan = torch_holdout.plan(size=10_000, queries=200, budget=20)
        assert content["certificate"]["tolerance"] == plan.certificate.tolerance
        assert content["mechanism"] == plan.mechanism.identity()
        assert (content["budget"], content["epsilon"]) == (20, None)  # infinite
        assert content["arguments"] == plan.arguments

    def test_runs_are_planned_for_decisions(self):
        found = call("plan", "--size", "10000", "--queries", "200", "--runs", "20")
        for words in ("A plan for decisions", "20 runs", "+-0.0247", "display", "+-0.0824"):
            assert words in found.stdout
        alone = json.loads(call("plan", "--size", "10000", "--queries", "200", "--json").stdout)
        assert (alone["mechanism"]["kind"], alone["budget"]) == ("sealed", 1)

    def test_the_other_way_round(self):
        size = json.loads(call("plan", "--queries", "200", "--tolerance", "0.05", "--json").stdout)
        assert size["size"] == torch_holdout.plan(queries=200, tolerance=0.05).size
        budget = call("plan", "--size", "20000", "--queries", "99", "--tolerance", ".06", "--json")
        assert json.loads(budget.stdout)["certificate"]["tolerance"] <= 0.06

    def test_says_when_nothing_useful_can_be_certified(self):
        found = call("plan", "--size", "100", "--queries", "200", "--budget", "20")
        assert found.returncode == 0
        assert "Nothing useful can be certified" in found.stdout

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ("--size 0 --queries 200", "Expected `size` to be a whole number from 1"),
            ("--size 100 --queries 200 --failure 0", "number between 0 and 1, but got 0.0"),
            ("--size 100 --queries 200 --failure 1.5", "number between 0 and 1, but got 1.5"),
            ("--size 100 --queries 200 --budget -3", "whole number from 1 to 100000, but got -3"),
            ("--size 100 --queries 200 --tolerance 1.5", "above 0 and at most 1, but got 1.5"),
            ("--size 100 --queries 200 --tolerance nan", "above 0 and at most 1, but got nan"),
            ("--size 100 --queries 200 --delta 2", "number between 0 and 1, but got 2.0"),
            ("--queries 200", "`tolerance` to find the size for"),
            ("--size 100 --queries 200 --runs 2 --budget 3", "Expected `runs` (decisions) or"),
        ],
    )
    def test_bad_input_is_a_sentence(self, arguments, sentence):
        found = call("plan", *arguments.split())
        assert found.returncode == 2
        assert found.stdout == ""
        assert sentence in found.stderr
        assert "Traceback" not in found.stderr

    @pytest.mark.parametrize(
        "arguments", ["", "--queries abc --size 5", "--queries 5 --size 5 --purpose fun"]
    )
    def test_what_is_no_number_or_choice_is_refused_by_the_parser(self, arguments):
        found = call("plan", *arguments.split())
        assert found.returncode == 2
        assert "Traceback" not in found.stderr


class TestStatus:
    def test_shows_what_the_holdout_says(self, tmp_path):
        holdout = ledger(tmp_path)
        found = run("status", str(tmp_path / "holdout.db"))
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout == f"{holdout.status()}\n{holdout.certificate()}\n"

    def test_json(self, tmp_path):
        holdout = ledger(tmp_path)
        found = call("status", f"sqlite:///{tmp_path}/holdout.db", "--json", "--failure", "0.01")
        content = json.loads(found.stdout)["holdouts"]
        assert [h["name"] for h in content] == ["val"]
        assert content[0]["budget_left"] == holdout.status().budget_left
        assert content[0]["certificate"]["tolerance"] == holdout.certificate(0.01).tolerance

    def test_infinite_epsilon_is_null(self, tmp_path):
        ledger(tmp_path, mechanism=torch_holdout.Ladder(step=0.1))
        found = call("status", str(tmp_path / "holdout.db"), "--json")
        assert json.loads(found.stdout)["holdouts"][0]["epsilon"] is None

    def test_neither_raw_values_nor_secrets_are_shown(self, tmp_path):
        ledger(tmp_path)
        connection = sqlite3.connect(tmp_path / "holdout.db")
        thresholds = connection.execute("SELECT threshold FROM th_secret_thresholds")
        secrets = [str(row[0]) for row in thresholds]
        secrets += [row[0].hex() for row in connection.execute("SELECT secret FROM th_secret_keys")]
        connection.close()
        found = call("status", str(tmp_path / "holdout.db"), "--json")
        assert secrets
        assert not any(secret in found.stdout for secret in secrets)

    def test_reading_charges_nothing_and_makes_nothing(self, tmp_path):
        holdout = ledger(tmp_path)
        before = holdout.status()
        call("status", str(tmp_path / "holdout.db"))
        assert holdout.status() == before
        missing = run("status", str(tmp_path / "nope.db"))
        assert missing.returncode == 2
        assert "Expected a ledger file" in missing.stderr
        assert not (tmp_path / "nope.db").exists()

    def test_one_holdout_of_several(self, tmp_path):
        ledger(tmp_path)
        ledger(tmp_path, name="other", budget=9)
        both = json.loads(call("status", str(tmp_path / "holdout.db"), "--json").stdout)
        assert [h["name"] for h in both["holdouts"]] == ["val", "other"]
        one = call("status", str(tmp_path / "holdout.db"), "--name", "other", "--json")
        assert [h["budget"] for h in json.loads(one.stdout)["holdouts"]] == [9]
        charged_records(f"sqlite:///{tmp_path}/holdout.db")
        own = call("status", str(tmp_path / "holdout.db"), "--name", "other", "--json")
        assert own.stdout == one.stdout
        none = call("status", str(tmp_path / "holdout.db"), "--name", "nobody")
        assert none.returncode == 2
        assert "'val', 'other'" in none.stderr

    def test_a_warning_is_a_sentence_beside_the_answer(self, tmp_path):
        holdout = ledger(tmp_path)
        (tmp_path / "holdout.db").chmod(0o644)
        found = call("status", str(tmp_path / "holdout.db"))
        assert (found.returncode, found.stdout.splitlines()[0]) == (
            0,
            str(holdout.status()).splitlines()[0],
        )
        assert found.stderr.startswith("torch-holdout: The ledger ")
        assert "chmod 600" in found.stderr

    def test_an_empty_ledger_and_a_foreign_file(self, tmp_path):
        from torch_holdout.ledger import Ledger

        with Ledger(f"sqlite:///{tmp_path}/empty.db")._transaction(create=True):
            pass
        found = call("status", str(tmp_path / "empty.db"))
        assert (found.returncode, found.stdout) == (0, "The ledger has no account yet.\n")
        (tmp_path / "text.db").write_text("hello")
        foreign = call("status", str(tmp_path / "text.db"))
        assert foreign.returncode == 2
        assert "Traceback" not in foreign.stderr

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE th_holdouts SET releases = 0",
            "UPDATE th_queries SET value = 0.1 WHERE position = 1",
            "DELETE FROM th_queries WHERE position = 2",
        ],
    )
    def test_an_edited_ledger_is_not_believed(self, tmp_path, damage):
        ledger(tmp_path)
        with sqlite3.connect(tmp_path / "holdout.db") as connection:
            connection.execute(damage)
        connection.close()
        found = call("status", str(tmp_path / "holdout.db"))
        assert found.returncode == 2
        assert "edited or lost" in found.stderr

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("mechanism", None),
            ("mechanism", 3),
            ("resolution", None),
            ("statistics", {}),
            ("statistics", {"x": {"units": 0, "grid": 4, "low": 0, "high": 1, "mode": "min"}}),
            ("statistics", {"x": {"units": 5, "grid": 4, "low": "x", "high": 1, "mode": "min"}}),
            ("delta", "much"),
        ],
    )
    def test_edited_parameters_are_not_believed(self, tmp_path, key, value):
        ledger(tmp_path)
        with sqlite3.connect(tmp_path / "holdout.db") as connection:
            text = connection.execute("SELECT registration FROM th_holdouts").fetchone()[0]
            content = {**json.loads(text), key: value}
            if value is None:
                del content[key]
            connection.execute("UPDATE th_holdouts SET registration = ?", [json.dumps(content)])
        connection.close()
        found = call("status", str(tmp_path / "holdout.db"))
        assert found.returncode == 2
        assert "Expected" in found.stderr

    @pytest.mark.parametrize("name", ["a%20b.db", "a?b.db", "a b#c.db"])
    def test_odd_file_names(self, tmp_path, name):
        ledger(tmp_path)
        (tmp_path / "holdout.db").rename(tmp_path / name)
        assert "'val'" in call("status", str(tmp_path / name)).stdout

    def test_a_memory_ledger_cannot_be_seen_from_outside(self):
        found = call("status", "memory://x")
        assert found.returncode == 2
        assert "its own process" in found.stderr

    def test_a_bad_failure(self, tmp_path):
        ledger(tmp_path)
        bad = call("status", str(tmp_path / "holdout.db"), "--failure", "7")
        assert bad.returncode == 2
        assert "number between 0 and 1, but got 7.0" in bad.stderr


class TestPrices:
    def test_shows_what_the_holdouts_say(self, tmp_path):
        live, sealed = ledger(tmp_path), make_sealed(f"sqlite:///{tmp_path}/holdout.db", name="b")
        sealed.status()
        found = run("prices", str(tmp_path / "holdout.db"))
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout == f"{live.prices()}\n\n{sealed.prices()}\n"
        one = call("prices", str(tmp_path / "holdout.db"), "--name", "b")
        assert one.stdout == f"{sealed.prices()}\n"

    def test_of_a_run_with_a_patience(self, tmp_path):
        holdout, _ = sealed_runs(f"sqlite:///{tmp_path}/holdout.db")
        options = ("--patience", "3", "--evaluations", "12", "--failure", "0.01")
        found = call("prices", str(tmp_path / "holdout.db"), *options)
        stop = torch_holdout.Patience("val_loss", 3)
        assert found.stdout == f"{holdout.prices(0.01, stop=stop, evaluations=12)}\n"

    def test_json(self, tmp_path):
        holdout, _ = sealed_runs(f"sqlite:///{tmp_path}/holdout.db")
        content = json.loads(call("prices", str(tmp_path / "holdout.db"), "--json").stdout)
        (found,) = content["holdouts"]
        prices = holdout.prices()
        assert found["cost"] is None  # infinite
        assert found["said"] == prices.said
        assert found["choices"]["record"]["nats"] == prices.choices["record"].nats
        assert found["next"]["by_statistic"] == prices.next.by_statistic

    def test_records_have_none(self, tmp_path):
        charged_records(f"sqlite:///{tmp_path}/holdout.db")
        found = call("prices", str(tmp_path / "holdout.db"))
        assert (found.returncode, found.stdout) == (0, "The ledger has no holdout yet.\n")
        named = call("prices", str(tmp_path / "holdout.db"), "--name", "patients-2026")
        assert (named.returncode, named.stdout) == (2, "")
        assert "is an account of training records" in named.stderr
        ledger(tmp_path)
        both = call("prices", str(tmp_path / "holdout.db"))
        assert both.stdout.endswith("\n\n1 account of training records: see status.\n")

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            (("--patience", "0"), "`patience`"),
            (("--evaluations", "0"), "`evaluations`"),
            (("--evaluations", "x"), "--evaluations"),
        ],
    )
    def test_wrong_options(self, tmp_path, options, sentence):
        sealed_runs(f"sqlite:///{tmp_path}/holdout.db")
        found = call("prices", str(tmp_path / "holdout.db"), *options)
        assert (found.returncode, found.stdout) == (2, "")
        assert sentence in found.stderr

    def test_runs_of_a_live_holdout(self, tmp_path):
        ledger(tmp_path)
        found = call("prices", str(tmp_path / "holdout.db"), "--patience", "3")
        assert (found.returncode, found.stdout) == (2, "")
        assert "has no runs. Leave them out." in found.stderr


class TestAudit:
    def test_a_table_and_a_verdict(self, monkeypatch):
        from torch_holdout import audit

        rows = [
            audit.Row("Thresholdout", "exact", "a round", 2.0, 2.0),
            audit.Row("no noise", "exact", "a round", 2.0, math.inf, twin=True),
        ]
        monkeypatch.setattr(audit, "audit", lambda **options: rows)
        found = call("audit")
        assert found.returncode == 0
        assert "1 of 1 checks hold; 1 of 1 broken twins were caught" in found.stdout
        content = json.loads(call("audit", "--json").stdout)["rows"]
        assert [row["right"] for row in content] == [True, True]
        rows.append(audit.Row("Ladder", "exact", "a round", 2.0, 2.5))
        leaking = call("audit")
        assert leaking.returncode == 1
        assert "LEAKS" in leaking.stdout
        rows[-1] = audit.Row("less noise", "exact", "a round", 2.0, 2.0, twin=True)
        missed = call("audit")
        assert missed.returncode == 1
        assert "MISSED" in missed.stdout

    def test_bad_draws(self):
        assert call("audit", "--draws", "3").returncode == 2
