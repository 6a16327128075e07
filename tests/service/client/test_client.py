"""A team asks a board: answers, repeats, refusals, and what happens while the board is away."""

import logging
import pickle
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest
import torch_holdout as th
from torch_holdout.service.client import RemoteBoard
from torch_holdout.service.client.addresses import board_address
from torch_holdout.service.client.answers import answer_from

from support.machines.board_stand_in import TOKEN, BoardStandIn, standing_in

RIGHT = np.arange(40) % 10


def partly(right):
    """Predictions of which the first ones are right."""
    return np.where(np.arange(40) < right, RIGHT, (RIGHT + 1) % 10)


class TestAnswers:
    def test_a_better_submission_is_told_its_value(self, board):
        answer = th.remote(board.url).submit(partly(30))
        assert (answer.kind, answer.better, answer.value) == ("release", True, 0.75)
        assert (answer.position, answer.quota.submissions_left) == (1, 49)
        assert answer.quota.releases_left == 7
        assert answer.accepted

    def test_one_that_is_not_better_is_told_the_best(self, board):
        remote = th.remote(board.url)
        remote.submit(partly(30))
        answer = remote.submit(partly(20))
        assert (answer.kind, answer.better, answer.value) == ("guess", False, 0.75)
        assert not answer.accepted

    def test_below_the_baseline_nothing_is_told(self, board):
        answer = th.remote(board.url).submit(partly(5))
        assert (answer.kind, answer.value) == ("guess", None)

    def test_the_same_again_is_free_and_sends_no_predictions(self, board):
        remote = th.remote(board.url)
        first = remote.submit(partly(30))
        again = th.remote(board.url).submit(partly(30).tolist())
        assert again.kind == "repeat"
        assert (again.value, again.position) == (first.value, first.position)
        assert len(board.bodies) == 1
        assert again.quota.submissions_left == 49

    def test_what_is_sent_is_small(self, board):
        th.remote(board.url).submit(partly(30))
        assert board.bodies == [(128 + 40, "application/x-npy")]

    def test_finalists_are_named_with_a_submission_or_afterwards(self, board):
        remote = th.remote(board.url)
        first = remote.submit(partly(30))
        second = remote.submit(partly(31), final=True)
        assert board.finalists == [second.submission]
        assert remote.finalists([first.submission]) == [first.submission]
        assert board.finalists == [first.submission]
        again = (sha for sha in [first.submission])  # what is read once is not lost
        assert remote.finalists(again) == board.finalists == [first.submission]
        for none in (first.submission, None, [1]):
            with pytest.raises(th.InvalidArgumentError, match="Expected the addresses"):
                remote.finalists(none)
        remote.submit(partly(31), final=True)  # known, and sent again to be one
        assert board.finalists == [first.submission, second.submission]

    def test_status_and_leaderboard(self, board):
        remote = th.remote(board.url)
        remote.submit(partly(30))
        status = remote.status()
        assert (status.mode, status.rows, status.first) == ("ladder", 40, "accuracy")
        assert status.quota.submissions_left == 49
        assert remote.leaderboard()["position"] == 1

    def test_public_facts_need_no_token(self, board, monkeypatch):
        monkeypatch.delenv("TORCH_HOLDOUT_TOKEN")
        assert th.remote(board.url).status().quota is None
        with pytest.raises(th.BoardRefusedError, match="TORCH_HOLDOUT_TOKEN"):
            th.remote(board.url).submit(partly(30))

    @pytest.mark.parametrize("mode", ["gate", "sealed"])
    def test_other_boards_tell_no_value(self, token, mode):
        with standing_in(RIGHT, mode=mode) as board:
            remote = th.remote(board.url)
            kinds = [remote.submit(partly(each)).kind for each in (30, 20, 35)]
            values = [remote.submit(partly(each)).value for each in (30, 20, 35)]
        expected = {"gate": ["first", "reverted", "kept"], "sealed": ["sealed"] * 3}
        assert kinds == expected[mode]
        assert values == [None] * 3

    def test_an_answer_to_other_predictions_is_no_answer(self, board):
        remote = th.remote(board.url)
        remote.submit(partly(30))
        (sha,) = board.answers
        board.answers[sha]["submission"] = "0" * 64
        with pytest.raises(th.HoldoutError, match="sent that to others"):
            remote.submit(partly(30))

    @pytest.mark.parametrize("content", [None, [], {}, {"submission": 1}, "text"])
    def test_what_is_no_answer_is_said(self, content):
        with pytest.raises(th.HoldoutError, match="Expected an answer as JSON"):
            answer_from(content, "accuracy")


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "https://host/boards/digits",
            "https://host/boards/digits/",
            "https://host/v1/boards/digits",
            "HTTPS://host/boards/digits",
        ],
    )
    def test_page_and_api_name_one_board(self, url):
        assert board_address(url).api.endswith("//host/v1/boards/digits")

    def test_a_prefix_stays(self):
        address = board_address("https://host:8443/held/out/boards/digits")
        assert address.api == "https://host:8443/held/out/v1/boards/digits"

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8700", "127.9.9.9", "[::1]:8700"])
    def test_this_machine_needs_no_certificate(self, host):
        assert board_address(f"http://{host}/boards/b").is_here

    @pytest.mark.parametrize(
        "host", ["host", "10.0.0.1", "127.0.0.1.evil.org", "localhost.evil.org", "0.0.0.0"]
    )
    def test_others_do(self, host):
        with pytest.raises(th.InvalidArgumentError, match="https"):
            th.remote(f"http://{host}/boards/b")

    @pytest.mark.parametrize(
        "url",
        [
            "", "digits", "https://host", "https://host/boards/", "https://host/boards/A",
            "https://host/boards/b?token=x", "https://host/boards/b#x", "ftp://host/boards/b",
            "https:///boards/b", "https://host/boards/../b", "https://ho st/boards/b",
            "https://host:99999/boards/b", None, 3, "file:///boards/b",
        ],
    )  # fmt: skip
    def test_what_is_no_board_is_refused(self, url):
        with pytest.raises(th.InvalidArgumentError, match="address of a board"):
            th.remote(url)

    @pytest.mark.parametrize("user", ["team:s3cret@", "s3cret@", ":s3cret@"])
    def test_a_password_in_an_address_is_refused_and_not_shown(self, user):
        with pytest.raises(th.InvalidArgumentError) as refused:
            th.remote(f"https://{user}host/boards/digits")
        assert "TORCH_HOLDOUT_TOKEN" in str(refused.value)
        assert "s3cret" not in str(refused.value)


