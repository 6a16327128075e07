"""Every public name has an example that is run; every folder says what it is for."""

import builtins
import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch_holdout

PACKAGE = Path(torch_holdout.__file__).parent
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def examples_of(name):
    """The examples of a name; those of a constant or an alias stand in a module's docstring."""
    value = name.value
    if inspect.isclass(value) or inspect.isroutine(inspect.unwrap(value)):
        home = sys.modules[value.__module__]
        path = f"{home.__name__}.{value.__qualname__}"
        return found_in(home, lambda test: test == path or test.startswith(f"{path}."))
    modules = [module for key, module in sys.modules.items() if key.startswith("torch_holdout")]
    homes = [module for module in modules if vars(module).get(name.name) is value]
    names = [home.__name__ for home in homes]
    return [example for home in homes for example in found_in(home, names.__contains__)]


def found_in(module, wanted):
    """What doctest, and so pytest, finds in a module under these names."""
    tests = doctest.DocTestFinder().find(module)
    return [example for test in tests if wanted(test.name) for example in test.examples]


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
    names = [name for name in reference.public_names() if reference.first_of(name) == name]
    assert [problem for name in names if (problem := problem_of(name))] == []


def test_they_are_run(request):
    """By `pytest` itself: modules of the package are collected."""
    assert "--doctest-modules" in request.config.getini("addopts")
    assert "torch_holdout" in request.config.getini("testpaths")


@pytest.mark.parametrize(
    "docstring",
    [
        "Do nothing.",
        "Do nothing.\n\n>>> 1 + 1\n2",  # it is not named
        "Do nothing.\n\n>>> twin()\n>>> twin()  # doctest: +SKIP",
    ],
)
def test_twin_without_a_fitting_example_is_caught(docstring):
    module = ModuleType("torch_holdout_twin")
    sys.modules[module.__name__] = module
    try:
        for text, fits in (("Do nothing.\n\n>>> twin()", True), (docstring, False)):
            exec(f"def twin():\n    {text!r}", vars(module))
            assert (problem_of(_Given(module.twin)) is None) == fits
    finally:
        del sys.modules[module.__name__]


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
        ("Where the doors of all houses are, in ``holdout/door.py``.", None),
        ("Where the doors of all houses are, as ``ReusableHoldout``.", None),
    ],
)
def test_twins_of_a_purpose(text, problem):
    found = purpose_problem(text, torch_holdout)
    assert found is None if problem is None else problem in found
