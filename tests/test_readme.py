"""Every code block of the README runs in an empty folder; its commands and links exist."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch_holdout as th
import typer
from torch_holdout.cli import app
from torch_holdout.ledger import Ledger

from support.oracles.benchmarks import FOLDER, benchmark_module

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
BLOCKS = [text for language, text in FENCED if language == "python"]
SHELL = "\n".join(text for language, text in FENCED if not language)
LIGHTNING = next(block for block in BLOCKS if "import lightning" in block)
COMMANDS = re.findall(r"^torch-holdout (.*?)(?: +#.*)?$", SHELL, flags=re.MULTILINE)


# Lightning's own, of how it looks into batches and loaders.
@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec.*:FutureWarning", "ignore:.*num_workers.*", "ignore:.*log_every_n_steps.*"
)
def test_the_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == 7
    names = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "of 40 releases left" in printed
    assert "95 % confidence" in printed
    assert "holdout 'val', closed: 5,000 examples, 1 run" in printed
    assert "9 of 10 releases left" in printed
    assert "10 queries answered" in printed
    assert names["metric"].answer.kind == "release"
    assert {path.name for path in tmp_path.glob("*.db")} == {
        "holdout.db", "sealed.db", "loop.db", "sweep.db", "private.db",
    }  # fmt: skip


@pytest.mark.integration
def test_the_lightning_run_is_a_file_of_its_own_and_the_commands_after_it_work(tmp_path):
    commands = [line.split() for line in COMMANDS if line.startswith(("status", "report"))]
    assert len(commands) == 2
    asked = []
    for script in (LIGHTNING, LIGHTNING, LIGHTNING.replace("lr=3e-3", "lr=1e-2")):
        (tmp_path / "run.py").write_text(script)
        python(tmp_path, "run.py")
        for words in commands:
            python(tmp_path, "-c", "from torch_holdout.cli import main; main()", *words)
        ledger = Ledger(f"sqlite:///{tmp_path}/holdout.db")
        asked.append(len(ledger.answers(ledger.accounts()["val"])))
    assert asked[0] == asked[1] < asked[2]
    page = (tmp_path / "report.html").read_text()
    assert "version_0" in page
    assert "version_1" not in page  # the same weights: only repeats
    assert "version_2" in page


def python(folder, *arguments):
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize("target", re.findall(r"make (\w+)", README))
def test_the_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", README))
def test_the_links_lead_somewhere(link):
    path, _, anchor = link.partition("#")
    assert (ROOT / path).exists()
    if anchor:
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), flags=re.MULTILINE)
        assert anchor in [re.sub(r"[^\w-]", "", h.lower().replace(" ", "-")) for h in headings]


@pytest.mark.parametrize(
    "name", re.findall(r"`(?:python )?((?:examples|docs|configs)/[\w./]+)`", README)
)
def test_the_files_it_names_exist(name):
    assert (ROOT / name).exists()


@pytest.mark.parametrize("line", COMMANDS)
def test_its_commands_are_understood(line):
    name, *words = line.split()
    typer.main.get_command(app).commands[name].make_context(name, words)


def test_the_public_names_it_uses_exist():
    for name in set(re.findall(r"\bth\.(\w+)", README)):
        assert name in th.__all__


def test_the_first_table_is_that_of_the_committed_results():
    """A twin: one changed number in the results, or in the README, is another text."""
    table = benchmark_module("_first_table")
    results = json.loads((FOLDER / "results.json").read_text())
    tasks, fits = benchmark_module("_quality_tasks"), benchmark_module("_quality_fits")
    assert (tasks.TABULAR.range, tasks.TABULAR_HITS.range) == table.RANGES
    assert (tasks.TABULAR.name, tasks.TABULAR_HITS.name) == (table.LOSS, table.HITS)
    assert (fits.EPOCHS, fits.RELEASES) == (table.QUERIES, table.BUDGET)
    assert table.with_table(README, results) == README
    (row,) = (r for r in results["rows"] if r["case"] == f"{table.LOSS}, live plan")
    row["ours"] += 0.001
    assert table.with_table(README, results) != README
    with pytest.raises(ValueError, match="no place"):
        table.with_table("no comments", results)
    with pytest.raises(ValueError, match="lack"):
        table.with_table(README, {"rows": [r for r in results["rows"] if r["case"] != row["case"]]})


def test_the_first_screen_says_all_of_it():
    """What it is, the picture, the table, both commands and the shortest run, in this order."""
    first = README[: README.index("\n## ")]
    parts = ("wears out", ".png)", "| epsilon |", "make demo", "make test", "```python")
    found = [first.index(part) for part in parts]
    assert found == sorted(found)
    assert len(first.splitlines()) <= 60
    for row in ("| raw values |", "| guarded values |", "| sealed: "):
        assert first.count(row) == 1


def test_the_door_is_one_click_away():
    assert "(torch_holdout/holdout/door.py)" in README
    assert (ROOT / "torch_holdout" / "holdout" / "door.py").read_text().startswith('"""The door')
