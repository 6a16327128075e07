"""Classes bound to a Lightning package say all that users need to know."""

import importlib
import inspect
import pickle
import pydoc
import re

import pytest
from torch_holdout.prediction.budget import PrivacyBudget

PACKAGES = ("lightning", "pytorch_lightning")
OWN_ARGUMENTS = ("PartitionedDataModule", "PartitionedEnsemble", "PrivatePredictor")


def undocumented(bound):
    """Name the arguments of a class that its docstring does not explain."""
    text = inspect.getdoc(bound) or ""
    section = re.search(r"^Args:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    explained = re.findall(r"^    (\w+): ", section[1], re.MULTILINE) if section else []
    return [name for name in inspect.signature(bound).parameters if name not in explained]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("name", OWN_ARGUMENTS)
def test_the_docstring_names_every_argument(package, name):
    bound = getattr(importlib.import_module(f"torch_holdout.prediction.{package}"), name)
    assert undocumented(bound) == []
    assert f">>> {name}" in bound.__doc__ or f"{name}(" in bound.__doc__
    assert "Hooks" not in bound.__doc__
    assert undocumented(bound.__init__) == ["self"]  # what an editor shows at a call


@pytest.mark.parametrize("package", PACKAGES)
def test_help_shows_the_guarantee(package):
    module = importlib.import_module(f"torch_holdout.prediction.{package}")
    assert "Guarantee:" in pydoc.render_doc(module.PrivatePredictor)
    assert "``DDPStrategy``" in inspect.getdoc(module.MemberParallelStrategy)


def test_twin_without_an_argument_is_caught():
    class Twin:
        """Do nothing.

        Args:
            told: Whatever.
        """

        def __init__(self, told, untold):
            pass

    assert undocumented(Twin) == ["untold"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("budget TrainingRecords", "records"),
        ("budget _handle", "records"),
        ("votes Votes", "ensemble.members"),
        ("members Steps", "ensemble.members"),
        ("stable_problem StableProblem", "stable.problem"),
    ],
)
def test_pickles_of_the_version_before_find_what_has_moved(old, new):
    module, name = old.split()
    with pytest.warns(DeprecationWarning, match=f"use torch_holdout.prediction.{new}"):
        loaded = pickle.loads(f"ctorch_holdout.prediction.{module}\n{name}\n.".encode())
    assert loaded is getattr(importlib.import_module(f"torch_holdout.prediction.{new}"), name)


def test_what_stayed_is_loaded_without_a_word():
    assert pickle.loads(b"ctorch_holdout.prediction.budget\nPrivacyBudget\n.") is PrivacyBudget
    with pytest.raises(AttributeError, match="nothing_like_this"):
        importlib.import_module("torch_holdout.prediction.budget").nothing_like_this  # noqa: B018
