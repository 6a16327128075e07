"""Each example runs, at small size, and twice."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_holdout.cli import app
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent


def attempt(script, *arguments):
    command = [sys.executable, str(ROOT / "examples" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(script, *arguments):
    found = attempt(script, *arguments)
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


def test_plain_loop_continues_its_ledger(tmp_path):
    ledger = str(tmp_path / "holdout.db")
    first = run("plain_loop.py", "--ledger", ledger, "--epochs", "2")
    assert "release" in first
    second = run("plain_loop.py", "--ledger", ledger, "--epochs", "3")
    assert second.count(" repeat ") == 2  # the same seed, the same weights: no new cost
    assert "asked 3 times" in second


def test_any_framework_repeats_itself_in_another_process(tmp_path):
    ledger = str(tmp_path / "holdout.db")
    first = run("any_framework.py", "--ledger", ledger)
    assert first.count(" release ") >= 1
    second = run("any_framework.py", "--ledger", ledger)
    assert second.count(" repeat ") == 6  # th.digest names a model by its content
    closed = [printed.split("best: ")[0] for printed in (first, second)]
    assert closed[0] == closed[1]
    assert closed[0].count("[0.") == 6


def test_a_leaderboard_is_closed_and_the_vault_judges(tmp_path):
    folder = tmp_path / "board"
    printed = run("leaderboard.py", "--folder", str(folder), "--accounts", "3")
    assert "chosen by 3 more accounts" in printed
    assert "6 accounts in the leaderboard" in printed
    assert sum(line.startswith("bayes ") for line in printed.splitlines()) >= 3
    assert (folder / "results.html").exists()
    assert len(json.loads((folder / "results.json").read_text())["finalists"]) >= 4


def test_an_agents_loop_keeps_nothing_that_is_worth_nothing():
    """A false keep has a probability of 5 % at most; with these 5 challenges far less."""
    printed = run("agent_loop.py", "--challenges", "5")
    (certified,) = [line for line in printed.splitlines() if line.startswith("certified")]
    assert certified.split()[1] == "0"
    assert "keep if better" in printed


def test_a_remote_guard_trains_without_labels():
    printed = run("remote_guard.py", "--epochs", "3")
    assert "ended after 3 epochs" in printed
    assert "named a finalist: repeat" in printed or "named a finalist: guess" in printed


def test_early_stopping_continues_its_ledger(tmp_path):
    ledger = str(tmp_path / "holdout.db")
    assert "asked 4 times" in run("early_stopping.py", "--ledger", ledger, "--epochs", "2")
    assert "asked 6 times" in run("early_stopping.py", "--ledger", ledger, "--epochs", "1")


def test_early_stopping_says_when_the_budget_is_gone(tmp_path):
    """The second run is a sentence, not a traceback: the trap of running an example twice."""
    ledger = str(tmp_path / "holdout.db")
    small = ("--ledger", ledger, "--epochs", "3", "--budget", "2")
    assert "0 of 2 releases left" in run("early_stopping.py", *small)  # the first epoch takes both
    found = attempt("early_stopping.py", *small)
    assert found.returncode == 1
    assert "its budget (2 releases) is spent. Bring a fresh holdout" in found.stderr
    assert "Traceback" not in found.stderr


def test_hugging_face_continues_its_ledger(tmp_path):
    ledger = str(tmp_path / "holdout.db")
    first = run("hugging_face.py", "--ledger", ledger, "--epochs", "2")
    assert "asked 4 times" in first
    assert "sealed: 2 evaluations" in first
    assert "asked 4 times" in run("hugging_face.py", "--ledger", ledger, "--epochs", "2")


def test_sealed_stopping_closes_its_ledger(tmp_path):
    small = ("--ledger", str(tmp_path / "holdout.db"), "--epochs", "3", "--patience", "1")
    printed = run("sealed_stopping.py", *small)
    assert "holdout 'digits-val', closed: 797 examples, 1 run" in printed
    assert "<- best by val_loss" in printed
    found = attempt("sealed_stopping.py", *small)
    assert found.returncode == 1
    assert "but it was closed, for good" in found.stderr
    assert "Traceback" not in found.stderr


def test_private_stopping_shows_no_curve():
    printed = run("sealed_stopping.py", "--epochs", "3", "--patience", "1", "--epsilon", "1")
    assert "no exact value was published, and no sums are kept" in printed
    assert "val_acc" not in printed


def test_display_runs_go_on_until_they_are_closed(tmp_path):
    small = ("--ledger", str(tmp_path / "holdout.db"), "--epochs", "2")
    printed = run("display_runs.py", *small, "--keep-open")
    assert "3 runs begun, 6 evaluations, 0 nats said" in printed
    assert "best:" not in printed
    printed = run("display_runs.py", *small)
    assert "6 runs, 24 values" in printed
    assert re.search(r"The weights of run \d, evaluation \d, are loaded", printed)


def test_ddp_charges_once_and_tells_both_ranks_the_same(tmp_path):
    ledger = str(tmp_path / "holdout.db")
    found = attempt("ddp.py", "--ledger", ledger, "--epochs", "3")
    assert found.returncode == 0, found.stderr[-3000:]
    rows = [line.split() for line in found.stdout.splitlines() if re.match(r" +[123]  ", line)]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert all(row[1] == row[2] for row in rows)
    assert [int(row[4]) for row in rows] == [2, 4, 6]  # two statistics, two ranks: two queries
    assert "asked 6 times" in found.stdout
    assert "self.log" not in found.stderr  # no advice about what the guard logs
    status = CliRunner().invoke(app, ["status", ledger]).stdout
    assert "asked 6 times" in status


def test_science_prints_and_draws(tmp_path):
    picture = tmp_path / "science.png"
    small = ("--repetitions", "2", "--size", "400", "--features", "400", "--output", str(picture))
    first = run("science.py", *small)
    assert "20 features correlated Algorithm 1" in first
    assert "no guarantee" in first
    assert picture.stat().st_size > 20_000
    assert run("science.py", *small) == first  # the same seed, the same table


def test_attacks_print_and_draw(tmp_path):
    picture = tmp_path / "attacks.png"
    for _ in range(2):
        printed = run("attacks.py", "--quick", "--output", str(picture))
        assert printed.count("raw holdout") == 5
        assert picture.stat().st_size > 20_000


def test_mechanisms_are_compared_and_drawn(tmp_path):
    picture = tmp_path / "mechanisms.png"
    small = ("--seeds", "2", "--epochs", "3", "--configurations", "3", "--output", str(picture))
    printed = run("mechanisms.py", *small)
    for words in ("digits, CE/5", "noise labels, 0-1", "Ladder u/2 +noise", str(picture)):
        assert words in printed
    assert picture.stat().st_size > 20_000


def test_blockwise_auroc_shows_the_distance_to_the_whole():
    printed = run("blockwise_auroc.py", "--size", "2000")
    assert "AUROC of all 2000 examples" in printed
    assert len(printed.splitlines()) == 10


def test_nearest_neighbours_pay_once(tmp_path):
    small = ("--records", "600", "--questions", "20", "--public", "60", "--folder", str(tmp_path))
    first = run("nearest_neighbours.py", *small)
    assert "buys 80 queries; 80 left" in first
    assert "20 fresh digits" in first
    assert "student of 60 labels (of 60 queries)" in first
    assert "adding or removing one record" in first
    again = run("nearest_neighbours.py", *small)
    assert "nothing is left for questions" in again
    assert "80 queries answered, 0 left" in again


def test_private_prediction_pays_once(tmp_path):
    small = ("--parts", "20", "--public", "30", "--steps", "10", "--folder", str(tmp_path))
    first = run("private_prediction.py", *small)
    assert "student of 30 labels (of 30 queries): epsilon 8 at delta 1e-05" in first
    assert (tmp_path / "accuracy.png").stat().st_size > 20_000
    assert "student of 30 labels" in run("private_prediction.py", *small)
    printed = CliRunner().invoke(app, ["status", str(tmp_path / "private.db")]).stdout
    assert "records 'digits': 30 queries answered" in printed


def test_sensitive_records_stop_at_their_budget(tmp_path):
    ledger = str(tmp_path / "private.db")
    small = ("--patients", "300", "--parts", "20", "--steps", "10", "--ledger", ledger)
    first = run("sensitive_records.py", *small)
    assert "adding or removing one user" in first
    assert "buys 100 queries; 100 left" in first
    assert "asked again: the same" in first
    assert "60 queries answered, 40 left" in first
    assert "100 more at once: none answered" in first
    again = run("sensitive_records.py", *small)
    assert "buys 100 queries; 40 left" in again


def test_optuna_sweep_prints_and_draws(tmp_path):
    picture, ledger = tmp_path / "sweep.png", str(tmp_path / "holdout.db")
    small = ("--trials", "12", "--size", "300", "--output", str(picture), "--ledger", ledger)
    first = run("optuna_sweep.py", *small)
    for words in ("raw holdout claims", "guarded holdout claims", "released for trial"):
        assert words in first
    assert "sealed holdout claims" in first
    assert "for all evaluations at once" in first
    assert picture.stat().st_size > 20_000
    assert "not the overfitting to the holdout" in first
    again = run("optuna_sweep.py", *small)  # the same seed, the same weights: repeats
    assert spent(again) == spent(first) + 1  # but the winner was asked afresh once more


def spent(printed):
    return int(re.search(r"releases spent +(\d+) of", printed).group(1))


def test_ray_sweep_stops_at_its_budget(tmp_path):
    small = ("--ledger", str(tmp_path / "holdout.db"), "--trials", "2", "--epochs", "2")
    printed = run("ray_sweep.py", *small, "--budget", "1")
    assert printed.count("last display_acc") == 2
    assert printed.count("last display_acc nan") == 1  # beyond the budget
    assert "0 of 1 run left (exhausted)" in printed
    assert "for all evaluations at once" in printed


EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def test_examples_are_all_tested():
    known = {"plain_loop.py", "early_stopping.py", "science.py", "attacks.py", "mechanisms.py"}
    known |= {"blockwise_auroc.py", "private_prediction.py", "sensitive_records.py"}
    known |= {"nearest_neighbours.py"}
    known |= {"train.py", "train_private.py"}  # in test_configs.py
    known |= {"train_unedited.py"}  # there too
    known |= {"train_hydra.py"}  # in test_hydra.py
    known |= {"sealed_stopping.py", "display_runs.py"}
    known |= {"optuna_sweep.py", "ray_sweep.py", "ddp.py"}
    known |= {"leaderboard.py", "agent_loop.py", "remote_guard.py"}
    known |= {"any_framework.py", "hugging_face.py"}
    assert set(EXAMPLES) == known


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_says_how_to_run_it_and_what_it_leaves(name):
    source = (ROOT / "examples" / name).read_text()
    text = " ".join(ast.get_docstring(ast.parse(source)).split())
    assert f"python examples/{name}" in text
    assert "second" in text or "minute" in text
    assert "eaves" in text or "temporary folder" in text


def test_the_index_lists_every_example():
    listed = re.findall(r"^\| \[`(\w+\.py)`\]", (ROOT / "examples" / "README.md").read_text(), re.M)
    assert sorted(listed) == EXAMPLES


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXAMPLES if not name.startswith("train")])
def test_help_keeps_the_lines(name):
    """``train*.py`` are LightningCLIs and Hydra's, with a help of their own."""
    assert f"\n    python examples/{name}" in run(name, "--help")
