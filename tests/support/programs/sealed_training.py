"""A training that can be killed: it evaluates in a sealed run, and goes on from a checkpoint.

Everything that it is told it writes down at once. ``dies`` kills the process itself at a moment
of one epoch's evaluation: inside the transaction, just before its commit, or just after it.
``noise`` makes the run private: a seed, or ``"system"`` for the noise that users have.
"""

import json
import os
import random
import re
import signal
from pathlib import Path

import sqlalchemy as sa
import torch
import torch_holdout as th
from torch_holdout.ledger.sealed_runs import SealedRuns

SIZE, PATIENCE, LONGEST, LAG = 16, 5, 60, 3
MOMENTS = ("inside", "before commit", "after commit")
EPSILON = 20.0  # a comparison's noise is about one example


def values_of(seed):
    """The course of a training: falling, with ties and bumps, rising at the end."""
    generator = random.Random(seed)
    falls = generator.randint(8, 16)
    lows = [
        max(2, 14 - epoch * 12 // falls) + generator.choice((0, 0, 1)) for epoch in range(falls)
    ]
    return lows + [generator.randint(4, 9) for _ in range(LONGEST - falls)]


def expected(values):
    """(best evaluation, stop) of early stopping on these values, written once more."""
    best = 0
    for epoch, value in enumerate(values):
        if value < values[best]:
            best = epoch
        if epoch - best >= PATIENCE:
            return best + 1, epoch + 1
    raise AssertionError("this course does not stop")


def account(url, noise=None):
    return th.ReusableHoldout(
        url, name="val", size=SIZE, statistics={"err": th.BoundedMean(0.0, 1.0)},
        mechanism=th.Sealed(evaluations=40, epsilon=None if noise is None else EPSILON), budget=1,
        seed=noise if isinstance(noise, int) else None,
    )  # fmt: skip


def train(url, folder, seed, with_steps, dies=None, noise=None):
    """Train to the end of the run, from the last checkpoint."""
    folder, values = Path(folder), values_of(seed)
    holdout, armed = account(url, noise), []
    if dies is not None:
        arm(dies[0], armed)
    run = opened(holdout, folder)
    with open(folder / "shown.jsonl", "a", buffering=1) as shown:
        for epoch in range(checkpoint(folder), LONGEST):
            sums = holdout.accumulator("err")
            sums.update(torch.arange(SIZE) < values[epoch])
            if dies is not None and epoch == dies[1]:
                armed.append(True)
            step = f"epoch {epoch}" if with_steps else None
            given = run.evaluate({"err": sums}, query=f"weights {epoch}", step=step)
            print(json.dumps([epoch, given.number, given.passes, given.stop]), file=shown)
            put(folder / "run.txt", run.id)
            if given.stop:
                break
            if epoch % LAG == LAG - 1:
                put(folder / "checkpoint.txt", str(epoch + 1 - random.Random(epoch).randrange(LAG)))
    outcome = run.outcome
    put(folder / "outcome.json", json.dumps([outcome.best_evaluation, outcome.stopped_at]))


def opened(holdout, folder):
    """The run of the file; without one, that which the door says is open, or a new one."""
    stop = th.Patience("err", PATIENCE)
    if (folder / "run.txt").exists():
        return holdout.run(stop=stop, resume=(folder / "run.txt").read_text())
    try:
        return holdout.run(stop=stop)
    except th.BudgetExhaustedError as error:  # killed before it could note the run's id
        return holdout.run(resume=re.search(r"'([0-9a-f]{16})'", str(error))[1])


def checkpoint(folder):
    kept = folder / "checkpoint.txt"
    return int(kept.read_text()) if kept.exists() else 0


def put(path, text):
    """Write a file at once or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


def arm(moment, armed):
    """Kill this process at the moment, once ``armed`` has something in it."""

    def die():
        if armed:
            os.kill(os.getpid(), signal.SIGKILL)

    keep, commit = SealedRuns.keep_sums, sa.Connection.commit

    def keep_and_die(self, *arguments):
        keep(self, *arguments)
        die()

    def commit_or_die(self):
        if moment == "before commit":
            die()
        commit(self)
        if moment == "after commit":
            die()

    if moment == "inside":
        SealedRuns.keep_sums = keep_and_die
    else:
        sa.Connection.commit = commit_or_die
