"""Broken uploads under a memory limit: refused by name, never a failure, never more memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.machines.soak import soak

TESTS = Path(__file__).parent.parent
PROGRAM = TESTS / "support" / "programs" / "upload_fuzzer.py"
UPLOADS = soak(20_000, 400)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(soak(7200, 600))
def test_broken_uploads_are_refused_within_the_memory_of_the_layout(tmp_path):
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), str(UPLOADS), "20"],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    said = json.loads(found.stdout)
    print(said)
    outcomes = said["outcomes"]
    assert sum(outcomes.values()) == UPLOADS + 4
    assert outcomes.pop("good 201") == 4
    assert set(outcomes) <= {"201", "200", "size", "layout", "range", "finite", "ids"}
    assert {"layout", "range", "ids"} <= set(outcomes)
    assert said["twin"] == "MemoryError"  # np.load allocates what a header claims
    assert "Traceback" not in found.stderr
