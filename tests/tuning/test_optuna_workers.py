"""Two Optuna workers, one study in a database, one holdout: the budget holds."""

from multiprocessing import get_context

import pytest
from torch_holdout.tuning.optuna import claim

from support.builders.holdouts import ask
from support.builders.sweeps import optuna_worker, quiet_study, shared_account

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]
context = get_context("forkserver")


def run_workers(storage, url, count, trials):
    """Run a study in several processes; return how each loop ended and the processes' codes."""
    ready, results = context.Barrier(count), context.Queue()
    arguments = (storage, url, trials, ready, results)
    processes = [context.Process(target=optuna_worker, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        ended = [results.get(timeout=250) for _ in processes]
        for process in processes:
            process.join(timeout=30)
        return ended, [process.exitcode for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.join()


@pytest.mark.parametrize("spent_before", [0, 5])
def test_two_workers_release_exactly_the_budget(tmp_path, spent_before):
    url, storage = f"sqlite:///{tmp_path}/holdout.db", f"sqlite:///{tmp_path}/study.db"
    account = shared_account(url, budget=5)
    study = quiet_study(storage)
    if spent_before:
        for query in range(spent_before):
            ask(account, 10 * query, str(query))
    ended, codes = run_workers(storage, url, count=2, trials=10)
    assert (ended, codes) == (["ended", "ended"], [0, 0])
    assert account.status().releases == 5
    told = [v for trial in study.trials for v in trial.intermediate_values.values()]
    published = {interval.value for interval in account.intervals()}
    assert set(told) <= published
    assert len(told) == 5 - spent_before
    states = {trial.state.name for trial in study.trials}
    assert states <= {"COMPLETE", "PRUNED"}
    assert len(study.trials) <= 5  # they stopped: 20 were allowed
    if not spent_before:
        assert claim(study, account).value == max(published)
