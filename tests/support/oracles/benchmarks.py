"""The scripts of ``benchmarks/``, which are no package."""

import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "benchmarks"


def benchmark_module(name):
    """Import a script or a shared module of theirs, as they import each other."""
    sys.path.insert(0, str(FOLDER))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(FOLDER))
