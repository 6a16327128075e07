"""The incumbent's file: who may read it, what it takes to be one, and what becomes of others."""

import os
import shutil
import stat

import pytest
import torch_holdout as th
from torch_holdout.holdout.incumbents import IncumbentsInMemory
from torch_holdout.ledger.verify import verify

from support.builders.challenges import SIZE, challenged_thrice, losses, make_challenged, wrong_on
from support.builders.sealed_logs import events_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdout.db"


@pytest.fixture
def holdout(path):
    return make_challenged(f"sqlite:///{path}")


def files(path):
    return sorted(path.parent.glob("holdout.db.challenges/*/*"))


def test_only_the_incumbent_has_a_file_and_only_its_owner_reads_it(holdout, path):
    old = os.umask(0)
    try:
        told = challenged_thrice(holdout)
    finally:
        os.umask(old)
    (file,) = files(path)
    assert file.name == f"{told[-1].incumbent}.levels"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert file.stat().st_size == 32 + 4 * SIZE


def test_each_statistic_has_one(holdout, path):
    challenged_thrice(holdout)
    for mean in (3.0, 2.0, 2.5):
        last = holdout.challenge("loss", losses(mean), query=f"loss {mean}")
    assert {file.stem for file in files(path)} >= {last.incumbent}
    assert len(files(path)) == 2


def test_files_are_gone_after_closing(holdout, path):
    challenged_thrice(holdout)
    holdout.close()
    assert sorted(file.name for file in path.parent.iterdir() if file.is_dir()) == []


def test_memory_is_let_go_after_closing():
    holdout = make_challenged()
    before = set(IncumbentsInMemory._kept)
    challenged_thrice(holdout)
    (account,) = set(IncumbentsInMemory._kept) - before
    assert len(IncumbentsInMemory._kept[account]) == 1
    holdout.close()
    assert account not in IncumbentsInMemory._kept


def test_a_folder_of_ones_own(path, tmp_path):
    holdout = make_challenged(f"sqlite:///{path}")
    told = challenged_thrice(holdout, folder=tmp_path / "private" / "files")
    assert [each.kept for each in told] == [None, True, False]
    assert files(path) == []
    assert len(list((tmp_path / "private" / "files").glob("*/*.levels"))) == 1


def removed(file, other):
    file.unlink()


def cut_off(file, other):
    file.write_bytes(file.read_bytes()[:-4])


def longer(file, other):
    file.write_bytes(file.read_bytes() + b"\0\0\0\0")


def edited(file, other):
    """The incumbent is made worse: everything would be kept."""
    content = bytearray(file.read_bytes())
    content[32:] = bytes(len(content) - 32)
    file.write_bytes(content)


def empty(file, other):
    file.write_bytes(b"")


def of_another_account(file, other):
    shutil.copy(other, file)


def a_link(file, other):
    kept = file.with_name("elsewhere")
    file.rename(kept)
    file.symlink_to(kept)


def a_folder(file, other):
    file.unlink()
    file.mkdir()


def a_pipe(file, other):
    file.unlink()
    os.mkfifo(file)


DAMAGES = [removed, cut_off, longer, edited, empty, of_another_account, a_link, a_folder, a_pipe]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_a_lost_file_is_never_a_keep(holdout, path, tmp_path, damage):
    (tmp_path / "other").mkdir()
    other = make_challenged(f"sqlite:///{tmp_path / 'other' / 'holdout.db'}")
    other.challenge("acc", wrong_on(399), query="incumbent")
    holdout.challenge("acc", wrong_on(200), query="incumbent")
    (file,), (others,) = files(path), files(tmp_path / "other" / "holdout.db")
    assert file.name == others.name
    damage(file, others)
    with pytest.warns(th.HoldoutWarning, match="The values of the incumbent of 'acc' are lost"):
        told = holdout.challenge("acc", wrong_on(2), query="much better")
    assert (told.kept, told.lost, told.price) == (None, True, 0.0)
    assert told.incumbent == told.query
    assert "without a test; this does not count as a keep, and nothing was said" in str(told)
    assert holdout.challenge("acc", wrong_on(2), query="much better").lost  # and no warning
    assert holdout.challenge("acc", wrong_on(1), query="a little better").kept is False
    assert verify(f"sqlite:///{path}").findings == []
    assert "0 of 1 challenge kept" in str(holdout.close())


def test_levels_of_soft_values_are_not_taken_for_zeros_and_ones(path, monkeypatch):
    """One handle's accuracy is soft, as old accounts have it; another's is 0 or 1."""
    from torch_holdout.holdout import challenges

    holdout = make_challenged(f"sqlite:///{path}")
    monkeypatch.setattr(challenges.Contest, "test", "moments")
    holdout.challenge("acc", wrong_on(200), query="incumbent")
    monkeypatch.undo()
    with pytest.warns(th.HoldoutWarning, match="lost"):
        assert holdout.challenge("acc", wrong_on(2), query="better").kept is None


def test_examples_are_paired_by_their_position():
    """Forty examples more are right. In another order the two differ on many, and it is luck."""
    kept = {}
    for order in ("the same", "another"):
        holdout = make_challenged()
        holdout.challenge("acc", wrong_on(200), query="incumbent")
        better = wrong_on(160)
        better = better if order == "the same" else better.flip(0)
        kept[order] = holdout.challenge("acc", better, query="challenger").kept
    assert kept == {"the same": True, "another": False}


def test_a_folder_that_cannot_be_written_to_charges_nothing(holdout, path, tmp_path):
    challenged_thrice(holdout)
    before = events_of(holdout)
    in_the_way = tmp_path / "in the way"
    in_the_way.write_text("a file")
    with pytest.raises(th.HoldoutError, match=r"the file system refused .* Nothing was charged"):
        holdout.challenge("acc", wrong_on(1), query="new", folder=in_the_way)
    assert events_of(holdout) == before
    assert holdout.challenge("acc", wrong_on(1), query="new").kept is True


def test_what_killed_processes_have_left_is_removed(holdout, path):
    challenged_thrice(holdout)
    (file,) = files(path)
    left = [file.with_name(name) for name in ("0123456789abcdef.levels", "x.levels.part")]
    notes = file.with_name("notes.txt")
    for each in (*left, notes):
        each.write_text("left")
    holdout.challenge("acc", wrong_on(39), query="another")
    assert files(path) == sorted([file, notes])


def test_repeats_and_refusals_write_nothing(holdout, path):
    challenged_thrice(holdout)
    (file,) = files(path)
    before = file.stat().st_mtime_ns, file.parent.stat().st_mtime_ns
    holdout.challenge("acc", wrong_on(0), query="wrong on 40")
    with pytest.raises(th.PartialPassError):
        holdout.challenge("acc", wrong_on(0, SIZE - 1), query="new")
    assert (file.stat().st_mtime_ns, file.parent.stat().st_mtime_ns) == before


@pytest.mark.integration
def test_a_server_needs_a_folder_that_its_machines_share(postgres, tmp_path):
    url = postgres.new_url()
    holdout = make_challenged(url)
    with pytest.raises(th.InvalidArgumentError, match=r"Expected folder=.* Nothing was charged"):
        holdout.challenge("acc", wrong_on(9), query="new")
    told = challenged_thrice(holdout, folder=tmp_path)
    assert [each.kept for each in told] == [None, True, False]
    other = make_challenged(url)  # another machine
    assert other.challenge("acc", wrong_on(1), query="theirs", folder=str(tmp_path)).kept is True
    assert verify(url).findings == []
    other.close()
    assert len(list(tmp_path.glob("*/*.levels"))) == 1  # a folder of one's own is one's own
