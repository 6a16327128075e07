"""Both ends of every version that the metadata claims, each in an environment of its own.

    pip install nox
    nox -s floors              # the lowest versions: the quick tests, Python 3.10
    nox -s newest-3.13         # the newest versions: every test
    nox -l                     # the others

`make test` needs none of it. Environments with torch take about a gigabyte each, and are reused.
"""

import subprocess
import sys
from pathlib import Path

import nox

HERE = Path(__file__).parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
EXTRAS = ("lightning", "accounting", "cli", "optuna", "service", "remote", "demo", "transformers")
TOOLS = ("hypothesis", "psutil", "pytest>=8", "pytest-timeout", "pytest-xdist", "scipy")
PYTEST = ("python", "-m", "pytest", "-q", "-n", "2", "--no-loadscope-reorder")
# Left out at the floors, as in `make check`: what trains for long, builds, or needs the newest.
QUICK = ("not slow and not integration and not statistical", "tests/ledger", "tests/statistics",
         "tests/mechanisms", "tests/accounting", "tests/planning", "tests/holdout",
         "tests/report", "tests/test_cli.py", "tests/training")  # fmt: skip

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "docs", "wheel"]


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff and mypy, as `make lint`, at the tested versions."""
    session.install("-c", "constraints.txt", "-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Every test at the tested versions, as `make test`."""
    session.install("-c", "constraints.txt", "-e", ".[dev]")
    session.run(*PYTEST, *session.posargs)


@nox.session(python=PYTHONS)
def newest(session: nox.Session) -> None:
    """Every test at whatever pip finds."""
    session.install("--upgrade", "-e", ".[dev]")
    session.run("python", "-m", "pip", "list")
    session.run(*PYTEST, *session.posargs)


@nox.session(python="3.10")
def floors(session: nox.Session) -> None:
    """The quick tests at the lowest version of each dependency."""
    script = [sys.executable, str(HERE / ".ci" / "floors.py"), *EXTRAS]
    lowest = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    constraints = Path(session.create_tmp()) / "floors.txt"
    constraints.write_text(lowest)
    session.install("-c", str(constraints), "-e", f".[{','.join(EXTRAS)}]", *TOOLS)
    session.run("python", "-m", "pip", "list")
    # Old packages warn about new ones that they bring along (typer about click): not ours to fix.
    quiet = ("-W", "ignore::DeprecationWarning")
    session.run(*PYTEST, *quiet, "-m", QUICK[0], *(session.posargs or QUICK[1:]))


@nox.session
def docs(session: nox.Session) -> None:
    """The site, without a warning."""
    session.install("-c", "constraints.txt", "-e", ".[dev]")
    session.run(
        "mkdocs", "build", "--strict", "--site-dir", "site", env={"NO_MKDOCS_2_WARNING": "1"}
    )


@nox.session
def wheel(session: nox.Session) -> None:
    """The sdist and the wheel; the wheel with its base dependencies only runs the demo."""
    session.install("build")
    folder = Path(session.create_tmp()) / "dist"
    session.run("python", "-m", "build", "--outdir", str(folder))
    (made,) = folder.glob("*.whl")
    session.install("-c", "constraints.txt", str(made))
    with session.chdir(session.create_tmp()):
        session.run("torch-holdout", "demo", "--epochs", "10")
