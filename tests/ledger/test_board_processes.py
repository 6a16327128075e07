"""A quota of three is three, whoever asks at once: on a file and on a server."""

from multiprocessing import get_context

import pytest
from torch_holdout.errors import QuotaExhaustedError
from torch_holdout.ledger import verify

from support.builders.board_holdouts import make_board, right, sha, with_teams

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(
    ["torch_holdout.holdout.board", "support.builders.board_holdouts", "torch", "psycopg"]
)
WORKERS = 8


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/board.db"
    return request.getfixturevalue("postgres").new_url()


def submit_until_refused(url, mode, worker, ready, results):
    """Submit better and better contents for one analyst; count what was told."""
    board = make_board(url, mode)
    ready.wait()
    told, positions = 0, []
    for number in range(20):
        count = 560 + 20 * number + worker  # far enough from each other to be told
        try:
            answer = board.submit("alpha", right(count), query=sha((worker, number)))
        except QuotaExhaustedError:
            break
        positions.append(answer.position)
        told += answer.kind == "release"
    results.put((told, positions))


def run(target, *arguments):
    ready, results = context.Barrier(WORKERS), context.Queue()
    processes = [
        context.Process(target=target, args=(*arguments, worker, ready, results))
        for worker in range(WORKERS)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join(60)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ladder", "record"])
def test_eight_processes_with_a_quota_of_three_are_told_three(url, mode):
    with_teams(make_board(url, mode), "alpha", submissions=1000, releases=3)
    found = run(submit_until_refused, url, mode)
    assert sum(told for told, _ in found) == 3
    positions = sorted(position for _, own in found for position in own)
    assert positions == list(range(1, len(positions) + 1))
    analyst = make_board(url, mode).analysts()[0]
    assert (analyst.releases_left, analyst.refused) == (0, WORKERS)
    assert verify(url).findings == []


def submit_the_same(url, worker, ready, results):
    """All processes submit the same contents: each is answered once and repeated to the others."""
    board = make_board(url)
    ready.wait()
    results.put(
        [
            (answer.position, answer.source, answer.results["accuracy"].value, answer.chain)
            for answer in (
                board.submit("alpha", right(600 + 50 * k), query=sha(k)) for k in range(6)
            )
        ]
    )


@pytest.mark.slow
def test_the_same_contents_at_once_are_charged_once_and_answered_alike(url):
    with_teams(make_board(url), "alpha", submissions=6, releases=6)
    found = run(submit_the_same, url)
    answers = {tuple(each) for own in found for each in own}
    assert len(answers) == 6
    assert make_board(url).standing().position == 6
    assert verify(url).findings == []


def add_many(url, worker, ready, results):
    """Reserve releases until nothing is left."""
    from torch_holdout.errors import InvalidArgumentError

    board = make_board(url)
    ready.wait()
    added = 0
    for number in range(6):
        try:
            board.add_analyst(f"{worker}-{number}", submissions=1, releases=1)
        except InvalidArgumentError:
            break
        added += 1
    results.put(added)


@pytest.mark.slow
def test_no_more_is_reserved_than_the_budget(url):
    make_board(url).attach()
    assert sum(run(add_many, url)) == 16
    assert verify(url).findings == []
