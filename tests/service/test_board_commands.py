"""torch-holdout board ...: a sentence for each mistake, tokens once, JSON for machines."""

import io
import json
import sys

import pytest
from torch_holdout.cli import app
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.config import read_config
from torch_holdout.service.server.teams import Event
from typer.testing import CliRunner

from support.builders.boards import configured, guesses, put


def call(*arguments):
    found = CliRunner().invoke(app, ["board", *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


@pytest.fixture
def toml(tmp_path):
    configured(tmp_path)
    return tmp_path / "board.toml"


def token_of(output):
    (token,) = [word for word in output.split() if word.startswith("th_")]
    return token


def test_a_boards_life(toml, tmp_path):
    made = call("init", toml)
    assert made.exit_code == 0
    assert "1,000 rows: 300 give feedback (public.labels), 700 wait" in made.stdout
    assert "move vault.labels and labels.npy away" in made.stdout
    alpha = token_of(call("add-team", toml, "alpha").stdout)
    beta = json.loads(call("add-team", toml, "beta", "--submissions", 3, "--json").stdout)["token"]
    board = Board.open(read_config(toml))
    put(board, board.caller(alpha), guesses(900))
    put(board, board.caller(beta), guesses(800))
    board.record_events([Event("submit", 201, board.caller(alpha), 1128, 1)])
    status = call("status", toml).stdout
    assert "alpha: 9 submissions left, 3 releases left, best 0." in status
    assert "beta: 2 submissions left" in status
    assert "2 of 50 submissions, 2 of 20 releases" in status
    content = json.loads(call("status", toml, "--json").stdout)
    assert content["board"]["position"] == 2
    assert "submit 201 alpha" in call("log", toml).stdout
    assert json.loads(call("log", toml, "--json").stdout)["events"][0]["bytes"] == 1128
    new = token_of(call("rotate", toml, "alpha", "--now").stdout)
    assert board.caller(new).team == "alpha"
    assert call("revoke", toml, "beta").stdout == "beta is shut out.\n"
    closed = call("close", toml, "--yes")
    assert closed.exit_code == 0
    assert "2 submissions judged on 700 rows" in closed.stdout
    assert "1  alpha  0." in closed.stdout
    assert json.loads(call("close", toml, "--yes", "--json").stdout)["vault"] is True


def test_the_plan_is_a_table_and_json():
    arguments = ("plan", "--rows", 10_000, "--teams", 50, "--submissions", 5)
    table = call(*arguments).stdout
    assert [line.split()[0] for line in table.splitlines()[2:7]] == [
        "sealed", "vault", "record", "gate", "ladder"
    ]  # fmt: skip
    prices = {
        price["mode"]: price for price in json.loads(call(*arguments, "--json").stdout)["prices"]
    }
    assert prices["vault"]["half_widths"]["0.5"] == pytest.approx(0.0209, rel=0.01)


class TestMistakes:
    @pytest.mark.parametrize(
        "arguments",
        [
            ("init", "nothing.toml"),
            ("status", "{toml}"),
            ("log", "{toml}"),
            ("add-team", "{toml}", "alpha"),
            ("rotate", "{toml}", "alpha"),
            ("rotate", "{toml}"),
            ("rotate", "{toml}", "alpha", "--host"),
            ("revoke", "{toml}", "alpha"),
            ("close", "{toml}", "--yes"),
            ("plan", "--rows", "0", "--teams", "1", "--submissions", "1"),
        ],
        ids=" ".join,
    )
    def test_before_there_is_a_board(self, toml, arguments):
        found = call(*(word.format(toml=toml) for word in arguments))
        assert found.exit_code == 2
        assert found.stderr.startswith("torch-holdout: Expected")
        assert not (toml.parent / "board.db").exists()

    def test_a_second_init_and_a_second_team(self, toml):
        call("init", toml)
        call("add-team", toml, "alpha")
        for arguments in (("init", toml), ("add-team", toml, "Alpha")):
            found = call(*arguments)
            assert found.exit_code == 2
            assert "th_" not in found.stdout + found.stderr

    def test_closing_is_asked_for(self, toml):
        call("init", toml)
        found = call("close", toml)
        assert found.exit_code == 2
        assert "Nothing was closed" in found.stderr
        assert call("status", toml).stdout.splitlines()[0].endswith("open")

    def test_a_vault_that_is_not_there(self, toml):
        call("init", toml)
        (toml.parent / "vault.labels").rename(toml.parent / "elsewhere")
        found = call("close", toml, "--yes")
        assert found.exit_code == 2
        assert "Nothing was closed" in found.stderr
        assert call("close", toml, "--yes", "--vault", toml.parent / "elsewhere").exit_code == 0

    def test_without_the_services_tables_nothing_is_closed(self, toml):
        call("init", toml)
        place = toml.parent / "board.service.db"
        place.rename(place.with_suffix(".away"))
        found = call("close", toml, "--yes")
        assert found.exit_code == 2
        assert "board.service.db" in found.stderr
        place.with_suffix(".away").rename(place)
        assert "open" in call("status", toml).stdout.splitlines()[0]

    def test_a_vault_that_is_not_private_closes_nothing(self, toml):
        call("init", toml)
        vault, link = toml.parent / "vault.labels", toml.parent / "link"
        link.symlink_to(vault)
        vault.chmod(0o644)
        for place, words in ((link, "not an ordinary file"), (vault, "mode 644")):
            found = call("close", toml, "--yes", "--vault", place)
            assert found.exit_code == 2
            assert words in found.stderr
            assert "Nothing was closed" in found.stderr
        assert call("status", toml).stdout.splitlines()[0].endswith("open")

    def test_a_file_that_is_no_vault_says_that_the_board_is_closed(self, toml):
        call("init", toml)
        found = call("close", toml, "--yes", "--vault", toml.parent / "labels.npy")
        assert found.exit_code == 2
        assert "closed; close it again with the right file" in found.stderr
        assert call("close", toml, "--yes").exit_code == 0


@pytest.mark.parametrize(("typed", "closed"), [("digits\n", True), ("y\n", False), ("", False)])
def test_only_the_boards_name_closes_it(toml, monkeypatch, typed, closed):
    call("init", toml)
    terminal = io.StringIO(typed)
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    with pytest.raises(SystemExit) as ended:
        app(["board", "close", str(toml)])
    assert ended.value.code == (0 if closed else 1)
    assert (toml.parent / "results.json").exists() == closed
