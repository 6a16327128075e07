"""One budget on a server for many processes; none of it lost or given away when the server dies."""

import json
import time
from multiprocessing import get_context

import pytest
from torch_holdout.errors import LedgerError

from support.builders.holdouts import ask, make_holdout

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(
    ["torch_holdout.holdout.door", "support.builders.holdouts", "torch", "psycopg"]
)


@pytest.fixture
def url(postgres):
    return postgres.new_url()


def spend_all(url, budget, worker, ready, results):
    ready.wait()  # also the tables are made by all of them at once
    holdout = make_holdout(url, budget=budget)
    released = number = 0
    while True:
        answer = ask(holdout, (7 * number + worker) % 50, f"{worker}-{number}", fresh=True)
        if answer.kind == "exhausted":
            break
        released += answer.kind == "release"
        number += 1
    results.put(released)


@pytest.mark.slow
def test_thirty_two_processes_release_exactly_the_budget(url):
    ready, results = context.Barrier(32), context.Queue()
    processes = [
        context.Process(target=spend_all, args=(url, 500, n, ready, results)) for n in range(32)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=200) for _ in processes]
    for process in processes:
        process.join()
    assert sum(found) == 500
    status = make_holdout(url, budget=500).status()
    assert (status.releases, status.queries, status.budget_left) == (500, 500, 0)


def answer_until_stopped(url, log, worker, stopped):
    """Write every answer down as soon as the door has returned it; errors as well."""
    holdout = make_holdout(url, budget=100_000)
    with open(log, "a", buffering=1) as file:
        number = 0
        while not stopped.is_set():
            number += 1
            query = f"{worker}-{number}"
            try:
                answer = ask(holdout, number % 50, query, fresh=number % 3 == 0)
            except LedgerError as error:
                print(json.dumps([query, None, str(error)]), file=file)
            else:
                print(json.dumps([query, answer.value, ""]), file=file)


def survive(postgres, url, log, workers=4):
    """Let workers ask while the server is killed and started again; return what they noted."""
    log.touch()
    stopped = context.Event()
    processes = [
        context.Process(target=answer_until_stopped, args=(url, str(log), n, stopped))
        for n in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        for _ in range(2):
            lines = log.read_text().count("\n")
            deadline = time.monotonic() + 110  # a busy machine is no failure
            while log.read_text().count("\n") < lines + 40:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            postgres.kill()
            time.sleep(0.3)
            postgres.start()
        time.sleep(1.0)
        stopped.set()
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * workers
    finally:
        for process in processes:
            process.kill()
    return [json.loads(line) for line in log.read_text().splitlines()]


def uncommitted(url, noted):
    """Count answers that were handed out but are not in the ledger."""
    from torch_holdout.holdout.checks import query_key

    holdout = make_holdout(url, budget=100_000)
    statistic = holdout.statistics["val_acc"]
    missing = 0
    with holdout._ledger.account(holdout._attached()) as account:
        for query, value, _ in noted:
            if value is not None:
                stored = account.find("val_acc", query_key(statistic, query))
                missing += stored is None or stored.value != value
    return missing


@pytest.mark.slow
def test_a_server_killed_twice_hands_out_nothing_uncharged(postgres, url, tmp_path):
    noted = survive(postgres, url, tmp_path / "answers.jsonl")
    answered = sum(value is not None for _, value, _ in noted)
    assert answered > 80
    assert uncommitted(url, noted) == 0
    holdout = make_holdout(url, budget=100_000)
    queries = holdout._ledger.summary(holdout._attached(), check=True).queries
    failed = [error for _, value, error in noted if value is None]
    assert answered <= queries <= answered + len(failed)
    for error in failed:
        assert "nothing was released" in error.lower()
        assert "\n" not in error