class TestTokens:
    def test_one_that_is_given_comes_first(self, board, monkeypatch):
        monkeypatch.setenv("TORCH_HOLDOUT_TOKEN", "th_other_other")
        assert th.remote(board.url, TOKEN).submit(partly(30)).value == 0.75
        with pytest.raises(th.BoardRefusedError, match="401"):
            th.remote(board.url).submit(partly(30))

    def test_it_is_nowhere_to_be_seen(self, board, monkeypatch):
        monkeypatch.delenv("TORCH_HOLDOUT_TOKEN")
        remote = th.remote(board.url, TOKEN)
        remote.submit(partly(30))
        secret = TOKEN[-20:].encode()
        assert secret not in pickle.dumps(remote) + repr(remote).encode()
        assert secret not in repr(vars(remote)).encode()

    def test_a_pickle_reads_the_environment(self, board, monkeypatch):
        copy = pickle.loads(pickle.dumps(th.remote(board.url, TOKEN, wait=3)))
        assert isinstance(copy, RemoteBoard)
        assert copy.submit(partly(30)).value == 0.75
        monkeypatch.delenv("TORCH_HOLDOUT_TOKEN")
        with pytest.raises(th.BoardRefusedError, match="TORCH_HOLDOUT_TOKEN"):
            copy.submit(partly(31))

    def test_errors_carry_none_in_their_frames(self, board):
        board.failures.append(500)
        try:
            th.remote(board.url, TOKEN, wait=0).submit(partly(30))
        except th.BoardUnreachableError as error:
            frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        shown = repr([frame.f_locals for frame in frames[1:]])
        assert TOKEN[-20:] not in shown

    @pytest.mark.parametrize("token", ["", "two words", "th_é", 7])
    def test_what_is_no_token_is_refused_and_not_quoted(self, token):
        with pytest.raises(th.InvalidArgumentError, match="Expected a token") as refused:
            th.remote("https://host/boards/b", token)
        assert "words" not in str(refused.value)

    def test_a_redirect_is_not_followed(self, board):
        board.failures.append(307)
        with pytest.raises(th.BoardRefusedError, match="where a token does not go"):
            th.remote(board.url).status()
        assert len(board.requests) == 1

    @pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
    def test_no_proxy_stands_before_this_machine(self, board, monkeypatch, name):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        assert th.remote(board.url, wait=0).submit(partly(30)).value == 0.75


