"""A quota holds between processes, on SQLite and on PostgreSQL; boards share a database."""

from multiprocessing import get_context

import pytest
from torch_holdout.errors import HoldoutMismatchError
from torch_holdout.ledger import verify
from torch_holdout.service.server import hosting
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.config import read_config
from torch_holdout.service.server.problems import RefusedError
from torch_holdout.service.server.teams import Event
from torch_holdout.service.server.tokens import Caller

from support.builders.boards import guesses, opened, put, with_teams

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(["torch", "support.builders.boards", "psycopg"])
QUOTA = "teams=2\nsubmissions=3\nreleases=3\nbudget=6"


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request):
    if request.param == "sqlite":
        return "sqlite:///board.db"
    return request.getfixturevalue("postgres").new_url()


def ask_in_vain(place, worker, ready, results):
    board = Board.open(read_config(place))
    ready.wait(120)
    answered, problems = [], []
    for number in range(4):
        try:
            start = 4 * worker + number
            answer = put(board, Caller(scope="team", team="alpha"), guesses(700, start=start))[1]
            answered.append((answer["position"], answer["submission"]))
        except RefusedError as refusal:  # noqa: PERF203
            problems.append(refusal.problem.name)
    results.put((answered, problems))


@pytest.mark.slow
def test_eight_processes_get_a_quota_of_three(tmp_path, ledger):
    board, who = with_teams(tmp_path, "alpha", "beta", limits=QUOTA, ledger=ledger)
    ready, results = context.Barrier(8), context.Queue()
    arguments = [(tmp_path / "board.toml", worker, ready, results) for worker in range(8)]
    processes = [context.Process(target=ask_in_vain, args=own) for own in arguments]
    [process.start() for process in processes]
    found = [results.get(timeout=200) for _ in processes]
    [process.join() for process in processes]
    answered = sorted(answer for own, _ in found for answer in own)
    problems = [problem for _, own in found for problem in own]
    assert [position for position, _ in answered] == [1, 2, 3]
    assert problems == ["EXHAUSTED_TEAM"] * 29
    assert put(board, who["beta"], guesses(700))[1]["position"] == 4  # nobody's else was burnt
    stored = {path.name for path in (tmp_path / "uploads").rglob("?" * 64)}
    assert {sha for _, sha in answered} <= stored
    assert verify(board.config.ledger_url).findings == []


def test_a_boards_life(tmp_path, ledger):
    board, who = with_teams(tmp_path, "alpha", "beta", ledger=ledger)
    put(board, who["alpha"], guesses(800))
    again = Board.open(board.config)
    assert put(again, who["alpha"], guesses(800))[1]["kind"] == "repeat"
    best = put(again, who["alpha"], guesses(900), final=True)[1]["submission"]
    assert again.finalists(who["alpha"], [best])["finalists"] == [best]
    assert again.rotate(who["alpha"])["token"].startswith("th_")
    again.record_events([Event("submit", 201, who["alpha"], 10, 1)])
    assert again.overview()["events"][0]["action"] == "submit"
    hosting.revoke(board.config, "beta")
    results = hosting.close(board.config, None)
    assert [own["submission"] for own in results["finalists"]] == [best]
    assert board.view().state == "closed"
    with pytest.raises(RefusedError, match="takes no more"):
        again.finalists(who["alpha"], [best])
    for own in (board, again):
        own.close_connections()


def test_two_boards_share_a_database_and_nothing_else(tmp_path, postgres):
    url = postgres.new_url()
    first, who = with_teams(tmp_path / "a", "alpha", ledger=url)
    text = (tmp_path / "a" / "board.toml").read_text().replace('"digits"', '"letters"')
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "board.toml").write_text(text)
    labels = tmp_path / "b" / "labels.npy"
    labels.write_bytes((tmp_path / "a" / "labels.npy").read_bytes())
    labels.chmod(0o600)
    config = read_config(tmp_path / "b" / "board.toml")
    hosting.initialise(config)
    token = hosting.add_team(config, "alpha")
    second = Board.open(config)
    put(first, who["alpha"], guesses(800))
    assert second.view().position == 0
    with pytest.raises(RefusedError):
        first.caller(token)
    assert second.caller(token).team == "alpha"


def test_another_boards_part_is_refused(tmp_path):
    first = opened(tmp_path / "a")
    second = opened(tmp_path / "b")
    place = second.config.folder / "public.labels"
    place.write_bytes((first.config.folder / "public.labels").read_bytes())
    with pytest.raises(HoldoutMismatchError):
        Board.open(second.config)
