"""The sdist and the wheel: what is in them, and that the wheel works where nothing else is."""

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch_holdout

from support.machines.base_site import closure, environment, linked

pytestmark = [pytest.mark.integration, pytest.mark.slow]
ROOT = Path(__file__).parent.parent
VERSION = torch_holdout.__version__


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the sdist, and the wheel from the sdist, as a release does."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    return folder


def wheel(folder):
    (found,) = folder.glob("*.whl")
    return found


def metadata(folder):
    with zipfile.ZipFile(wheel(folder)) as opened:
        text = opened.read(f"torch_holdout-{VERSION}.dist-info/METADATA").decode()
    return email.message_from_string(text)


def test_the_wheel_has_the_package_and_nothing_else(built):
    with zipfile.ZipFile(wheel(built)) as opened:
        inside = set(opened.namelist())
        scripts = opened.read(f"torch_holdout-{VERSION}.dist-info/entry_points.txt").decode()
    ours = {path for path in inside if ".dist-info/" not in path}
    source = ROOT / "torch_holdout"
    wanted = {
        str(path.relative_to(ROOT))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours == wanted  # templates and py.typed too
    assert "torch_holdout/py.typed" in ours
    assert f"torch_holdout-{VERSION}.dist-info/licenses/LICENSE" in inside
    assert "torch-holdout = torch_holdout.cli:main" in scripts


def test_the_metadata_says_the_version_and_the_extras(built):
    found = metadata(built)
    assert (found["Name"], found["Version"]) == ("torch-holdout", VERSION)
    assert {"lightning", "optuna", "ray", "demo"} <= set(found.get_all("Provides-Extra"))
    assert f"\n## {VERSION} (" in (ROOT / "CHANGELOG.md").read_text()


def test_the_sdist_can_be_tested(built):
    (found,) = built.glob("*.tar.gz")
    with tarfile.open(found) as opened:
        names = {name.split("/", 1)[1] for name in opened.getnames() if "/" in name}
    for wanted in (
        *("tests/conftest.py", "tests/assets/ledger_v1.db", "docs/hooks/reference.py"),
        *("benchmarks/results.json", "examples/README.md", "configs/early_stopping.yaml"),
        *("mkdocs.yml", "LICENSE", "constraints.txt", ".pre-commit-config.yaml", "Makefile"),
        *("noxfile.py", "CITATION.cff", "CODE_OF_CONDUCT.md", ".github/workflows/tests.yml"),
    ):
        assert wanted in names
    assert not any(name.endswith((".pyc", ".png.bak")) or ".venv" in name for name in names)


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A fresh environment with the wheel and its base dependencies; return its folder."""
    folder = tmp_path_factory.mktemp("fresh")
    needed = [line for line in metadata(built).get_all("Requires-Dist") if "extra ==" not in line]
    site = linked(closure(needed).values(), folder / "site")
    python = environment(folder / "venv", site)
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    install += ["--no-deps", "--no-index", "--disable-pip-version-check", str(wheel(built))]
    subprocess.run(install, check=True)
    return folder


def outside(folder, *command):
    """Run a command of the fresh environment, in a folder that is not the repository."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    program = str(folder / "venv" / "bin" / command[0])
    found = subprocess.run(
        [program, *command[1:]], cwd=folder, env=clean, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout


RELEASE = """
import torch, torch_holdout as th
holdout = th.ReusableHoldout(
    "sqlite:///holdout.db", name="val", size=100, statistics={"val_acc": th.ZeroOne()},
    mechanism=th.Thresholdout(threshold=0.02, sigma=0.002, guess="last"), budget=3,
)
metric = th.ReusableHoldoutMetric(holdout, "val_acc")
metric.update(torch.eye(3)[torch.zeros(100, dtype=torch.long)], torch.zeros(100, dtype=torch.long))
print(th.__file__, metric.compute().dtype, metric.answer.kind, holdout.status().budget_left)
"""


def test_the_installed_wheel_releases(installed):
    assert outside(installed, "torch-holdout", "--version").strip() == VERSION
    where, *said = outside(installed, "python", "-c", RELEASE).split()
    assert where.startswith(str(installed))
    assert said == ["torch.float64", "release", "2"]
    assert "2 of 3 releases left" in outside(installed, "torch-holdout", "status", "holdout.db")


def test_the_installed_wheel_shows_the_demo(installed):
    printed = " ".join(outside(installed, "torch-holdout", "demo", "--epochs", "2").split())
    assert "Generated patterns in ten classes" in printed
    assert "Both parts in one table: demo/demo.txt" in printed
