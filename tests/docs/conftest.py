import importlib.util
import sys

import pytest

from support.machines.site import ROOT, build


def hook(name):
    """Load a hook of the site as mkdocs does."""
    path = ROOT / "docs" / "hooks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"site_hook_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def reference():
    return hook("reference")


@pytest.fixture(scope="session")
def formulas():
    return hook("formulas")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = build(folder)
    assert built.returncode == 0, built.stderr
    return folder
