"""Every code block of the README runs, in order, in an empty folder; its commands exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) >= 2
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "19 of 20 releases left" in printed
    assert "95 % confidence" in printed


@pytest.mark.parametrize("target", re.findall(r"make (\w+)", README))
def test_the_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize(
    "name", re.findall(r"`((?:examples|docs|configs)/[\w./]+|\w+\.md)`", README)
)
def test_the_files_it_names_exist(name):
    assert (ROOT / name).exists()


def test_the_public_names_it_uses_exist():
    import torch_holdout as th

    for name in set(re.findall(r"\bth\.(\w+)", README)):
        assert name in th.__all__
