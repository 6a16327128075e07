"""Old import paths, each for one release, with a warning that names the new one."""

import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

_PACKAGE = "torch_holdout"
# Modules of version 0.1.0 that a public name, an example or a pickle names, and their place now.
OLD_MODULES = {
    "_watch": "training.interception",
    "accounting.cap": "accounting.compose",
    "accounting.composition": "accounting.compose",
    "accounting.loss": "accounting.compose",
    "accounting.pld": "accounting.compose",
    "accounting.zcdp": "accounting.rdp",
    "blockwise": "statistics",
    "bounds.counting": "bounds.published.counting",
    "bounds.ladder": "bounds.published.counting",
    "bounds.max_information": "bounds.transfer",
    "bounds.prediction": "bounds.published.prediction",
    "bounds.sample_sizes": "bounds.published.sample_sizes",
    "bounds.tails": "bounds.channels",
    "bounds.thresholdout": "bounds.published.thresholdout",
    "data_fingerprint": "_fingerprints.data",
    "ledger.account": "ledger.holdouts",
    "mechanisms.sparse": "mechanisms.sparse_vector",
    "metrics": "training",
    "multiplicative_weights": "holdout",
    "noise": "_noise.streams",
    "prediction.data": "prediction.ensemble.data",
    "prediction.isolation": "prediction.ensemble.isolation",
    "prediction.members": "prediction.ensemble.members",
    "prediction.stable_losses": "prediction.stable.losses",
    "prediction.stable_model": "prediction.stable.model",
    "prediction.stable_problem": "prediction.stable.problem",
    "prediction.votes": "prediction.ensemble.members",
    "results": "holdout",
    "runs": "holdout.runs",
    "subsets": "training",
    "weights": "_fingerprints.weights",
}


class _OldModule(ModuleType):
    """A stand-in for a module that has moved, which it imports when a name is asked for."""

    def __getattr__(self, name: str) -> Any:
        old = self.__name__
        if name.startswith("__"):  # a walk through sys.modules asks for these
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        new = f"{_PACKAGE}.{OLD_MODULES[old.removeprefix(_PACKAGE + '.')]}"
        return _renamed(f"{old}.{name}", new, name)


def install_old_modules() -> None:
    """Let old import paths, and pickles that name them, find what has moved."""
    for old in OLD_MODULES:
        name = f"{_PACKAGE}.{old}"
        sys.modules.setdefault(name, _OldModule(name))


def old_module(name: str) -> ModuleType:
    """Return the stand-in for a module of the top level that has moved, or raise."""
    if name not in OLD_MODULES:
        raise AttributeError(f"module {_PACKAGE!r} has no attribute {name!r}")
    return sys.modules[f"{_PACKAGE}.{name}"]


def old_name(module: str, name: str, moved: dict[str, str]) -> Any:
    """Return a name that ``module`` no longer exports; ``moved`` has each name's module now."""
    if name not in moved:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return _renamed(f"{module}.{name}", moved[name], name, depth=4)


def _renamed(old: str, module: str, name: str, depth: int = 3) -> Any:
    value = getattr(import_module(module), name)
    text = f"{old} has moved; this path will be removed in the next release: use {module}.{name}."
    warnings.warn(text, DeprecationWarning, stacklevel=depth)
    return value
