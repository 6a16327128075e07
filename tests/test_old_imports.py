"""Import paths of earlier versions: they work for one release, and say where a name is now."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch_holdout as th
from torch_holdout._shared.moved import OLD_MODULES

# Every import of README, docs, examples, configurations and benchmarks of version 0.1.0, and every
# name of its public modules.
LINES = (Path(__file__).parent / "assets" / "imports_0_1_0.txt").read_text().splitlines()


@pytest.mark.parametrize("line", LINES)
def test_an_import_of_an_earlier_version_works(line):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        exec(line, {})


def test_twin_that_never_existed_is_caught():
    for line in ("import torch_holdout.nothing", "from torch_holdout.metrics import nothing"):
        with pytest.raises((ImportError, AttributeError)):
            exec(line, {})


@pytest.mark.parametrize("old", OLD_MODULES)
def test_a_module_that_moved_has_a_new_place(old):
    code = f"import importlib; importlib.import_module('torch_holdout.{OLD_MODULES[old]}')"
    exec(code, {})


def test_a_moved_name_says_where_it_is_now():
    with pytest.warns(DeprecationWarning, match="use torch_holdout.training.ReusableHoldoutMetric"):
        from torch_holdout.metrics import ReusableHoldoutMetric
    assert ReusableHoldoutMetric is th.ReusableHoldoutMetric
    import torch_holdout.noise as noise_before

    with pytest.warns(DeprecationWarning, match="torch_holdout._noise"):
        noise_before.SystemNoise  # noqa: B018


def test_the_table_imports_nothing_and_survives_a_walk_through_the_modules():
    code = (
        "import sys, inspect, warnings; warnings.simplefilter('error'); import torch_holdout;"
        "[getattr(m, '__file__', None) for m in list(sys.modules.values())];"
        "inspect.getmodule(lambda: 0); print('torch_holdout.training' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


def test_a_guard_pickled_before_finds_its_parts():
    with pytest.warns(DeprecationWarning, match="torch_holdout.training.interception"):
        from torch_holdout._watch import MetricWatch
    assert MetricWatch([]).touched() == []
