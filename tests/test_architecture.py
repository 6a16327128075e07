"""Imports point one way; one file samples; one file opens raw values."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch_holdout

PACKAGE = Path(torch_holdout.__file__).parent
ROOT = PACKAGE.parent
# The order stands in CONTRIBUTING only: the block after this sentence.
LAYERS = (
    (ROOT / "CONTRIBUTING.md").read_text().split("Imports point one way")[1].split("```")[1].split()
)
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names.split("|")}
FILES = sorted(PACKAGE.rglob("*.py"))


def layer(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def tree(path):
    return ast.parse(path.read_text())


def imported_layers(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch_holdout."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.startswith("torch_holdout."):
                    yield name.name.split(".")[1]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    if layer(path) == "__init__":
        return
    own = layer(path)
    assert own in RANKS, "a new module needs a place in the order"
    for other in imported_layers(path):
        assert other == own or RANKS[other] < RANKS[own], f"{own} may not import {other}"


def test_the_top_level_is_the_order_and_short():
    entries = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name[:2] != "__"}
    assert entries - {"py.typed"} == set(RANKS)
    assert len(RANKS) <= 22
    assert len(LAYERS) <= 20


SAMPLING = {
    "rand", "randn", "randint", "randperm", "manual_seed", "seed", "normal", "bernoulli",
    "multinomial", "random_", "normal_", "uniform_", "exponential_", "bernoulli_", "geometric_",
    "cauchy_", "log_normal_", "urandom", "token_bytes", "token_hex", "randbelow", "getrandbits",
    "default_rng", "rand_like", "randn_like", "randint_like", "uuid4", "SystemRandom",
}  # fmt: skip


def drawn_by_noise(node):
    """Whether it is the batch of draws that the noise file hands out."""
    return isinstance(node.value, ast.Name) and node.value.id == "uniforms"


def sampling_calls(source):
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and node.attr in SAMPLING:
            if not drawn_by_noise(node):
                yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if alias.name.split(".")[0] in ("random", "secrets", "uuid"):
                    yield alias.name


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_noise_samples(path):
    used = set(sampling_calls(tree(path))) - ({"seed"} if layer(path) != "_noise" else set())
    if layer(path) != "_noise":
        assert used == set()


def test_the_noise_is_found_where_it_is_drawn():
    used = {
        call for path in (PACKAGE / "_noise").glob("*.py") for call in sampling_calls(tree(path))
    }
    assert {"urandom", "manual_seed"} <= used


def test_twin_that_samples_elsewhere_is_caught():
    assert list(sampling_calls(ast.parse("import torch\ntorch.empty(3).normal_()"))) == ["normal_"]
    assert list(sampling_calls(ast.parse("import secrets"))) == ["secrets"]
    assert list(sampling_calls(ast.parse("torch.normal(0, 1); uniforms.normal((3,))"))) == [
        "normal"
    ]


# What keeps a raw sum, and the door that opens it.
OPENS_RAW = {
    "statistics/sealed_sums.py", "statistics/group_sums.py", "holdout/gathering.py",
    "holdout/columns.py", "holdout/groups.py",
}  # fmt: skip


def opens_raw(source):
    raw = ("_sealed", "_rows", "_beyond", "_squares", "_squares_beyond")
    raw += ("_group_sums", "_group_sums_of_all")
    return any(isinstance(n, ast.Attribute) and n.attr in raw for n in ast.walk(source))


def names_raw(text):
    """Whether an attribute is named, as getattr and vars would; ``th_sealed_runs`` is a table."""
    return (
        re.search(r"\b(_sealed|_squares|_squares_beyond|_group_sums|_group_sums_of_all)\b", text)
        is not None
    )


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_door_opens_raw_values(path):
    allowed = str(path.relative_to(PACKAGE)) in OPENS_RAW
    assert opens_raw(tree(path)) == allowed
    if not allowed:
        assert not names_raw(path.read_text())


@pytest.mark.parametrize("opening", ["sums._sealed", "sums._rows.sum()", "f(sums)._beyond"])
def test_twin_that_opens_raw_values_is_caught(opening):
    assert opens_raw(ast.parse(opening))


@pytest.mark.parametrize("naming", ["getattr(sums, '_sealed')", 'vars(sums)["_squares"]'])
def test_twin_that_names_raw_values_is_caught(naming):
    assert names_raw(naming)
    assert not names_raw("th_sealed_runs")


SERVICE = PACKAGE / "service"


def imported_modules(source):
    for node in ast.walk(source):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def names_labels(source):
    """Whether code gets at labels: by import, variable, attribute or argument; prose may."""
    identifiers = {n.id for n in ast.walk(source) if isinstance(n, ast.Name)}
    identifiers |= {n.attr for n in ast.walk(source) if isinstance(n, ast.Attribute)}
    identifiers |= {n.arg for n in ast.walk(source) if isinstance(n, ast.arg | ast.keyword)}
    identifiers |= {module.split(".")[-1] for module in imported_modules(source)}
    return any(re.search(r"(^|_)labels$|^Label", str(name)) for name in identifiers)


@pytest.mark.parametrize("path", sorted(SERVICE.rglob("*.py")), ids=lambda p: p.name)
def test_only_the_board_and_its_labels_name_labels(path):
    if path.name not in ("board.py", "labels.py"):
        assert not names_labels(tree(path))


@pytest.mark.parametrize(
    "naming",
    [
        "from torch_holdout.service.server.labels import read_part",
        "board._labels",
        "labels = 1",
        "f(labels=1)",
        "part: LabelPart",
    ],
)
def test_twin_that_names_labels_is_caught(naming):
    assert names_labels(ast.parse(naming))


@pytest.mark.parametrize("side", ["server", "client"])
def test_server_and_client_do_not_know_each_other(side):
    other = "client" if side == "server" else "server"
    for path in (SERVICE / side).rglob("*.py"):
        found = [name for name in imported_modules(tree(path)) if f"service.{other}" in name]
        assert found == [], path


def test_no_http_below_the_routes():
    below = (
        "board",
        "labels",
        "uploads",
        "view",
        "closing",
        "hosting",
        "tokens",
        "teams",
        "schema",
    )
    for name in below:
        modules = imported_modules(tree(SERVICE / "server" / f"{name}.py"))
        assert not [m for m in modules if m.split(".")[0] in ("fastapi", "starlette", "uvicorn")]


def test_bounds_know_no_torch():
    for path in (PACKAGE / "bounds").rglob("*.py"):
        for node in ast.walk(tree(path)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            assert "torch" not in names
            assert not (isinstance(node, ast.ImportFrom) and node.module == "torch")


def test_import_is_light():
    """Only names are defined: nothing heavy is loaded before it is used."""
    code = (
        "import sys, torch; before = set(sys.modules); import torch_holdout as th;"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('torch_holdout')));"
        "th.BoundedMean; th.Thresholdout; th.HoldoutError;"
        "heavy = 'lightning pytorch_lightning torchmetrics sqlalchemy scipy typer'.split();"
        "heavy += ['transformers', 'accelerate'];"
        "print([m for m in heavy if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["[]", "[]"]


@pytest.mark.parametrize("words", [["--help"], ["plan", "--queries=200", "--size=10000"]])
def test_the_command_plans_and_helps_without_torch(words):
    code = (
        "import contextlib, sys; from torch_holdout.cli import app\n"
        "with contextlib.suppress(SystemExit):\n    app(sys.argv[1:])\n"
        "print([m for m in ('torch', 'sqlalchemy') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, *words]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
    assert len(found.stdout.splitlines()) > 5


def test_every_public_name_is_there_and_documented():
    for name in torch_holdout.__all__:
        assert getattr(torch_holdout, name).__doc__
    assert set(torch_holdout.__all__) <= set(dir(torch_holdout))
    with pytest.raises(AttributeError, match="nothing_like_this"):
        torch_holdout.nothing_like_this  # noqa: B018


def test_files_stay_short():
    long = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in FILES}
    assert {name: lines for name, lines in long.items() if lines > 400} == {}
