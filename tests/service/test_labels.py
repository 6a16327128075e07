"""Labels: two private files, cut at random; they never leave but as values for the door."""

import copy
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from torch_holdout.errors import HoldoutError, HoldoutMismatchError, SealedValueError
from torch_holdout.service.server import hosting
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.labels import (
    cut_labels,
    read_part,
    read_source,
    read_vault,
)

from support.builders.boards import (
    ROWS,
    SEALED,
    configured,
    digits,
    guesses,
    opened,
    put,
    save_private,
    with_teams,
)

OPENED, LOOKING = [], []  # what this process opens, while somebody looks


def look(event, args):
    if LOOKING and event == "open":
        OPENED.append(str(args[0]))


sys.addaudithook(look)


@pytest.fixture
def looking():
    OPENED.clear()
    LOOKING.append(True)
    yield
    LOOKING.clear()


def cut(config):
    cut_labels(config, read_source(config))


def parts(folder, **changes):
    config = configured(folder, **changes)
    cut(config)
    return config, read_part(config, folder / "public.labels"), folder / "vault.labels"


def test_both_parts_together_are_the_whole(tmp_path):
    config, public, place = parts(tmp_path)
    vault = read_vault(config, place, public)
    assert (public.size, vault.size, public.rows, vault.rows) == (300, 700, ROWS, ROWS)
    assert sorted([*public._numbers, *vault._numbers]) == list(range(ROWS))
    for part in (public, vault):
        assert np.array_equal(part._target, digits()[part._numbers])


def test_who_is_in_which_part_is_new_for_each_board(tmp_path):
    first = parts(tmp_path / "a")[1]
    second = parts(tmp_path / "b")[1]
    common = len(set(first._numbers) & set(second._numbers))
    assert 40 < common < 140  # 90 of 300 expected, deviation 6.6: false alarm below 1e-13
    assert first.digest != second.digest


def test_the_files_are_private(tmp_path):
    parts(tmp_path)
    for name in ("public.labels", "vault.labels"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("public", [0, 1])
def test_one_part_can_be_all(tmp_path, public):
    changes = SEALED if public == 0 else {"data": 'classes=10\nupload="classes"\npublic=1'}
    config, first, place = parts(tmp_path, **changes)
    assert first.size == public * ROWS
    assert read_vault(config, place, first).size == ROWS - first.size


class TestWhatIsRefused:
    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
    def test_what_others_may_read(self, tmp_path, mode):
        config, _, place = parts(tmp_path)
        place.chmod(mode)
        with pytest.raises(HoldoutError, match="other users may use it"):
            read_part(config, place)
        (tmp_path / "labels.npy").chmod(mode)
        for name in ("public.labels", "vault.labels"):
            (tmp_path / name).unlink()
        with pytest.raises(HoldoutError, match="other users may use it"):
            cut(config)
        assert not (tmp_path / "public.labels").exists()

    def test_links_and_what_is_no_file(self, tmp_path):
        config, _, place = parts(tmp_path)
        (tmp_path / "link").symlink_to(place)
        os.link(place, tmp_path / "hard")
        os.mkfifo(tmp_path / "pipe", 0o600)
        for name in ("link", "hard", "pipe", "nothing"):
            with pytest.raises(HoldoutError, match="only this user can read"):
                read_part(config, tmp_path / name)

    def test_another_boards_vault(self, tmp_path):
        config, public, _ = parts(tmp_path / "a")
        _, _, other = parts(tmp_path / "b")
        with pytest.raises(HoldoutMismatchError, match="another one"):
            read_vault(config, other, public)

    @pytest.mark.parametrize("at", [0, 30, 300, -1])
    def test_an_edited_file(self, tmp_path, at):
        board = opened(tmp_path)
        content = bytearray((tmp_path / "public.labels").read_bytes())
        content[at] ^= 1
        (tmp_path / "public.labels").write_bytes(content)
        with pytest.raises(HoldoutError) as raised:
            Board.open(board.config)
        assert str(int(content[at])) not in str(raised.value).replace("public.labels", "")

    def test_a_second_cut(self, tmp_path):
        config, *_ = parts(tmp_path)
        before = (tmp_path / "vault.labels").read_bytes()
        with pytest.raises(HoldoutError, match="nothing was changed"):
            cut(config)
        assert (tmp_path / "vault.labels").read_bytes() == before

    @pytest.mark.parametrize(
        "target",
        [
            np.full(20, 10),
            np.full(20, -1),
            np.zeros(20),
            np.zeros((20, 2), dtype=np.int64),
            np.zeros(1, dtype=np.int64),
            np.zeros(20, dtype=np.int32),
            np.array([{}] * 20, dtype=object),
        ],
        ids=["above", "below", "floats", "a table", "one row", "narrow", "objects"],
    )
    def test_other_files_of_labels(self, tmp_path, target):
        config = configured(tmp_path, target)
        with pytest.raises(HoldoutError, match=r"Expected .*labels\.npy|in labels\.npy"):
            cut(config)

    def test_scores_that_are_not_finite(self, tmp_path):
        config = configured(
            tmp_path,
            np.array([0.0, np.nan, 1.0]),
            data='upload = "scores"\npublic = 0.5',
            statistics='[statistics.mse]\nkind = "mse"\nlow = 0.0\nhigh = 4.0',
        )
        with pytest.raises(HoldoutError, match="finite"):
            cut(config)

    def test_more_blocks_than_rows(self, tmp_path):
        config = configured(tmp_path, statistics='[statistics.f1]\nkind = "f1_macro"\nblocks = 301')
        with pytest.raises(HoldoutError, match="at most 300 blocks"):
            hosting.initialise(config)
        assert not list(tmp_path.glob("*.labels"))

    def test_two_cuts_at_once(self, tmp_path, monkeypatch):
        """The parts of two attempts must not be mixed: the vault would be another board's."""
        config = configured(tmp_path)
        monkeypatch.setattr(Path, "exists", lambda *_: False)  # as the other one saw it
        cut(config)
        before = [(tmp_path / name).read_bytes() for name in ("public.labels", "vault.labels")]
        with pytest.raises(HoldoutError, match="nothing was changed"):
            cut(config)
        after = [(tmp_path / name).read_bytes() for name in ("public.labels", "vault.labels")]
        assert after == before


def test_a_part_shows_nothing_and_stays_in_its_process(tmp_path):
    _, public, _ = parts(tmp_path)
    assert repr(public) == "<labels of 300 rows>"
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SealedValueError):
            leave(public)


