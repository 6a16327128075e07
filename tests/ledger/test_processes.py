"""One budget for many processes, and none of it lost or given away by kill -9."""

import json
import math
import os
import random
import signal
import time
from multiprocessing import get_context

import pytest
from torch_holdout.ledger.holdouts import Account

from support.builders.holdouts import ask, make_holdout
from support.builders.mechanisms import MECHANISMS, guess_of

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(["torch_holdout.holdout.door", "support.builders.holdouts", "torch"])


def spend(url, worker, attempts, ready, results):
    holdout = make_holdout(url, budget=20)
    ready.wait()
    kinds = [
        ask(holdout, (7 * i + worker) % 50, f"{worker}-{i}", fresh=i % 2 == 0).kind
        for i in range(attempts)
    ]
    results.put(kinds.count("release"))


def same_query(url, ready, results):
    holdout = make_holdout(url)
    ready.wait()
    answer = ask(holdout, 31, "the same")
    results.put((answer.value, answer.kind, answer.source))


def run(target, workers, *arguments):
    ready, results = context.Barrier(workers), context.Queue()
    processes = [
        context.Process(target=target, args=(*of_worker(arguments, n), ready, results))
        for n in range(workers)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    return found


def of_worker(arguments, number):
    return [number if a == "worker" else a for a in arguments]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/holdout.db"


def test_eight_processes_release_exactly_the_budget(url):
    found = run(spend, 8, url, "worker", 12)
    assert sum(found) == 20
    status = make_holdout(url, budget=20).status()
    assert (status.releases, status.budget_left) == (20, 0)


def test_the_same_query_from_eight_processes_is_one_row_and_one_answer(url):
    found = run(same_query, 8, url)
    assert len({value for value, _, _ in found}) == 1
    assert sorted(kind for _, kind, _ in found) == ["release"] + ["repeat"] * 7
    assert {source for _, _, source in found} == {"release"}
    assert make_holdout(url).status().queries == 1


def answer_until_killed(url, log, worker, leaky, rule):
    """Write every answer down as soon as the door has returned it."""
    mechanism = MECHANISMS[rule]
    with open(log, "a", buffering=1) as file:
        if leaky:
            record = Account.record

            def too_early(self, entry, *more):
                left = record(self, entry, *more)
                print(json.dumps([entry.query, entry.value]), file=file)
                time.sleep(0.01)
                return left

            Account.record = too_early
        holdout = killable(url, rule)
        fresh = mechanism.allows_fresh()
        for number in range(100_000):
            query = f"{worker}-{number}"
            more = {"fresh": fresh and number % 3 == 0} | guess_of(mechanism)
            answer = ask(holdout, number % 50, query, **more)
            if not leaky:
                print(json.dumps([query, answer.value]), file=file)


def killable(url, rule):
    mechanism = MECHANISMS[rule]
    sets = mechanism.estimation_sets
    return make_holdout(url, budget=100_000 if sets is None else sets, mechanism=mechanism)


def kill_repeatedly(url, log, times, leaky, rule="thresholdout-last"):
    generator = random.Random(0)
    for number in range(times):
        process = context.Process(
            target=answer_until_killed, args=(url, str(log), number, leaky, rule)
        )
        process.start()
        answered = log.read_bytes().count(b"\n")
        while log.read_bytes().count(b"\n") < answered + 3:  # on the slowest disk, too
            assert process.is_alive()
            time.sleep(0.001)
        time.sleep(generator.uniform(0.0, 0.08))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL


def uncommitted(url, log, rule="thresholdout-last"):
    """Answers that were handed out but are not in the ledger."""
    from torch_holdout.holdout.checks import query_key

    holdout = killable(url, rule)
    statistic = holdout.statistics["val_acc"]
    missing = handed = 0
    with holdout._ledger.account(holdout._attached()) as account:
        for line in log.read_text().splitlines():
            try:
                query, value = json.loads(line)
            except ValueError:
                continue  # the line itself was cut off by the kill
            if math.isnan(value):
                continue  # exhausted: no answer
            handed += 1
            key = query if len(query) == 64 else query_key(statistic, query)
            stored = account.find("val_acc", key)
            missing += stored is None or stored.value != value
    return missing, handed


def test_fifty_kills_hand_out_nothing_uncharged(url, tmp_path):
    log = tmp_path / "answers.jsonl"
    log.touch()
    kill_repeatedly(url, log, times=50, leaky=False)
    missing, handed = uncommitted(url, log)
    assert handed > 100
    assert missing == 0
    status = killable(url, "thresholdout-last").status()
    assert handed <= status.queries <= handed + 50  # at most one answer lost per kill


@pytest.mark.parametrize("rule", MECHANISMS)
def test_no_mechanism_hands_out_anything_uncharged(url, tmp_path, rule):
    log = tmp_path / "answers.jsonl"
    log.touch()
    kill_repeatedly(url, log, times=3, leaky=False, rule=rule)
    missing, handed = uncommitted(url, log, rule)
    assert handed >= 3
    assert missing == 0


def test_twin_that_answers_before_the_commit_is_caught(url, tmp_path):
    log = tmp_path / "answers.jsonl"
    log.touch()
    kill_repeatedly(url, log, times=15, leaky=True)
    missing, handed = uncommitted(url, log)
    assert handed > 15
    assert missing > 0


def reopen_and_spend(url, results):
    results.put(ask(make_holdout(url), 30, "b", fresh=True).budget_left)


def test_a_new_process_continues_the_budget(url):
    assert ask(make_holdout(url), 30, "a").budget_left == 4
    results = context.Queue()
    process = context.Process(target=reopen_and_spend, args=(url, results))
    process.start()
    assert results.get(timeout=60) == 3
    process.join()
    assert make_holdout(url).status().budget_left == 3


def use_pickled(holdout, results):
    results.put(ask(holdout, 30, "c", fresh=True).budget_left)


def test_a_handle_sent_to_another_process_is_the_same_account(url):
    holdout = make_holdout(url)
    results = context.Queue()
    process = context.Process(target=use_pickled, args=(holdout, results))
    process.start()
    assert results.get(timeout=60) == 4
    process.join()
    assert holdout.status().budget_left == 4


def test_a_forked_process_shares_the_budget(url):
    holdout = make_holdout(url)
    ask(holdout, 30, "a")
    child = os.fork()
    if child == 0:
        try:
            ask(holdout, 40, "b", fresh=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert holdout.status().budget_left == 3
    assert ask(holdout, 40, "b").kind == "repeat"
