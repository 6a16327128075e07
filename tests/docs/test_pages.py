"""Every page's Python runs, in order, in an empty folder; every command on it exists."""

import contextlib
import sys

import pytest
from torch_holdout.service.server import hosting

from support.builders import boards
from support.machines.board_server import in_thread
from support.machines.site import ROOT, blocks, commands, run_blocks, shown_outputs, wrong_commands

PAGES = sorted((ROOT / "docs").rglob("*.md"))
# How many of the outputs that a page shows are the same wherever they are printed: no noise before
# them and no training.
EXACT = {
    "any-framework.md": 1,
    "challenge.md": 2,
    "closing.md": 4,
    "configurations.md": 3,
    "costs.md": 1,
    "derivations.md": 8,
    "existing-project.md": 1,
    "guarantees.md": 1,
    "many-runs.md": 2,
    "ratios.md": 1,
    "read-a-report.md": 1,
    "tutorial.md": 2,
    "units.md": 2,
    "what-a-board-promises.md": 1,
}
named = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT / "docs")))


# Pages that ask a board: in place of this address they get that of a real server.
ADDRESS = "https://host/boards/digits-2026"
ASKING = {"submit.md": {}, "gate-an-agent.md": boards.GATE}


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serve a board of a mode; return its page's address."""
    with contextlib.ExitStack() as stack:

        def serve(parts):
            board, _ = boards.with_teams(tmp_path / "board", "alpha", **parts)
            token = hosting.rotate(board.config, "team", "alpha", at_once=True)
            monkeypatch.setenv("TORCH_HOLDOUT_TOKEN", token)
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
            (tmp_path / "counters").mkdir()
            return f"{stack.enter_context(in_thread(board, tmp_path / 'counters'))}/boards/digits"

        yield serve


@named
# Lightning's own, of how it looks into batches and loaders.
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning", "ignore:.*num_workers.*")
def test_the_python_blocks_run(page, tmp_path, monkeypatch, served):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [page.name])  # LightningCLI looks for pytest's arguments
    text = page.read_text()
    if page.name in ASKING:
        text = text.replace(ADDRESS, served(ASKING[page.name]))
    printed = run_blocks(text, page.name)
    exact = list(shown_outputs(text).items())[: EXACT.get(page.name, 0)]
    assert len(exact) == EXACT.get(page.name, 0)
    for number, shown in exact:
        assert printed[number].strip() == shown.strip()


@named
def test_the_commands_exist(page):
    assert wrong_commands(page.read_text()) == []


def test_blocks_share_a_namespace_and_none_is_left_out():
    page = "```python\nx = [1]\n```\n\n- item\n\n  ```python\n  x.append(2)\n  ```\n"
    assert blocks(page, "python") == ["x = [1]\n", "x.append(2)\n"]
    more = "```python title='y'\nassert x == [1, 2]\nprint(x)\n```\n"
    assert run_blocks(page + more, "page") == ["", "", "[1, 2]\n"]


def test_outputs_are_found():
    page = "```python\n1\n```\n\n```python\n2\n```\n\n```text\ntwo\n```\nwords\n\n```text\nx\n```\n"
    assert shown_outputs(page) == {1: "two\n"}


def test_twin_with_a_failing_block_is_caught():
    with pytest.raises(NameError, match="nowhere"):
        run_blocks("```python\nprint(nowhere)\n```\n", "page")


def test_commands_are_found():
    page = "```console\n$ torch-holdout plan --queries 3 \\\n    --size 9\nan answer\n```\n"
    assert list(commands(page)) == ["torch-holdout plan --queries 3      --size 9"]
    assert wrong_commands(page) == []


@pytest.mark.parametrize(
    "typed",
    [
        "torch-holdout fly",
        "torch-holdout board",
        "torch-holdout board fly board.toml",
        "torch-holdout board init",
        "torch-holdout plan --size 10",  # queries are required
        "torch-holdout plan --queries 3 --sizes 10",
        "torch-holdout plan --queries many",
        "torch-holdout --versions",
        "make fly",
        "python examples/nothing_like_this.py",
    ],
)
def test_twin_with_a_wrong_command_is_caught(typed):
    assert len(wrong_commands(f"```bash\n{typed}  # why\n```\n")) == 1


@pytest.mark.parametrize("words", ["torch-holdout fly", "make fly"])
def test_twin_with_a_wrong_command_in_a_line_is_caught(words):
    assert len(wrong_commands(f"Then `{words}` it.")) == 1


@pytest.mark.parametrize(
    "typed",
    [
        "torch-holdout --version",
        "torch-holdout plan --help",
        "torch-holdout board close board.toml --vault vault.labels",
        "torch-holdout status holdout.db --json | head",
        "make test",
        "python examples/train.py fit --config configs/early_stopping.yaml",
        "python my_training.py",
    ],
)
def test_right_commands_pass(typed):
    assert wrong_commands(f"```\n$ {typed}\n```\n") == []