def test_the_vault_is_not_opened_while_the_board_is_open(tmp_path, looking):
    board, who = with_teams(tmp_path, "alpha")
    OPENED.clear()
    board = Board.open(board.config)
    sha = put(board, who["alpha"], guesses(800), final=True)[1]["submission"]
    board.view(), board.overview(), hosting.require_closable(board.config, None)
    Board.open(board.config).submission(who["alpha"], sha)
    assert any(name.endswith("public.labels") for name in OPENED)  # the hook sees such files
    assert not any(name.endswith("vault.labels") for name in OPENED)
    hosting.close(board.config, None)
    assert any(name.endswith("vault.labels") for name in OPENED)


def test_a_board_works_without_its_vault(tmp_path):
    board, who = with_teams(tmp_path / "board", "alpha")
    (tmp_path / "board" / "vault.labels").rename(tmp_path / "offline")
    (tmp_path / "board" / "labels.npy").unlink()
    board = Board.open(board.config)
    assert put(board, who["alpha"], guesses(800))[1]["kind"] == "release"
    with pytest.raises(HoldoutError, match="Nothing was closed"):
        hosting.require_closable(board.config, None)
    assert board.view().state == "open"
    results = hosting.close(board.config, tmp_path / "offline")
    assert results["rows"] == 700


def test_a_vault_of_another_board_does_not_spoil_the_closing(tmp_path):
    board, who = with_teams(tmp_path / "a", "alpha")
    put(board, who["alpha"], guesses(800))
    opened(tmp_path / "b")
    with pytest.raises(HoldoutMismatchError, match="right file"):
        hosting.close(board.config, tmp_path / "b" / "vault.labels")
    assert hosting.close(board.config, None)["rows"] == 700


def test_labels_are_in_no_other_file(tmp_path):
    target = digits()
    board, who = with_teams(tmp_path, "alpha")
    put(board, who["alpha"], guesses(0))
    save_private(tmp_path / "labels.npy", np.zeros(2))  # the host's own copy is hers to move
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".labels"]
    part = read_part(board.config, tmp_path / "public.labels")
    for path in kept:
        content = path.read_bytes()
        for kind in (np.uint8, np.int32, np.int64):
            assert target[:40].astype(kind).tobytes() not in content
            assert part._target[:40].astype(kind).tobytes() not in content
        assert part._numbers[:10].astype("<i8").tobytes() not in content
