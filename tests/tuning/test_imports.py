"""Optuna and Ray are optional, and loaded only by the modules that are named after them."""

import subprocess
import sys

import pytest

BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("optuna", "ray"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False
    )


def test_the_package_imports_neither():
    found = run(
        f"{BLOCK}import torch_holdout, torch_holdout.tuning; torch_holdout.tuning.reask;"
        "print([m for m in ('optuna', 'ray', 'lightning') if m in sys.modules])"
    )
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize("extra", ["optuna", "ray"])
def test_without_the_package_its_extra_is_named(extra):
    found = run(f"{BLOCK}import torch_holdout.tuning.{extra}")
    assert found.returncode == 1
    assert f"pip install 'torch-holdout[{extra}]'" in found.stderr
