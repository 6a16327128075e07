"""A ledger under two names would be two budgets: it is refused before an answer."""

import os
import shutil
import subprocess
import sys

import pytest
from torch_holdout.errors import LedgerError
from torch_holdout.ledger import Ledger, verify
from torch_holdout.ledger.sqlite import mounts, names

from support.builders.holdouts import ask, make_holdout


@pytest.fixture
def folder(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    return tmp_path


def url_of(path):
    return f"sqlite:///{path}"


def every_use(url, holdout):
    """Ask with an old handle, make a new one, read and verify."""
    return {
        "ask": lambda: ask(holdout, 30, "b"),
        "repeat": lambda: ask(holdout, 30, "a"),
        "status": lambda: holdout.status(),
        "open": lambda: make_holdout(url).status(),
        "read": lambda: Ledger(url, reads_only=True).accounts(),
        "verify": lambda: verify(url),
    }


USES = list(every_use("", None))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["one/second.db", "other/holdout.db"])
def test_a_hard_link_is_refused_under_both_names(folder, use, name):
    path, second = folder / "one/holdout.db", folder / name
    holdout = make_holdout(url_of(path))
    ask(holdout, 30, "a")
    os.link(path, second)
    for used, handle in ((second, make_holdout(url_of(second))), (path, holdout)):
        with pytest.raises(LedgerError, match=r"hard links.*Nothing was released or charged"):
            every_use(url_of(used), handle)[use]()
    second.unlink()
    assert holdout.status().queries == 1


def test_a_symbolic_link_is_the_same_ledger(folder):
    path, link = folder / "one/holdout.db", folder / "other/link.db"
    ask(make_holdout(url_of(path)), 30, "a")
    link.symlink_to(path)
    assert ask(make_holdout(url_of(link)), 30, "a").kind == "repeat"
    assert [file.name for file in (folder / "other").iterdir()] == ["link.db"]


def test_a_draft_left_by_a_kill_is_no_second_name(folder):
    """Its maker was killed after it had linked the ledger into place."""
    path = folder / "one/holdout.db"
    holdout = make_holdout(url_of(path))
    ask(holdout, 30, "a")
    draft = names.draft_of(path, "00ff")
    os.link(path, draft)
    assert ask(holdout, 30, "a").kind == "repeat"
    assert not draft.exists()


def test_a_draft_of_another_file_is_left_alone(folder):
    path = folder / "one/holdout.db"
    holdout = make_holdout(url_of(path))
    ask(holdout, 30, "a")
    draft = names.draft_of(path, "00ff")
    draft.write_text("another process is building this")
    os.link(path, folder / "second.db")
    with pytest.raises(LedgerError, match="hard links"):
        holdout.status()
    assert draft.exists()


def test_a_file_that_is_mounted_is_refused(folder, monkeypatch):
    path = folder / "one/my holdout.db"
    holdout = make_holdout(url_of(path))
    ask(holdout, 30, "a")
    table = folder / "mountinfo"
    point = str(path.resolve()).replace(" ", "\\040")
    root = "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    for mounted, refused in ((point, True), (f"{point}.old", False), (str(folder / "one"), False)):
        table.write_text(f"{root}2 1 8:1 /x {mounted} rw - ext4 /dev/sda rw\n")
        for use in every_use(url_of(path), holdout).values():
            if refused:
                with pytest.raises(LedgerError, match="Mount the folder, not the file"):
                    use()
            else:
                use()
    assert holdout.status().queries == 2


MOUNTED = """
    import sys
    from torch_holdout.errors import LedgerError
    from support.builders.holdouts import ask, make_holdout
    for path in sys.argv[1:]:
        try:
            print(ask(make_holdout(f"sqlite:///{path}"), 30, "a").kind)
        except LedgerError as error:
            print("refused" if "Mount the folder, not the file" in str(error) else error)
"""


def may_mount():
    tools = shutil.which("unshare") and shutil.which("mount")
    return bool(tools) and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


@pytest.mark.integration
@pytest.mark.skipif(not may_mount(), reason="needs root and Linux")
def test_a_real_bind_mount(folder):
    """The folder mounted elsewhere is the same ledger; the file mounted elsewhere is refused."""
    path = folder / "one/holdout.db"
    ask(make_holdout(url_of(path)), 30, "a")
    (folder / "file").mkdir()
    (folder / "file/holdout.db").touch()
    code = "\n".join(line[4:] for line in MOUNTED.splitlines())
    script = (
        f"mount --bind {folder}/one {folder}/other && "
        f"mount --bind {path} {folder}/file/holdout.db && "
        f'exec "$0" -c "$1" {folder}/other/holdout.db {folder}/file/holdout.db {path}'
    )
    inside = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, sys.executable, code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert inside.stdout.split() == ["repeat", "refused", "repeat"], inside.stderr
