"""kill -9 in a sealed run: what was shown is committed, and the run ends where it would have."""

import json
import random
import signal
import time
from itertools import product
from multiprocessing import get_context

import pytest
from torch_holdout.ledger.sealed_runs import SealedRuns
from torch_holdout.ledger.verify import verify

from support.builders.sealed_logs import events_of
from support.machines.soak import soak
from support.programs import sealed_training as program

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(["support.programs.sealed_training", "torch"])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shown.jsonl").touch()
    return tmp_path


def address(folder):
    return f"sqlite:///{folder / 'holdout.db'}"


def start(folder, seed, with_steps, dies=None):
    process = context.Process(
        target=program.train, args=(address(folder), str(folder), seed, with_steps, dies)
    )
    process.start()
    return process


def finish(folder, seed, with_steps):
    process = start(folder, seed, with_steps)
    process.join(120)
    assert process.exitcode == 0


def lines(folder):
    return (folder / "shown.jsonl").read_bytes().count(b"\n")


def kill_somewhere(folder, seed, with_steps, generator):
    """Let it show a few decisions, and kill it; return whether it was still running."""
    process = start(folder, seed, with_steps)
    enough = lines(folder) + generator.randint(1, 5)
    while process.is_alive() and lines(folder) < enough:
        time.sleep(0.001)
    time.sleep(generator.uniform(0.0, 0.02))
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def shown(folder):
    """What was shown; a line that a kill has cut off was not."""
    lines = (folder / "shown.jsonl").read_text().splitlines()
    return [tuple(json.loads(line)) for line in lines if line.endswith("]")]


def problems(folder, seed, with_steps):
    """What does not fit between what was shown, the ledger and a training never killed."""
    best, stop = program.expected(program.values_of(seed))
    holdout = program.account(address(folder))
    events = events_of(holdout)
    made = [event for event in events if event["kind"] == "evaluate"]
    passes = [(event["evaluation"], event["detail"]["pass"]) for event in made]
    if passes != [(number, number) for number in range(1, stop + 1)]:
        yield f"passes {passes} instead of one for each of {stop} epochs"
    if len({event["query"] for event in made}) != stop:
        yield "weights that were evaluated twice"
    if with_steps and [event["step"] for event in made] != [f"epoch {e}" for e in range(stop)]:
        yield "steps that are not the epochs"
    if [event["kind"] for event in events if event not in made] != ["begin", "stop"]:
        yield "a run that was not begun once and stopped once"
    for epoch, number, number_of_pass, stopped in shown(folder):
        if (number, number_of_pass, stopped) != (epoch + 1, epoch + 1, epoch + 1 == stop):
            yield f"epoch {epoch} was shown {number}, {number_of_pass}, {stopped}"
        if (number, number_of_pass) not in passes:
            yield f"epoch {epoch} was shown and is not in the ledger"
    if json.loads((folder / "outcome.json").read_text()) != [best, stop]:
        yield "another outcome"
    yield from map(str, verify(address(folder)).findings)


@pytest.mark.soak
@pytest.mark.parametrize("with_steps", [True, False], ids=["steps", "plain"])
def test_kills_anywhere(tmp_path, with_steps):
    generator, kills, seed = random.Random(with_steps), 0, 0
    while kills < soak(100, 6):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        (folder / "shown.jsonl").touch()
        while kills < soak(100, 6) and kill_somewhere(folder, seed, with_steps, generator):
            kills += 1
        finish(folder, seed, with_steps)
        assert list(problems(folder, seed, with_steps)) == []
        seed += 1
    print(f"{kills} kills in {seed} runs")


@pytest.mark.parametrize("with_steps", [True, False], ids=["steps", "plain"])
@pytest.mark.parametrize("moment", program.MOMENTS)
def test_kills_at_every_moment_of_an_evaluation(folder, moment, with_steps):
    """The first one, which begins the run; one in the middle; the one that stops it."""
    _, stop = program.expected(program.values_of(0))
    for epoch in (0, stop // 2, stop - 1):
        process = start(folder, 0, with_steps, (moment, epoch))
        process.join(120)
        assert process.exitcode == -signal.SIGKILL
        assert max((e for e, *_ in shown(folder)), default=-1) == epoch - 1
    finish(folder, 0, with_steps)
    assert list(problems(folder, 0, with_steps)) == []


def test_a_stop_that_was_never_shown_is_learned_by_the_next_process(folder):
    best, stop = program.expected(program.values_of(0))
    start(folder, 0, True, ("after commit", stop - 1)).join(120)
    assert not any(stopped for *_, stopped in shown(folder))
    run = program.account(address(folder)).run(resume=(folder / "run.txt").read_text())
    assert (run.outcome.best_evaluation, run.outcome.stopped_at) == (best, stop)


def shown_too_early(url, folder, seed):
    """A twin: it shows the decision before the commit."""
    update = SealedRuns.update

    def early(self, run, **columns):
        update(self, run, **columns)
        with open(f"{folder}/shown.jsonl", "a", buffering=1) as file:
            number = columns.get("passes", 1)
            print(json.dumps([number - 1, number, number, False]), file=file)
        if number == 6:
            signal.pause()

    SealedRuns.update = early
    program.train(url, folder, seed, True)


def test_twin_that_shows_before_the_commit_is_caught(folder):
    process = context.Process(target=shown_too_early, args=(address(folder), str(folder), 0))
    process.start()
    while process.is_alive() and not any(number == 6 for _, number, *_ in shown(folder)):
        time.sleep(0.001)
    process.kill()
    process.join()
    known = {event["evaluation"] for event in events_of(program.account(address(folder)))}
    assert any(number not in known for _, number, *_ in shown(folder))


def test_the_courses_are_different_and_have_ties():
    outcomes = {program.expected(program.values_of(seed)) for seed in range(20)}
    assert len(outcomes) > 5
    repeated = [a == b for s in range(5) for a, b in product(program.values_of(s)[:8], repeat=2)]
    assert sum(repeated) > 5 * 8
