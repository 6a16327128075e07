"""A host's first hour from the page alone: every block, in order, in an empty folder."""

import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from support.machines.site import ROOT

PAGE = (ROOT / "docs" / "how-to" / "host-a-board.md").read_text()
BLOCK = re.compile(r"^```(python|toml|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for own in held:
        own.bind(("127.0.0.1", 0))
    ports = [str(own.getsockname()[1]) for own in held]
    for own in held:
        own.close()
    return ports


def script(page):
    """Return one script for bash that does what a reader of the page would."""
    lines, python = ["set -e"], []
    for language, body in BLOCK.findall(page):
        if language == "toml":
            lines.append(f"cat > board.toml <<'END'\n{body}END")
        elif language == "python":
            python.append(body)  # one session: a later block knows the names of an earlier one
            lines.append(f"python - <<'END'\n{''.join(python)}END")
        else:
            lines.append(body)
    return "\n".join(lines)


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks curl whether it is ready")
def test_the_first_hour(tmp_path):
    folder, tools = tmp_path / "board", tmp_path / "tools"
    folder.mkdir(mode=0o700)
    tools.mkdir()
    text = PAGE
    for written, free in zip(("8700", "8701"), free_ports(2), strict=True):
        text = text.replace(written, free)
    for name, run in (
        ("python", ""),
        ("torch-holdout", ' -c "from torch_holdout.cli import main; main()"'),
    ):
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable}{run} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script(text)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "10,000 rows: 3,000 give feedback" in done.stdout
    assert "2 of 2,500 submissions, 2 of 400 releases" in done.stdout
    assert "2 submissions judged on 7,000 rows" in done.stdout
    assert re.search(r"1  alpha  0\.[78]", done.stdout)
    assert (folder / "results.html").exists()
    assert (folder / "board.backup").stat().st_size > 0
    shown = re.search(r"```bash\ntorch-holdout board plan.*?```text\n(.*?)```", PAGE, re.DOTALL)[1]
    assert shown in done.stdout
