"""Closing: once, for good, and whoever does it again gets the same."""

import json
import shutil

import numpy as np
import pytest
from torch_holdout.errors import HoldoutError, HoldoutMismatchError
from torch_holdout.service.server import hosting
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.config import read_config
from torch_holdout.service.server.labels import read_part
from torch_holdout.service.server.problems import Problem, RefusedError

from support.builders.boards import GATE, SEALED, digits, guesses, put, with_teams

PUBLIC_ONLY = {"data": 'classes=10\nupload="classes"\npublic=1'}


def judged(results):
    return {(row["team"], row["submission"]) for row in results["finalists"]}


def test_the_vault_judges_the_best_and_the_last(tmp_path):
    board, who = with_teams(tmp_path, "alpha", "beta")
    shas = [put(board, who["alpha"], guesses(n))[1]["submission"] for n in (700, 800, 300, 200)]
    other = put(board, who["beta"], guesses(600))[1]["submission"]
    results = hosting.close(board.config, None)
    assert judged(results) == {("alpha", shas[1]), ("alpha", shas[3]), ("beta", other)}
    vault = read_part(board.config, tmp_path / "vault.labels")
    right = np.mean(guesses(800)[vault._numbers] == digits()[vault._numbers])
    assert results["teams"][0]["results"]["accuracy"]["value"] == pytest.approx(right)
    assert [row["team"] for row in results["teams"]] == ["alpha", "beta"]
    assert [row["rank"] for row in results["teams"]] == [[1, 1], [2, 2]]
    assert results["rows"] == 700
    assert results["bracket"] == pytest.approx(np.log(2 * 3 / 0.05))


def test_named_finalists_are_judged_and_no_others(tmp_path):
    board, who = with_teams(tmp_path, "alpha")
    shas = [put(board, who["alpha"], guesses(n))[1]["submission"] for n in (700, 800, 900)]
    board.finalists(who["alpha"], [shas[0]])
    assert judged(hosting.close(board.config, None)) == {("alpha", shas[0])}


def test_a_sealed_board_judges_every_submission(tmp_path):
    board, who = with_teams(tmp_path, "alpha", "beta", **SEALED)
    for number, team in enumerate(("alpha", "beta", "alpha")):
        put(board, who[team], guesses(600 + 100 * number))
    results = hosting.close(board.config, None)
    assert len(results["finalists"]) == 3
    assert (results["rows"], results["vault"]) == (1000, False)
    values = [row["results"]["accuracy"]["value"] for row in results["finalists"]]
    assert values == pytest.approx([0.8, 0.7, 0.6])


def test_a_gate_sends_its_incumbents(tmp_path):
    board, who = with_teams(tmp_path, "alpha", **GATE)
    shas = [put(board, who["alpha"], guesses(n))[1]["submission"] for n in (300, 900, 100)]
    assert judged(hosting.close(board.config, None)) == {("alpha", shas[1])}


def test_the_same_file_of_two_teams_is_judged_for_both(tmp_path):
    board, who = with_teams(tmp_path, "alpha", "beta")
    for team in ("alpha", "beta"):
        put(board, who[team], guesses(800))
    results = hosting.close(board.config, None)
    assert [row["rank"] for row in results["teams"]] == [[1, 2], [1, 2]]
    assert [row["not_told_apart_from"] for row in results["teams"]] == [["beta"], ["alpha"]]


def test_without_a_vault_the_finalists_pay_for_what_was_told(tmp_path):
    board, who = with_teams(tmp_path, "alpha", **PUBLIC_ONLY)
    put(board, who["alpha"], guesses(800))
    put(board, who["alpha"], guesses(900))
    results = hosting.close(board.config, None)
    assert (results["rows"], results["vault"]) == (1000, False)
    assert results["bracket"] > 10


def test_a_board_without_submissions_closes(tmp_path):
    board, _ = with_teams(tmp_path, "alpha")
    assert hosting.close(board.config, None)["finalists"] == []
    view = board.view()
    assert (view.state, view.results["teams"], view.rows[0].value) == ("closed", [], None)


