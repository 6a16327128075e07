"""What stands beside the code agrees with it: citation, versions, workflows, ledgers kept."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch_holdout
import yaml
from torch_holdout.ledger.schema import SCHEMA_VERSION

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # of the service extra

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_citation_is_of_this_version():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert found["version"] == torch_holdout.__version__ == PROJECT["version"]
    assert found["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(found)


def test_a_ledger_of_every_earlier_schema_is_kept():
    kept = {path.name for path in (ROOT / "tests" / "assets").glob("ledger_v*.db")}
    assert kept >= {f"ledger_v{version}.db" for version in range(1, SCHEMA_VERSION)}


def test_the_floors_are_those_of_the_metadata():
    floors = module(ROOT / ".ci" / "floors.py").floors
    text = (ROOT / "pyproject.toml").read_text()
    found = floors(text, ["lightning"])
    assert len(found) == len(PROJECT["dependencies"]) + 1
    assert found["torch"] == re.search(r'"torch>=([\d.]+)"', text)[1]
    with pytest.raises(ValueError, match="no lowest version in 'torch'"):
        floors(text.replace('"torch>=2.4"', '"torch"'), [])


def test_the_workflow_calls_sessions_that_exist():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    noxfile = (ROOT / "noxfile.py").read_text()
    sessions = set(re.findall(r"^def (\w+)\(session", noxfile, flags=re.MULTILINE))
    jobs = workflow["jobs"]
    assert set(jobs["sessions"]["strategy"]["matrix"]["session"]) <= sessions
    pythons = set(re.search(r"^PYTHONS = (.*)$", noxfile, flags=re.MULTILINE)[1].split('"')[1::2])
    matrix = jobs["tests"]["strategy"]["matrix"]
    assert set(matrix["python"]) == pythons
    systems = {*matrix["system"], *(each["system"] for each in matrix["include"])}
    assert {name.partition("-")[0] for name in systems} == {"ubuntu", "macos", "windows"}
    called = re.findall(r"nox -s (\w+)", (ROOT / ".github/workflows/tests.yml").read_text())
    assert set(called) <= sessions
    assert PROJECT["requires-python"] == f">={min(pythons, key=lambda p: int(p[2:]))}"


def test_the_extras_of_the_floors_exist():
    extras = re.search(r"^EXTRAS = \(([^)]*)\)", (ROOT / "noxfile.py").read_text(), flags=re.M)[1]
    assert set(extras.split('"')[1::2]) <= set(PROJECT["optional-dependencies"])


def test_the_policies_are_on_the_site_or_in_the_repository():
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "docs/stability.md"):
        assert (ROOT / name).stat().st_size > 500
    assert "stability.md" in (ROOT / "mkdocs.yml").read_text()
