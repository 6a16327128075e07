"""Eight workers on one study and one sealed holdout, some killed: each trial counts once."""

import random
import signal
import time
from collections import Counter
from multiprocessing import get_context

import optuna
import pytest
from torch_holdout.ledger.verify import verify
from torch_holdout.tuning.optuna import claim, ranking
from torch_holdout.tuning.optuna.studies import run_label

from support.machines.soak import soak
from support.programs import sealed_study as program

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]
context = get_context("forkserver")
context.set_forkserver_preload(["support.programs.sealed_study", "torch", "optuna"])
STATE = optuna.trial.TrialState


class Workers:
    """Processes that work on the study; all of them are gone at the end."""

    def __init__(self, *arguments):
        self.arguments, self.processes = arguments, []

    def start(self, count):
        for _ in range(count):
            process = context.Process(target=program.work, args=self.arguments)
            process.start()
            self.processes.append(process)

    def alive(self):
        return [process for process in self.processes if process.is_alive()]

    def kill(self, generator):
        """Kill one of them, wherever it is."""
        if alive := self.alive():
            generator.choice(alive).kill()

    def join(self):
        for process in self.processes:
            process.join(timeout=200)
        return Counter(process.exitcode for process in self.processes)


def lines(log):
    return log.read_bytes().count(b"\n")


def unfinished(study):
    return study.get_trials(deepcopy=False, states=(STATE.RUNNING, STATE.WAITING))


def take_for_dead(study):
    """Let trials be tried again that were killed before their first heartbeat.

    Optuna never takes those for dead; nobody works on them when no worker is alive.
    """
    for trial in study.get_trials(deepcopy=False, states=(STATE.RUNNING,)):
        if not trial.params:
            study._storage.set_trial_state_values(trial._trial_id, STATE.FAIL)
            optuna.storages.RetryHeartbeatStaleTrialCallback()(study, trial)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_eight_workers_and_kills_spend_exactly_the_budget(postgres, tmp_path):
    budget, kills = soak(80, 14), soak(40, 5)
    storage, url, log = postgres.new_url(), postgres.new_url(), tmp_path / "shown"
    log.touch()
    holdout, study = program.account(url, budget), program.study_in(storage)
    holdout.status()
    generator, killed = random.Random(0), 0
    workers = Workers(storage, url, budget, str(log))
    workers.start(8)
    try:
        deadline = time.monotonic() + 1000  # a study that does not end is found by its trials
        while time.monotonic() < deadline:
            if killed < kills and workers.alive():
                enough = lines(log) + generator.randint(1, 5)
                while workers.alive() and lines(log) < enough:
                    time.sleep(0.002)
                time.sleep(generator.uniform(0.0, 0.03))
                workers.kill(generator)
                killed += 1
                workers.start(killed % 2)  # every second one is replaced
            elif not workers.alive():
                time.sleep(program.GRACE + 1)  # until Optuna takes the dead for dead
                take_for_dead(study)
                if not unfinished(study) and not holdout.budget_left:
                    break
                workers.start(2)
            time.sleep(0.02)
        codes = workers.join()
    finally:
        for process in workers.alive():
            process.kill()
            process.join()
    assert not unfinished(study), "the study has not ended"
    assert set(codes) <= {0, -signal.SIGKILL}
    assert codes[-signal.SIGKILL] >= 3
    assert list(problems(study, holdout, budget)) == []
    assert verify(url).findings == []
    program.leave(study)


def problems(study, holdout, budget):
    """What does not fit between the study, the ledger and the values by hand."""
    runs = holdout._reading().summary.runs
    by_label = {run_label("killed", trial): trial for trial in study.trials}
    shares = [run for run in runs if run.share is not None]
    if sorted(run.share for run in shares) != list(range(1, budget + 1)):
        yield f"{len(shares)} shares of {budget}"
    counted = Counter(by_label[run.label].number for run in shares)
    if set(counted.values()) != {1}:
        yield f"trials that count more than once: {counted}"
    told = {trial.number for trial in study.trials if trial.intermediate_values}
    finished = {t.number for t in study.trials if t.state is STATE.COMPLETE}
    if not finished <= set(counted) & told:
        yield "a complete trial that does not count"
    if any(run.state == "open" for run in shares):
        yield "an open run, although every killed trial was tried again"
    holdout.close()
    best = {
        str(number): max(
            program.count(study.trials[number].params["x"], step)
            for run in shares
            if by_label[run.label].number == number
            for step in range(run.evaluations)
        )
        / program.SIZE
        for number in counted
    }
    found = {each.trial: each.value for each in ranking(study, holdout)}
    if found != pytest.approx(best):
        yield "another ranking"
    if claim(study, holdout).value != pytest.approx(max(best.values())):
        yield "another winner"