class TestForGood:
    def test_nothing_is_answered_any_more(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        sha = put(board, who["alpha"], guesses(800))[1]["submission"]
        running = Board.open(board.config)  # as the server: it has no part in the closing
        hosting.close(board.config, None)
        for action in (
            lambda: put(running, who["alpha"], guesses(900)),
            lambda: put(running, who["alpha"], guesses(800)),
            lambda: running.finalists(who["alpha"], [sha]),
        ):
            with pytest.raises(RefusedError) as raised:
                action()
            assert raised.value.problem is Problem.CLOSED
        assert running.submission(who["alpha"], sha)["kind"] == "repeat"
        with pytest.raises(HoldoutError, match="closed"):
            hosting.add_team(board.config, "beta")

    def test_the_ledger_refuses_also_a_server_that_missed_it(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        board.holdout.close()  # the service's own table does not say so yet
        with pytest.raises(RefusedError) as raised:
            put(board, who["alpha"], guesses(900))
        assert raised.value.problem is Problem.CLOSED
        assert not list((tmp_path / "uploads").rglob("?" * 64))

    def test_twice_gives_the_same(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        put(board, who["alpha"], guesses(800))
        first = hosting.close(board.config, None)
        written = (tmp_path / "results.json").read_bytes()
        assert hosting.close(board.config, None) == first
        assert (tmp_path / "results.json").read_bytes() == written

    def test_one_that_crashed_is_run_again(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        put(board, who["alpha"], guesses(800))
        board.holdout.close()  # and then the power went
        view = board.view()
        assert (view.state, view.results) == ("closed", None)
        results = hosting.close(board.config, None)
        assert len(results["finalists"]) == 1
        assert board.view().results == results

    def test_other_finalists_afterwards_are_refused(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        shas = [put(board, who["alpha"], guesses(n))[1]["submission"] for n in (700, 800)]
        board.finalists(who["alpha"], shas)
        hosting.close(board.config, None)
        next((tmp_path / "uploads").rglob(shas[0])).unlink()
        with pytest.raises(HoldoutMismatchError, match="was judged on"):
            hosting.close(board.config, None)

    def test_results_stand_when_every_upload_is_lost_since(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        put(board, who["alpha"], guesses(800))
        hosting.close(board.config, None)
        written = (tmp_path / "results.json").read_bytes()
        shutil.rmtree(tmp_path / "uploads")
        with pytest.raises(HoldoutMismatchError, match="Its results stand"):
            hosting.close(board.config, None)
        assert (tmp_path / "results.json").read_bytes() == written

    def test_a_lost_upload_is_said(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        shas = [put(board, who["alpha"], guesses(n))[1]["submission"] for n in (700, 800)]
        board.finalists(who["alpha"], shas)
        next((tmp_path / "uploads").rglob(shas[0])).write_bytes(b"damaged")
        results = hosting.close(board.config, None)
        assert results["not_judged"] == [shas[0]]
        assert judged(results) == {("alpha", shas[1])}

    def test_uploads_are_removed_if_the_host_says_so(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        put(board, who["alpha"], guesses(800))
        place = tmp_path / "board.toml"
        place.write_text(place.read_text().replace("[store]", "[store]\nkeep_uploads = false"))
        results = hosting.close(read_config(place), None)
        assert not list((tmp_path / "uploads").rglob("?" * 64))
        (tmp_path / "results.html").unlink()  # as if it had crashed before
        assert hosting.close(read_config(place), None) == results
        assert (tmp_path / "results.html").exists()
        assert Board.open(read_config(place)).view().results == results


def test_results_of_another_closing_are_not_shown(tmp_path):
    board, who = with_teams(tmp_path, "alpha")
    put(board, who["alpha"], guesses(800))
    older = {"board": "digits", "closed_at": "2020-01-01T00:00:00.000+00:00", "teams": []}
    (tmp_path / "results.json").write_text(json.dumps(older))
    assert board.view().state == "open"
    board.holdout.close()
    assert board.view().results is None
    assert len(hosting.close(board.config, None)["teams"]) == 1


def test_results_are_a_page_and_json_for_everybody(tmp_path):
    board, who = with_teams(tmp_path, "alpha", "beta")
    put(board, who["alpha"], guesses(900))
    put(board, who["beta"], guesses(500))
    results = hosting.close(board.config, None)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    page = (tmp_path / "results.html").read_text()
    assert "alpha" in page
    assert "<script" not in page
    view = Board.open(board.config).view()
    assert view.state == "closed"
    assert view.results == results
    first, second = view.rows
    assert (first.team, first.rank, second.rank) == ("alpha", (1, 1), (2, 2))
    assert first.value == results["teams"][0]["results"]["accuracy"]["value"]
    assert first.public_value == pytest.approx(0.9, abs=0.05)
    assert "another statement" in view.promise[1]
