"""A board in process: predictions in, answers out, and errors that are no oracle."""

import dataclasses
import threading

import numpy as np
import pytest
from torch_holdout.errors import HoldoutError, HoldoutMismatchError
from torch_holdout.service.server import hosting, schema
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.config import read_config
from torch_holdout.service.server.problems import Problem, RefusedError
from torch_holdout.service.server.teams import Event
from torch_holdout.service.server.tokens import Caller
from torch_holdout.service.server.uploads import CSV, NPY, digest

from support.builders.boards import (
    GATE,
    RECORD,
    ROWS,
    SEALED,
    configured,
    digits,
    guesses,
    npy,
    opened,
    put,
    with_teams,
)


def refused(action, *arguments, **named):
    with pytest.raises(RefusedError) as raised:
        action(*arguments, **named)
    return raised.value.problem


def files(folder):
    return sorted(path.name for path in (folder / "uploads").rglob("*") if path.is_file())


class TestAnswers:
    def test_an_answer_is_the_json_object_of_the_api(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        new, answer = put(board, who["alpha"], guesses(800))
        assert new
        assert answer["submission"] == digest(npy(guesses(800)))
        assert (answer["position"], answer["kind"], answer["better"]) == (1, "release", True)
        assert answer["quota"] == {"submissions_left": 9, "releases_left": 3}
        value, interval = answer["results"]["accuracy"].values()
        assert interval[0] < value < interval[1]
        assert answer["chain"] == board.view().chain
        assert len(answer) == 7

    def test_the_same_again_is_free_and_equal_also_after_a_restart(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        first = put(board, who["alpha"], guesses(800))[1]
        again = [put(board, who["alpha"], guesses(800))]
        again.append(put(Board.open(board.config), who["alpha"], guesses(800)))
        for new, answer in again:
            assert not new
            assert answer == first | {"kind": "repeat"}
        assert board.view().position == 1

    def test_teams_have_their_own_bests(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", "beta")
        put(board, who["alpha"], guesses(900))
        assert put(board, who["beta"], guesses(800))[1]["kind"] == "release"
        assert put(board, who["beta"], guesses(700))[1]["kind"] == "guess"

    def test_a_record_is_that_of_all(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", "beta", **RECORD)
        put(board, who["alpha"], guesses(900))
        assert put(board, who["beta"], guesses(800))[1]["kind"] == "guess"

    def test_a_gate_keeps_and_reverts(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", **GATE)
        kinds = [put(board, who["alpha"], guesses(right))[1] for right in (500, 900, 100)]
        assert [answer["kind"] for answer in kinds] == ["first", "kept", "reverted"]
        assert [answer["better"] for answer in kinds] == [None, True, False]
        assert all(result["value"] is None for a in kinds for result in a["results"].values())

    def test_a_gate_whose_incumbent_is_lost_still_answers(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", **GATE)
        first = put(board, who["alpha"], guesses(500))[1]["submission"]
        next((tmp_path / "uploads").rglob(first)).write_bytes(b"damaged")
        assert put(board, who["alpha"], guesses(900))[1]["kind"] in ("kept", "reverted", "first")

    def test_a_sealed_board_says_nothing(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", **SEALED)
        answer = put(board, who["alpha"], guesses(900))[1]
        assert (answer["kind"], answer["better"]) == ("sealed", None)
        assert answer["results"] == {"accuracy": {"value": None, "interval": None}}

    def test_several_statistics_and_csv(self, tmp_path):
        target = digits()[:120] % 2
        folder = tmp_path / "board"
        folder.mkdir()
        names = [f"row {number}" for number in range(120)]
        (folder / "ids.csv").write_text("id\n" + "\n".join(names) + "\n")
        board, who = with_teams(
            folder,
            "alpha",
            target=target,
            data='classes=2\nupload="probabilities"\npublic=0.5\nids="ids.csv"',
            statistics=(
                '[statistics.log_loss]\nkind="cross_entropy"\nhigh=5.0\n'
                '[statistics.accuracy]\nkind="accuracy"\n'
                '[statistics.f1]\nkind="f1_macro"\nblocks=6'
            ),
            feedback='mode="ladder"\nbaseline=0.69\nstep=0.05',
        )
        right = np.where(np.eye(2, dtype=bool)[target], 0.9, 0.1)
        lines = [f"{names[row]},{right[row][0]},{right[row][1]}" for row in reversed(range(120))]
        body = ("id,p0,p1\n" + "\n".join(lines)).encode()
        answer = board.submit(who["alpha"], digest(body), body, CSV)[1]
        assert answer["kind"] == "release"
        values = {name: result["value"] for name, result in answer["results"].items()}
        assert values == pytest.approx({"log_loss": 0.105, "accuracy": 1, "f1": 1}, abs=0.05)
        assert put(board, who["alpha"], right)[1]["kind"] == "guess"  # the same rows as npy


class TestRefusals:
    def test_their_order(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        alpha, good = who["alpha"], npy(guesses(800))
        assert refused(put, board, Caller(scope="reader"), good) is Problem.FORBIDDEN
        assert refused(put, board, Caller(scope="host", token="x" * 8), good) is Problem.FORBIDDEN
        large = bytes(board.layout.largest + 1)
        assert refused(board.submit, alpha, "0" * 64, large, "x/y") is Problem.SIZE
        assert refused(board.submit, alpha, "0" * 64, b"", "x/y") is Problem.MEDIA_TYPE
        assert refused(board.submit, alpha, "0" * 64, b"", CSV) is Problem.MEDIA_TYPE
        assert refused(board.submit, alpha, "0" * 64, b"", NPY) is Problem.DIGEST
        assert refused(put, board, alpha, b"") is Problem.LAYOUT
        assert refused(put, board, alpha, guesses(800) + 90) is Problem.RANGE
        assert files(tmp_path) == [] if (tmp_path / "uploads").exists() else True
        assert board.view().position == 0

    def test_none_depends_on_labels(self, tmp_path):
        """Boards with other labels, the same requests: every refusal is the same."""
        others = (digits() + 3) % 10
        told = [[], []]
        bad = (
            *(b"", npy(guesses(800))[:-1], npy(guesses(800) + 90), npy(guesses(800).astype(float))),
            npy(guesses(800)[:-1]),
        )
        for number, target in enumerate((digits(), others)):
            limits = "teams=2\nsubmissions=1\nreleases=1\nbudget=2"
            board, who = with_teams(tmp_path / str(number), "alpha", target=target, limits=limits)
            put(board, who["alpha"], guesses(900, start=50))
            for body in (*bad, npy(guesses(800))):
                with pytest.raises(RefusedError) as raised:
                    put(board, who["alpha"], body)
                told[number].append(raised.value.as_json())
        assert told[0] == told[1]
        assert told[0][-1]["status"] == 409  # a good upload found an empty quota

    def test_a_spent_quota_refuses_keeps_nothing_and_repeats(self, tmp_path):
        limits = "teams=2\nsubmissions=2\nreleases=2\nbudget=4"
        board, who = with_teams(tmp_path, "alpha", "beta", limits=limits)
        for right in (700, 800):
            put(board, who["alpha"], guesses(right))
        kept = files(tmp_path)
        for right in (850, 900):
            assert refused(put, board, who["alpha"], guesses(right)) is Problem.EXHAUSTED_TEAM
        assert files(tmp_path) == kept
        assert put(board, who["alpha"], guesses(700))[1]["kind"] == "repeat"
        assert put(board, who["beta"], guesses(850))[1]["kind"] == "release"
        assert refused(put, board, who["alpha"], guesses(850)) is Problem.EXHAUSTED_TEAM
        assert digest(npy(guesses(850))) in files(tmp_path)  # beta's
        assert board.overview()["teams"][0]["refused"] == 3

    def test_a_team_without_releases_is_refused_whatever_it_sends(self, tmp_path):
        limits = "teams=1\nsubmissions=9\nreleases=1\nbudget=1"
        board, who = with_teams(tmp_path, "alpha", limits=limits)
        put(board, who["alpha"], guesses(800))
        for right in (0, 1000):
            problem = refused(put, board, who["alpha"], guesses(right))
            assert problem in (Problem.EXHAUSTED_TEAM, Problem.EXHAUSTED_BOARD)

    def test_after_its_time_nothing_is_answered(self, tmp_path, monkeypatch):
        monkeypatch.setattr(hosting, "now", lambda: "2019-12-01T00:00:00.000+00:00")
        closes = "closes = 2020-01-01T00:00:00Z"
        board, who = with_teams(tmp_path, "alpha", board=closes)
        assert refused(put, board, who["alpha"], guesses(800)) is Problem.CLOSED
        assert refused(put, board, who["alpha"], b"") is Problem.CLOSED
        assert refused(board.finalists, who["alpha"], []) is Problem.CLOSED
        assert board.view().state == "ended"

    def test_others_submissions_are_unknown(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", "beta")
        sha = put(board, who["alpha"], guesses(800))[1]["submission"]
        assert board.submission(who["alpha"], sha)["kind"] == "repeat"
        for name in (sha, "0" * 64, "../x"):
            assert refused(board.submission, who["beta"], name) is Problem.UNKNOWN
        assert refused(board.finalists, who["beta"], [sha]) is Problem.UNKNOWN
        assert board.submissions(who["beta"]) == {"submissions": [], "next": None}


MSE = {
    "data": 'classes = 10\nupload = "scores"\npublic = 0.3',
    "statistics": '[statistics.mse]\nkind = "mse"\nlow = 0.0\nhigh = 1.0',
}


class TestRegistration:
    CHANGES = (
        ("baseline = 0.55", "baseline = 0.56"),
        ("step = 0.01", "step = 0.02"),
        ("budget = 20", "budget = 21"),
        ("submissions = 10", "submissions = 11"),
        ("public = 0.3", "public = 0.3\n# x"),
    )

    @pytest.mark.parametrize(("before", "after"), CHANGES[:4])
    def test_what_a_certificate_depends_on_cannot_be_changed(self, tmp_path, before, after):
        board = opened(tmp_path)
        place = tmp_path / "board.toml"
        place.write_text(place.read_text().replace(before, after))
        with pytest.raises(HoldoutMismatchError):
            Board.open(read_config(place))
        place.write_text(place.read_text().replace(after, before))
        assert Board.open(read_config(place)).view().position == board.view().position

    def test_nor_when_it_closes_nor_how_many_finalists(self, tmp_path):
        opened(tmp_path)
        place = tmp_path / "board.toml"
        text = place.read_text()
        for change in (
            text.replace("[data]", "closes = 2030-01-01T00:00:00Z\n[data]"),
            text.replace("budget = 20", "budget = 20\nfinalists = 3"),
            text.replace("budget = 20", "budget = 20\nfailure = 0.1"),
        ):
            place.write_text(change)
            with pytest.raises(HoldoutMismatchError):
                Board.open(read_config(place))

    def test_a_board_is_initialised_once(self, tmp_path):
        board = opened(tmp_path)
        with pytest.raises(HoldoutError, match="initialised before"):
            hosting.initialise(board.config)

    def test_a_board_without_its_ledger_is_not_made_again(self, tmp_path):
        board = opened(tmp_path)
        (tmp_path / "board.db").unlink()
        with pytest.raises(HoldoutError, match="board init"):
            Board.open(board.config)
        with pytest.raises(HoldoutError, match="bring the old one back"):
            hosting.initialise(board.config)
        with pytest.raises(HoldoutError, match="board init"):
            Board.open(board.config)

    @pytest.mark.parametrize("kept", ["row", "row and account"])
    def test_an_attempt_that_crashed_before_its_tokens_has_a_board_to_close(self, tmp_path, kept):
        config = configured(tmp_path)
        Board.create(config)  # and then the power went
        if kept == "row":
            (tmp_path / "board.db").unlink()
            hosting.initialise(config)
        hosting.rotate(config, "host", None)
        running = Board.open(config)
        team = running.caller(hosting.add_team(config, "alpha"))
        sha = put(running, team, guesses(800))[1]["submission"]
        assert len(hosting.close(config, None)["finalists"]) == 1
        assert refused(running.finalists, team, [sha]) is Problem.CLOSED

    def test_an_attempt_that_crashed_goes_on_with_its_files(self, tmp_path):
        from torch_holdout.service.server.labels import cut_labels, read_source

        config = configured(tmp_path)
        cut_labels(config, read_source(config))
        before = (tmp_path / "vault.labels").read_bytes()
        hosting.initialise(config)
        assert (tmp_path / "vault.labels").read_bytes() == before

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"feedback": 'mode = "ladder"\nbaseline = 55.0\nstep = 0.01'}, "baseline"),
            ({"feedback": 'mode = "ladder"\nbaseline = 0.55\nstep = 3.0'}, "step"),
            ({"feedback": 'mode = "ladder"\nbaseline = 0.55\nstep = 1e-30'}, "step"),
            ({"feedback": 'mode = "record"\nbaseline = 0.5\nstep = 0.51'}, "beaten by a step"),
            (MSE | {"feedback": 'mode = "ladder"\nbaseline = 0.005\nstep = 0.01'}, "beaten by"),
            ({"data": 'ids = "ids.csv"\nclasses = 10\nupload = "classes"\npublic = 0.3'}, "ids"),
            ({"board": "closes = 2020-01-01T00:00:00Z"}, "in the future"),
            ({"ledger": "sqlite:///nowhere/board.db"}, "Expected a folder for the ledger"),
        ],
    )
    def test_what_is_wrong_is_said_before_anything_is_cut(self, tmp_path, change, words):
        config = configured(tmp_path, **change)
        with pytest.raises(HoldoutError, match=words):
            hosting.initialise(config)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["board.toml", "labels.npy"]

    @pytest.mark.parametrize(
        "change", ["other labels", "one other label", "other share", "other vault"]
    )
    def test_files_of_an_attempt_with_other_labels_are_not_used(self, tmp_path, change):
        from torch_holdout.service.server.labels import cut_labels, read_source

        config = configured(tmp_path)
        cut_labels(config, read_source(config))
        if change == "other labels":
            config = configured(tmp_path, digits(500, seed=1))
        elif change == "one other label":
            config = configured(tmp_path, (digits() + (np.arange(1000) == 7)) % 10)
        elif change == "other share":
            config = configured(tmp_path, data='classes = 10\nupload = "classes"\npublic = 0.5')
        else:
            other = configured(tmp_path / "other")
            cut_labels(other, read_source(other))
            (tmp_path / "other" / "vault.labels").replace(tmp_path / "vault.labels")
        with pytest.raises(HoldoutError, match=r"Remove both .* and run `board init` again"):
            hosting.initialise(config)
        assert not (tmp_path / "board.db").exists()

    def test_quotas_are_reserved_from_the_budget(self, tmp_path):
        limits = "teams=2\nsubmissions=9\nreleases=2\nbudget=4"
        board, _ = with_teams(tmp_path, "alpha", "beta", limits=limits)
        with pytest.raises(HoldoutError, match="budget"):
            hosting.add_team(board.config, "gamma")
        assert [team["team"] for team in board.overview()["teams"]] == ["alpha", "beta"]

    def test_a_team_whose_making_crashed_gets_its_token(self, tmp_path):
        board = opened(tmp_path)
        board.holdout.add_analyst("alpha", submissions=10, releases=4)
        assert board.caller(hosting.add_team(board.config, "alpha")).team == "alpha"


class TestFinalists:
    def test_a_list_is_replaced(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        shas = [put(board, who["alpha"], guesses(n))[1]["submission"] for n in (700, 800, 810)]
        assert board.finalists(who["alpha"], shas[:2])["finalists"] == shas[:2]
        assert board.finalists(who["alpha"], [shas[2], shas[2]])["finalists"] == [shas[2]]
        assert board.team_view(who["alpha"])["finalists"] == [shas[2]]
        assert refused(board.finalists, who["alpha"], shas) is Problem.REQUEST

    def test_without_a_vault_final_is_refused_and_costs_nothing(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", data='classes=10\nupload="classes"\npublic=1')
        for ask in (lambda: put(board, who["alpha"], guesses(700), final=True),
                    lambda: board.finalists(who["alpha"], [])):  # fmt: skip
            assert refused(ask) is Problem.REQUEST
        assert board.view().position == 0

    def test_final_puts_one_first(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        shas = [
            put(board, who["alpha"], guesses(n), final=True)[1]["submission"]
            for n in (700, 800, 810)
        ]
        assert board.team_view(who["alpha"])["finalists"] == [shas[2], shas[1]]
        put(board, who["alpha"], guesses(700), final=True)
        assert board.team_view(who["alpha"])["finalists"] == [shas[0], shas[2]]

    @pytest.mark.parametrize("way", ["list", "final"])
    def test_a_list_is_not_changed_while_the_board_is_closed(self, tmp_path, monkeypatch, way):
        """The request came before the end: what the vault judges is fixed with the closing."""
        board, who = with_teams(tmp_path, "alpha")
        shas = [put(board, who["alpha"], guesses(n))[1]["submission"] for n in (700, 800)]
        board.finalists(who["alpha"], shas[:1])
        before = hosting.close(board.config, None)
        late = Board.open(board.config)
        monkeypatch.setattr(Board, "require_open", lambda self, caller: None)
        monkeypatch.setattr(Board, "_received_before", lambda self, *_: True)
        if way == "list":
            assert refused(late.finalists, who["alpha"], shas[1:]) is Problem.CLOSED
        else:
            late_final = lambda: put(late, who["alpha"], guesses(800), final=True)  # noqa: E731
            assert refused(late_final) is Problem.CLOSED
        assert hosting.close(board.config, None) == before

    def test_without_a_vault_there_is_nothing_to_name(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", **SEALED)
        put(board, who["alpha"], guesses(700), final=True)
        assert refused(board.finalists, who["alpha"], []) is Problem.REQUEST


class TestLists:
    def test_submissions_come_in_pages(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", "beta")
        for number in range(5):
            put(board, who["alpha"], guesses(700, start=number))
            put(board, who["beta"], guesses(700, start=number))
        pages, after = [], 0
        while after is not None:
            page = board.submissions(who["alpha"], after, 2)
            pages.append([answer["position"] for answer in page["submissions"]])
            after = page["next"]
        assert pages == [[1, 3], [5, 7], [9]]

    def test_me_and_the_host(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        left = {"submissions_left": 10, "releases_left": 4}
        assert board.me(who["alpha"])["quota"] == {"submissions": 10, "releases": 4, **left}
        assert board.me(Caller(scope="reader"))["quota"] is None
        assert refused(board.host_view, who["alpha"]) is Problem.FORBIDDEN
        board.record_events([Event("submit", 201, who["alpha"], 1000, 1)])
        (event,) = board.host_view(Caller(scope="host", token="h" * 8))["events"]
        assert (event["action"], event["status"], event["team"]) == ("submit", 201, "alpha")


class TestConcurrency:
    def test_the_same_upload_at_once_is_charged_once(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        answers = []

        def send():
            answers.append(put(board, who["alpha"], guesses(800)))

        threads = [threading.Thread(target=send) for _ in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert sorted(new for new, _ in answers) == [False] * 5 + [True]
        assert len({answer["position"] for _, answer in answers}) == 1
        assert board.view().position == 1

    def test_a_quota_holds_between_threads_and_boards(self, tmp_path):
        limits = "teams=1\nsubmissions=3\nreleases=3\nbudget=3"
        board, who = with_teams(tmp_path, "alpha", limits=limits)
        boards = [board, Board.open(board.config)]
        answered, problems = [], []

        def send(number):
            try:
                answered.append(put(boards[number % 2], who["alpha"], guesses(700, start=number)))
            except RefusedError as refusal:
                problems.append(refusal.problem.status)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(9)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert (len(answered), problems) == (3, [409] * 6)
        assert board.view().position == 3

    def test_without_its_note_an_upload_is_still_repeated(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha", "beta")
        first = put(board, who["alpha"], guesses(800))[1]
        with board.store.transaction() as connection:
            connection.execute(schema.submissions.delete())  # as a power cut might
        assert put(board, who["alpha"], guesses(800)) == (False, first | {"kind": "repeat"})
        assert board.view().position == 1

    def test_an_upload_that_was_lost_is_kept_again_by_its_repeat(self, tmp_path):
        board, who = with_teams(tmp_path, "alpha")
        sha = put(board, who["alpha"], guesses(800))[1]["submission"]
        next((tmp_path / "uploads").rglob(sha)).unlink()
        assert put(board, who["alpha"], guesses(800))[1]["kind"] == "repeat"
        assert files(tmp_path) == [sha]


def test_a_caller_is_plain_data():
    assert dataclasses.asdict(Caller(scope="reader"))["team"] is None
    assert ROWS == 1000
