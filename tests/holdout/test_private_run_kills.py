"""kill -9 in a private run: no threshold and no noise is drawn again for what was committed.

Whatever the run keeps after a pass is read between the kills, with the noise that users have: it is
the same each time that pass is the last one. With the noise of a test seed the run ends where a run
that was never killed ends.
"""

import json
import random
import signal
import time
from multiprocessing import get_context

import pytest
import sqlalchemy as sa
from torch_holdout.holdout.judging import Judge
from torch_holdout.ledger import schema
from torch_holdout.ledger.verify import verify

from support.builders.sealed_logs import events_of
from support.machines.soak import soak
from support.programs import sealed_training as program

pytestmark = pytest.mark.integration
context = get_context("forkserver")
context.set_forkserver_preload(["support.programs.sealed_training", "torch"])


class Killed:
    """A private training that is killed and started again, and what its run kept in between."""

    def __init__(self, folder, seed, noise, train=program.train):
        folder.mkdir()
        (folder / "shown.jsonl").touch()
        self.folder, self.seed, self.noise, self.train = folder, seed, noise, train
        self.address = f"sqlite:///{folder / 'holdout.db'}"
        self.kept = {}  # by pass
        self.changed = []

    @property
    def shown(self):
        """What was shown; a line that a kill has cut off was not."""
        lines = (self.folder / "shown.jsonl").read_text().splitlines()
        return [tuple(json.loads(line)) for line in lines if line.endswith("]")]

    def start(self, dies=None):
        arguments = (self.address, str(self.folder), self.seed, True, dies, self.noise)
        process = context.Process(target=self.train, args=arguments)
        process.start()
        return process

    def finish(self):
        process = self.start()
        process.join(120)
        assert process.exitcode == 0
        return json.loads((self.folder / "outcome.json").read_text())

    def kill_at(self, moment, epoch):
        """Let it kill itself at a moment of an epoch's evaluation; return whether it came there."""
        process = self.start((moment, epoch))
        process.join(120)
        self.look()
        return process.exitcode == -signal.SIGKILL

    def kill_somewhere(self, generator):
        """Let it show a few decisions, and kill it; return whether it was still running."""
        process = self.start()
        enough = len(self.shown) + generator.randint(1, 4)
        while process.is_alive() and len(self.shown) < enough:
            time.sleep(0.001)
        time.sleep(generator.uniform(0.0, 0.02))
        process.kill()
        process.join()
        self.look()
        return process.exitcode == -signal.SIGKILL

    def look(self):
        """Note what the open run keeps after its last pass."""
        holdout = program.account(self.address, self.noise)
        runs, secrets = schema.sealed_runs, schema.secret_runs
        with holdout._ledger._transaction(reads_only=True) as connection:
            passes = connection.execute(sa.select(runs.c.passes)).scalar()
            state = connection.execute(sa.select(secrets.c.state)).scalar()
        if passes and state is not None:
            kept = json.loads(state)["state"]
            if self.kept.setdefault(passes, kept) != kept:
                self.changed.append(passes)

    @property
    def problems(self):
        """What does not fit between what was shown, the ledger and one draw of everything."""
        if self.changed:
            yield f"other noise after passes {self.changed}"
        if len({kept["threshold"] for kept in self.kept.values() if "threshold" in kept}) > 1:
            yield "another threshold"
        events = events_of(program.account(self.address, self.noise))
        passes = [event["detail"]["pass"] for event in events if event["kind"] == "evaluate"]
        if passes != list(range(1, len(passes) + 1)):
            yield f"passes {passes}"
        ends = [event for event in events if event["kind"] not in ("begin", "evaluate")]
        best, stop = json.loads((self.folder / "outcome.json").read_text())
        told = [(end["kind"], end["evaluation"], end["detail"]["pass"]) for end in ends]
        if told != [("stop", best, stop)]:
            yield f"ends {told} instead of one stop with {best}, {stop}"
        for epoch, number, number_of_pass, stopped in self.shown:
            if (number, number_of_pass, stopped) != (epoch + 1, epoch + 1, epoch + 1 == stop):
                yield f"epoch {epoch} was shown {number}, {number_of_pass}, {stopped}"
        yield from map(str, verify(self.address).findings)


@pytest.mark.soak
def test_kills_anywhere(tmp_path):
    generator, kills, runs = random.Random(16), 0, 0
    while kills < soak(200, 6):
        training, wanted = Killed(tmp_path / f"{runs}", runs, "system"), generator.randint(3, 10)
        while wanted and training.kill_somewhere(generator):
            kills, wanted = kills + 1, wanted - 1
        training.finish()
        assert list(training.problems) == []
        runs += 1
    print(f"{kills} kills in {runs} private runs")


@pytest.mark.parametrize("moment", program.MOMENTS)
def test_it_ends_where_it_would_have_ended(tmp_path, moment):
    """Killed at the first pass, twice at the second comparison, and at the pass that stops it."""
    whole = Killed(tmp_path / "whole", 0, 7).finish()
    second, last = program.PATIENCE + 1, whole[1] - 1
    assert second < last
    training = Killed(tmp_path / "killed", 0, 7)
    for epoch in (0, second, second, last):
        assert training.kill_at(moment, epoch)
        assert max((e for e, *_ in training.shown), default=-1) == epoch - 1
    assert training.finish() == whole
    assert list(training.problems) == []
    assert any("threshold" in kept for kept in training.kept.values())


def forgetting(*arguments):
    """A twin: each process draws a threshold of its own."""
    verdict, first = Judge.verdict, [True]

    def redrawn(self, kept, totals, **more):
        if first and kept and "threshold" in kept:
            first.clear()
            kept = {name: each for name, each in kept.items() if name != "threshold"}
        return verdict(self, kept, totals, **more)

    Judge.verdict = redrawn
    program.train(*arguments)


def test_twin_that_draws_a_threshold_in_each_process_is_caught(tmp_path):
    training = Killed(tmp_path / "twin", 0, "system", train=forgetting)
    for epoch in range(program.PATIENCE + 1, program.PATIENCE + 4):
        training.kill_at("after commit", epoch)
    assert len({kept["threshold"] for kept in training.kept.values()}) > 1