class TestRefusals:
    def test_a_team_with_nothing_left(self, token):
        with standing_in(RIGHT, releases=1) as board:
            remote = th.remote(board.url)
            remote.submit(partly(30))
            with pytest.raises(th.BudgetExhaustedError, match="Exhausted-team"):
                remote.submit(partly(35))
            assert remote.submit(partly(30)).kind == "repeat"

    def test_a_closed_board_takes_nothing_and_repeats(self, board):
        remote = th.remote(board.url)
        remote.submit(partly(30))
        board.state = "closed"
        with pytest.raises(th.HoldoutClosedError, match="Closed"):
            remote.submit(partly(35))
        assert remote.submit(partly(30)).kind == "repeat"

    def test_a_refused_layout_names_the_kind(self, board):
        remote = th.remote(board.url)
        remote.status()
        board.truth = RIGHT[:30]
        with pytest.raises(th.BoardRefusedError, match="Layout") as refused:
            remote.submit(partly(30))
        assert refused.value.problem == "layout"

    def test_a_servers_words_cannot_write_to_a_terminal(self, board):
        remote = th.remote(board.url)
        remote.status()
        board.truth, board.problem_detail = RIGHT[:30], "\x1b[2J\nx" * 1000
        with pytest.raises(th.BoardRefusedError) as refused:
            remote.submit(partly(30))
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) < 700

    def test_errors_survive_a_pickle(self):
        error = pickle.loads(pickle.dumps(th.BoardRefusedError("words", "layout")))
        assert (str(error), error.problem) == ("words", "layout")


