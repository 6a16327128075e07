"""Tokens: random, kept as digests, read at every request."""

import hashlib
from datetime import datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from torch_holdout.errors import HoldoutError
from torch_holdout.service.server import hosting, schema, teams
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.problems import Problem, RefusedError

from support.builders.boards import configured, guesses, put


@pytest.fixture
def hosted(tmp_path):
    """A board, with the host's token and alpha's."""
    config = configured(tmp_path)
    made = hosting.initialise(config)
    alpha = hosting.add_team(config, "alpha")
    return Board.open(config), made.host_token, alpha


def rows(board):
    with board.store.transaction(reads_only=True) as connection:
        return connection.execute(sa.select(schema.tokens)).all()


def refused(board, token):
    with pytest.raises(RefusedError) as raised:
        board.caller(token)
    return raised.value.problem


def test_each_token_has_a_scope(hosted):
    board, host, alpha = hosted
    assert (board.caller(host).scope, board.caller(host).team) == ("host", None)
    assert (board.caller(alpha).scope, board.caller(alpha).team) == ("team", "alpha")
    assert board.caller(None).scope == "reader"


def test_only_digests_are_kept(hosted, tmp_path):
    board, host, alpha = hosted
    for token in (host, alpha):
        name, secret = token.split("_")[1:]
        (row,) = [row for row in rows(board) if row.token == name]
        assert row.digest == hashlib.sha256(secret.encode()).hexdigest()
        assert len(bytes.fromhex(secret)) == 32
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert alpha.split("_")[2].encode() not in path.read_bytes()


def test_wrong_tokens_are_all_refused_alike(hosted):
    board, host, alpha = hosted
    other = alpha[:12] + host[12:]  # alpha's name with the host's secret
    for token in ("", "th_", "x", alpha[:-1], alpha + "0", alpha.upper(), other, "th_" + "0" * 72):
        assert refused(board, token) is Problem.UNAUTHORISED
        with pytest.raises(RefusedError) as raised:
            board.caller(token)
        assert token[12:] == "" or token[12:] not in raised.value.detail


def test_wrong_secrets_are_counted_and_the_right_one_is_let_in(hosted):
    board, _, alpha = hosted
    wrong = alpha[:-4] + ("0000" if alpha[-4:] != "0000" else "1111")
    assert [refused(board, wrong) for _ in range(10)] == [Problem.UNAUTHORISED] * 10
    with pytest.raises(RefusedError) as raised:
        board.caller(wrong)
    assert (raised.value.problem, raised.value.retry_after) == (Problem.RATE, 60)
    assert board.caller(alpha).team == "alpha"


def test_a_board_for_teams_asks_readers_for_a_token(tmp_path):
    config = configured(tmp_path, board='visibility = "teams"')
    made = hosting.initialise(config)
    board = Board.open(config)
    assert refused(board, None) is Problem.UNAUTHORISED
    assert board.caller(made.reader_token).scope == "reader"
    with pytest.raises(RefusedError, match="team's token"):
        put(board, board.caller(made.reader_token), guesses(1))


class TestRotation:
    def test_the_old_one_is_valid_for_a_day(self, hosted):
        board, _, alpha = hosted
        new = board.rotate(board.caller(alpha))["token"]
        assert board.caller(new).expires_at is None
        ends = datetime.fromisoformat(board.caller(alpha).expires_at)
        left = ends - datetime.now(timezone.utc)
        assert timedelta(hours=23, minutes=50) < left <= timedelta(hours=24)

    def test_two_are_valid_at_most(self, hosted):
        board, _, alpha = hosted
        second = board.rotate(board.caller(alpha))["token"]
        third = board.rotate(board.caller(second))["token"]
        assert refused(board, alpha) is Problem.UNAUTHORISED
        assert {board.caller(token).team for token in (second, third)} == {"alpha"}

    def test_or_it_ends_now(self, hosted):
        board, host, alpha = hosted
        new = board.rotate(board.caller(alpha), now=True)["token"]
        assert refused(board, alpha) is Problem.UNAUTHORISED
        assert board.caller(new).team == "alpha"
        assert board.caller(host).scope == "host"

    def test_the_host_makes_new_ones_for_everybody(self, hosted):
        board, host, alpha = hosted
        new = hosting.rotate(board.config, "team", "alpha", at_once=True)
        own = hosting.rotate(board.config, "host", None, at_once=True)
        assert refused(board, alpha) is refused(board, host) is Problem.UNAUTHORISED
        assert (board.caller(new).team, board.caller(own).scope) == ("alpha", "host")

    def test_an_expired_one_is_refused(self, hosted):
        board, _, alpha = hosted
        board.rotate(board.caller(alpha))
        with board.store.transaction() as connection:
            past = {"expires_at": "2020-01-01T00:00:00.000+00:00"}
            connection.execute(schema.tokens.update().values(past))
        assert refused(board, alpha) is Problem.UNAUTHORISED


class TestRevocation:
    def test_it_holds_at_the_next_request(self, hosted):
        board, _, alpha = hosted
        assert board.caller(alpha)
        hosting.revoke(board.config, "alpha")
        assert refused(board, alpha) is Problem.UNAUTHORISED
        assert board.overview()["teams"][0]["revoked_at"] is not None

    def test_a_new_token_lets_a_team_in_again(self, hosted):
        board, _, _ = hosted
        hosting.revoke(board.config, "alpha")
        assert board.caller(hosting.rotate(board.config, "team", "alpha")).team == "alpha"
        assert board.overview()["teams"][0]["revoked_at"] is None

    def test_of_a_team_that_is_not_there(self, hosted):
        for action in (hosting.revoke, lambda *a: hosting.rotate(a[0], "team", a[1])):
            with pytest.raises(HoldoutError, match="team of this board"):
                action(hosted[0].config, "beta")


class TestNames:
    @pytest.mark.parametrize(
        "name", ["", " alpha", "alpha ", "a" * 41, "a/b", "<b>", "a\nb", "a\u202eb", "a,b", "a\0"]
    )
    def test_others_are_refused(self, hosted, name):
        with pytest.raises(HoldoutError, match="team's name"):
            hosting.add_team(hosted[0].config, name)

    @pytest.mark.parametrize("name", ["alpha", "ALPHA", "\uff41lpha"])
    def test_look_alikes_are_refused(self, hosted, name):
        with pytest.raises(HoldoutError, match="'alpha' is there"):
            hosting.add_team(hosted[0].config, name)

    def test_letters_of_any_language(self, hosted):
        assert teams.checked_name("Équipe-1 Ωmega.2_β") == "Équipe-1 Ωmega.2_β"
