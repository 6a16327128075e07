"""Every public name has an example that is run; every folder says what it is for."""

import builtins
import doctest
import importlib
import inspect
import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch_holdout
from support.site import ROOT

PACKAGE = Path(torch_holdout.__file__).parent
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def examples_of(name):
    """The examples of a name; those of a constant or an alias stand in a module's docstring."""
    value = name.value
    if inspect.isclass(value) or inspect.isfunction(value):
        return found_in(value, sys.modules[value.__module__])
    homes = [module for key, module in sys.modules.items() if key.startswith("torch_holdout")]
    defining = [home for home in homes if vars(home).get(name.name) is value]
    return [each for home in defining for each in module_examples(home)]


def found_in(value, module):
    """What doctest runs of an object itself, and of a class's methods."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = finder.find(value, value.__name__, module=module)
    return [example for test in tests for example in test.examples]


def module_examples(module):
    finder = doctest.DocTestFinder(recurse=False)
    return [example for test in finder.find(module) for example in test.examples]


def problem_of(name):
    """Say what an example lacks."""
    examples = examples_of(name)
    if not examples:
        return f"{name.path} has no example"
    if any(doctest.SKIP in example.options for example in examples):
        return f"{name.path} skips a part of its example"
    text = "".join(example.source + example.want + (example.exc_msg or "") for example in examples)
    if not re.search(rf"\b{name.name}\b", text):
        return f"{name.path} is not named in its example"
    return None


def test_every_public_name_has_an_example(reference):
    names = [name for name in reference.public_names() if reference._first(name) == name]
    assert [problem for name in names if (problem := problem_of(name))] == []


def test_they_are_run():
    """By `pytest` itself: modules of the package are collected."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-modules" in options["addopts"]
    assert "torch_holdout" in options["testpaths"]


@pytest.mark.parametrize(
    "docstring",
    [
        "Do nothing.",
        "Do nothing.\n\n>>> 1 + 1\n2",  # it is not named
        "Do nothing.\n\n>>> twin()\n>>> twin()  # doctest: +SKIP",
    ],
)
def test_twin_without_a_fitting_example_is_caught(docstring):
    def twin():
        pass

    twin.__doc__ = "Do nothing.\n\n>>> twin()"
    assert problem_of(_Given(twin)) is None
    twin.__doc__ = docstring
    assert problem_of(_Given(twin)) is not None


class _Given:
    """Stands for a public name."""

    def __init__(self, value):
        self.value, self.name, self.path = value, value.__name__, value.__name__


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(PACKAGE.parent)))
def test_a_folder_says_what_it_is_for(folder):
    path = ".".join(folder.relative_to(PACKAGE.parent).parts)
    module = importlib.import_module(path)
    assert purpose_problem(module.__doc__, module) is None


def purpose_problem(text, module):
    """Say what the docstring of a folder lacks: a full sentence, and names that exist."""
    sentences = re.findall(r"[A-Z`][^.]*(?:\.\w[^.]*)*\.(?=\s|$)", text or "", re.DOTALL)
    if not any(len(sentence.split()) >= 5 for sentence in sentences):
        return "no full sentence"
    for named in re.findall(r"``([\w./]+)``", text):
        if not exists(named, module):
            return f"{named} does not exist"
    return None


def exists(named, module):
    """Whether it is a file or folder of the package, or a name of the folder or of Python."""
    if "/" in named or named.endswith(".py"):
        return (PACKAGE / named).exists()
    return named in getattr(module, "__all__", ()) or hasattr(builtins, named)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "no full sentence"),
        ("Things", "no full sentence"),
        ("Where the doors of all houses are: ``nothing_like_this``.", "nothing_like_this"),
        ("Where the doors of all houses are, in ``holdout.py``.", None),
        ("Where the doors of all houses are, as ``ReusableHoldout``.", None),
    ],
)
def test_twins_of_a_purpose(text, problem):
    found = purpose_problem(text, torch_holdout)
    assert found is None if problem is None else problem in found
