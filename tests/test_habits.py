"""The files around the code parse and say what is true: hooks, templates, CONTRIBUTING."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from test_architecture import FILES, tree

ROOT = Path(__file__).parent.parent
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_hooks_come_from_the_projects_own_environment():
    assert len(yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]) == 1
    for hook in HOOKS:
        assert hook["language"] in ("system", "fail")
        assert hook["language"] == "fail" or hook["entry"].startswith(".venv/bin/")
        re.compile(hook.get("files", ""))


@pytest.mark.parametrize("hook", [h for h in HOOKS if h["id"].startswith("ruff")], ids=str)
def test_the_ruff_hooks_run_and_can_fail(hook, tmp_path):
    """The entry as it is, with this environment's tools; on a copy, because hooks may rewrite."""
    tool = Path(sys.executable).parent / "ruff"
    entry = [str(tool), *shlex.split(hook["entry"])[1:]]
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text('"""A file."""\n')
    bad.write_text("import os\nx = (\n")
    config = ["--config", str(ROOT / "pyproject.toml")]
    for path, code in ((good, 0), (bad, None)):
        found = subprocess.run([*entry, *config, str(path)], capture_output=True, check=False)
        assert (found.returncode == 0) == (code == 0), found.stderr


@pytest.mark.parametrize("name", ["mypy", "pytest"])
def test_the_other_hooks_tools_are_there(name):
    entries = [shlex.split(hook["entry"]) for hook in HOOKS if hook["language"] == "system"]
    assert any(entry[:3] == [".venv/bin/python", "-m", name] for entry in entries)
    subprocess.run([sys.executable, "-m", name, "--version"], capture_output=True, check=True)


def test_the_ledger_hook_knows_ledgers_from_assets():
    (hook,) = [hook for hook in HOOKS if hook["id"] == "no-ledgers"]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    assets = [str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "assets").glob("*.db")]
    assert assets
    secret = ["holdout.db", "a/private.db-wal", "holdout.db.challenges/0f/1e.levels"]
    for path in [*tracked.stdout.split(), *assets, *secret]:
        refused = re.search(hook["files"], path) and not re.search(hook["exclude"], path)
        assert bool(refused) == (path in secret)


def test_contributing_lists_what_is_skipped_without_an_optional_package():
    """By the word in the code; that a package is installed is what `-rs` of a run shows."""
    skips = "pytest." + "importorskip("
    files = {path for path in (ROOT / "tests").rglob("*.py") if skips in path.read_text()}
    assert files
    said = (ROOT / "CONTRIBUTING.md").read_text()
    assert [path for path in files if str(path.relative_to(ROOT)) not in said] == []


def test_make_check_leaves_out_what_exists():
    """pytest ignores a path that is not there without a word, so a file that moved would run."""
    listed = re.search(
        r"^LONG := (.*?[^\\\\])\n", (ROOT / "Makefile").read_text(), re.M | re.S
    ).group(1)
    paths = listed.replace("\\", " ").split()
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / "tests" / path).exists()] == []


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_are_whole(path):
    content = yaml.safe_load(path.read_text())
    if path.name == "config.yml":
        assert content == {"blank_issues_enabled": False}
        return
    assert content["name"]
    assert content["description"]
    ids = [field["id"] for field in content["body"] if field["type"] != "markdown"]
    assert ids
    assert len(set(ids)) == len(ids)
    for field in content["body"]:
        assert field["type"] in ("markdown", "textarea", "input")
        assert ("value" if field["type"] == "markdown" else "label") in field["attributes"]


def test_contributing_names_every_folder_and_only_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    package = ROOT / "torch_holdout"
    folders = [p.parent.name for p in package.glob("*/__init__.py")]
    for folder in [*folders, *("tests", "examples", "configs", "benchmarks", "docs")]:
        assert f"`{folder}/`" in text
    paths = re.findall(
        r"`((?:torch_holdout|tests|examples|benchmarks|docs|configs)/[\w./]+)`", text
    )
    assert len(paths) > 10
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert missing == []


# Names under which a distribution is imported, where they differ.
BROUGHT_BY = {"markupsafe": "jinja2", "sklearn": "scikit-learn"}


def undeclared(source, declared):
    """Name what is imported from outside and is neither Python's own nor a dependency."""
    found = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
    outside = found - sys.stdlib_module_names - {"torch_holdout"}
    return {
        name
        for name in outside
        if BROUGHT_BY.get(name, name.lower().replace("_", "-")) not in declared
    }


def test_what_the_package_imports_is_declared():
    """A dependency's own dependencies are its business: they may go."""
    text = (ROOT / "pyproject.toml").read_text()
    project = text[text.index("\ndependencies = [") : text.index("\ndev = [")]
    declared = {name.lower() for name in re.findall(r'"([\w.-]+)(?:\[[\w,-]+\])?[<>=!]', project)}
    found = {path: undeclared(tree(path), declared) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}
    assert undeclared(ast.parse("import json, rich\nfrom yaml import x"), declared) == {"yaml"}