class TestWhileTheBoardIsAway:
    @pytest.mark.parametrize("failure", [502, 503, 504, "drop"])
    def test_a_request_is_repeated(self, board, failure):
        board.failures.extend([failure, failure])
        assert th.remote(board.url, wait=30).submit(partly(30)).value == 0.75

    def test_an_answer_that_was_lost_comes_back_as_a_repeat(self, board):
        """It was committed before the connection broke: the second time nothing is charged."""
        remote = th.remote(board.url, wait=30)
        remote.status()
        board.failures.append("late")
        board.only = "PUT"
        answer = remote.submit(partly(30))
        assert (answer.kind, answer.better, answer.value) == ("repeat", True, 0.75)
        assert (board.count("PUT"), len(board.answers)) == (2, 1)

    def test_it_ends_after_the_time_that_was_given(self, board):
        board.failures.extend([503] * 1000)
        with pytest.raises(th.BoardUnreachableError, match="it says 503"):
            th.remote(board.url, wait=3).status()
        assert 2 <= len(board.requests) <= 5  # at 0, 0.25, 0.75 and 1.75 s, and not at 3.75

    def test_without_time_it_is_sent_once(self, board):
        board.failures.append(503)
        with pytest.raises(th.BoardUnreachableError, match="repeated at any time"):
            th.remote(board.url, wait=0).status()
        assert len(board.requests) == 1

    def test_a_failure_inside_is_not_repeated(self, board):
        board.failures.append(500)
        with pytest.raises(th.BoardUnreachableError, match="it failed"):
            th.remote(board.url, wait=30).status()
        assert len(board.requests) == 1

    @pytest.mark.parametrize("status", [429, 503])
    def test_it_waits_as_long_as_it_is_told(self, board, status):
        board.failures.append(status)
        board.retry_after = 1
        started = time.monotonic()
        th.remote(board.url, wait=30).status()
        assert time.monotonic() - started >= 1

    def test_a_wait_longer_than_the_time_given_is_not_begun(self, board):
        board.failures.append(429)
        board.retry_after = 3000
        with pytest.raises(th.BoardUnreachableError, match="it says 429"):
            th.remote(board.url, wait=2).status()

    def test_the_first_failure_is_said_once(self, board, caplog):
        board.failures.extend([503, "drop"])
        th.remote(board.url, wait=30).status()
        (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
        assert "repeated for up to 30 s" in record.getMessage()

    def test_a_board_that_comes_back_is_asked_again(self, board):
        remote = th.remote(board.url, wait=60)
        remote.status()
        board.stop()
        back = threading.Timer(1.0, board.start)
        back.start()
        assert remote.submit(partly(30)).value == 0.75
        back.join()


class TestMemory:
    def test_a_board_that_was_set_back_is_noticed_by_its_head(self, board):
        remote = th.remote(board.url)
        for right in (20, 25, 30):
            remote.submit(partly(right))
        board.forget(1)
        with pytest.warns(th.HoldoutWarning, match="is at answer 1, but was at 3"):
            remote.status()

    def test_and_by_the_number_of_a_new_answer(self, board):
        remote = th.remote(board.url)
        for right in (20, 25, 30):
            remote.submit(partly(right))
        board.forget(1)
        with pytest.warns(th.HoldoutWarning, match="is at answer 2, but was at 3"):
            remote.submit(partly(35))

    def test_it_is_said_once_by_a_process(self, board):
        remote = th.remote(board.url)
        for right in (20, 25, 30):
            remote.submit(partly(right))
        board.forget(0)
        with pytest.warns(th.HoldoutWarning, match="was set back"):
            remote.status()
        remote.leaderboard()  # warnings are errors here

    def test_the_next_process_knows(self, board, own_memory):
        remote = th.remote(board.url)
        for right in (20, 25, 30):
            remote.submit(partly(right))
        board.forget(1)
        code = f"import torch_holdout as th; th.remote({board.url!r}).status()"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "was at 3" in ended.stderr
        assert own_memory.stat().st_mode & 0o077 == 0

    def test_another_chain_at_the_same_place_is_another_board(self, board):
        remote = th.remote(board.url)
        remote.submit(partly(20))
        remote.status()
        port = board.port
        board.stop()
        twin = BoardStandIn.__new__(BoardStandIn)
        twin.__dict__.update(vars(board))
        twin.port = port
        twin.start()  # the same answers, and another chain
        try:
            with pytest.warns(th.HoldoutWarning, match="shows another chain"):
                remote.status()
        finally:
            twin.stop()

    def test_repeats_and_reads_are_no_alarm(self, board):
        remote = th.remote(board.url)
        for right in (20, 25, 20, 30, 20, 25):
            remote.submit(partly(right))
            remote.status()

    @pytest.mark.parametrize("content", ["", "[]", '{"x": 3}', "\x00", '{"x": {"position": "y"}}'])
    def test_a_damaged_memory_is_none(self, board, own_memory, content):
        own_memory.parent.mkdir(parents=True)
        own_memory.write_text(content)
        th.remote(board.url).status()

    def test_a_folder_that_cannot_be_written_is_none(self, board, monkeypatch, tmp_path):
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
        th.remote(board.url).submit(partly(20))
