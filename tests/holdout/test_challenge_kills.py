"""kill -9 in a challenge: what was shown is committed, and no keep comes from a lost file."""

import json
import random
import signal
import time
from multiprocessing import get_context

import pytest
import torch_holdout as th
from torch_holdout.ledger.verify import verify

from support.builders.challenges import make_challenged, wrong_on
from support.builders.sealed_logs import events_of
from support.machines.soak import soak
from support.programs import challenger as program
from support.programs.sealed_training import MOMENTS

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(["support.programs.challenger", "torch"])


def address(folder):
    return f"sqlite:///{folder / 'holdout.db'}"


def start(folder, dies=None):
    process = context.Process(target=program.run, args=(address(folder), str(folder), dies))
    process.start()
    return process


def finish(folder):
    process = start(folder)
    process.join(120)
    assert process.exitcode == 0


def shown(folder):
    """What was shown; a line that a kill has cut off was not."""
    path = folder / "shown.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("]")]


def files(folder):
    return sorted(path.name for path in folder.glob("holdout.db.challenges/*/*"))


@pytest.fixture(scope="module")
def undisturbed():
    """What a loop says that nobody kills."""
    holdout = make_challenged()
    said = [program.challenge(holdout, number) for number in range(len(program.WRONG))]
    assert [each.kept for each in said] == [None, True, False, True, False, True, False, True]
    return [program.told(each) for each in said]


def problems(folder, undisturbed):
    """What does not fit between what was shown, the ledger, the files and an undisturbed loop."""
    for number, *said in shown(folder):
        if said != undisturbed[number]:
            yield f"challenge {number} was told otherwise"
    events = events_of(make_challenged(address(folder)))
    for kind in ("begin", "evaluate", "end", "challenge"):
        if sum(event["kind"] == kind for event in events) != len(program.WRONG):
            yield f"not one {kind} for each challenger"
    if files(folder) != [f"{undisturbed[-1][2]}.levels"]:
        yield "files that are not the incumbent's"
    yield from map(str, verify(address(folder)).findings)


@pytest.mark.parametrize("moment", MOMENTS)
def test_kills_at_every_moment(tmp_path, moment, undisturbed):
    """The first, one kept, one not kept, the last: before its file, before and after commit.

    Before the commit its file is there and the ledger does not name it; after it both files are.
    """
    for number in (0, 3, 4, 7):
        process = start(tmp_path, (moment, number))
        process.join(120)
        assert process.exitcode == -signal.SIGKILL
        assert max((done for done, *_ in shown(tmp_path)), default=-1) == number - 1
        said = undisturbed[max(0, number - 1) : number + 1]
        incumbents = {f"{incumbent}.levels" for _, _, incumbent, _ in said}
        if moment == "inside":
            assert len(files(tmp_path)) == min(number, 1)
        else:
            assert incumbents <= set(files(tmp_path))
            assert len(files(tmp_path)) == min(number, 1) + 1
    finish(tmp_path)
    assert list(problems(tmp_path, undisturbed)) == []


@pytest.mark.soak
def test_kills_anywhere(tmp_path, undisturbed):
    generator, kills, loops = random.Random(3), 0, 0
    while kills < soak(60, 4):
        folder = tmp_path / f"{loops}"
        folder.mkdir()
        alive = True
        while alive and kills < soak(60, 4):
            enough = max((done for done, *_ in shown(folder)), default=-1) + 1
            enough = min(enough, len(program.WRONG) - 1)
            process = start(folder)
            while process.is_alive() and max((n for n, *_ in shown(folder)), default=-1) < enough:
                time.sleep(0.001)
            time.sleep(generator.uniform(0.0, 0.03))
            process.kill()
            process.join()
            alive = process.exitcode == -signal.SIGKILL
            kills += alive
        finish(folder)
        assert list(problems(folder, undisturbed)) == []
        loops += 1
    print(f"{kills} kills in {loops} loops")


def test_twin_that_writes_the_file_after_the_commit_is_caught(tmp_path):
    """Killed after the commit it has no file: the next challenger is no keep, whatever it is."""
    process = context.Process(target=commits_first, args=(address(tmp_path), str(tmp_path)))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert files(tmp_path) == []
    holdout = make_challenged(address(tmp_path))
    with pytest.warns(th.HoldoutWarning, match="the new incumbent without a test"):
        next_one = holdout.challenge("acc", wrong_on(0), query="next")
    assert (next_one.kept, next_one.lost) == (None, True)


def commits_first(url, folder):
    from torch_holdout.holdout.incumbents import Incumbents

    Incumbents.keep = lambda *arguments: None  # it would be written after the commit
    program.run(url, folder, ("after commit", 0))


def test_several_processes_at_once_decide_each_challenge_once(tmp_path, undisturbed):
    """Whoever is first decides; the others are told the same, and no file is taken away."""
    processes = [start(tmp_path) for _ in range(3)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(shown(tmp_path)) == 3 * len(program.WRONG)
    assert list(problems(tmp_path, undisturbed)) == []
