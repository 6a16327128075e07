"""While a sweep is open nothing of its sealed values leaves: by the study, by files, by work."""

import io
import logging
import pickle
import sqlite3
from contextlib import closing

import optuna
import pytest
import sqlalchemy as sa
import torch
from torch_holdout.errors import HoldoutError, UnguardedLogError
from torch_holdout.tuning.optuna import sharing

from support.builders.guarded import NAMESPACES, guard_class, loader, per_example, trainer
from support.builders.sealed_sweeps import (
    display_net,
    display_objective,
    fit_with_display,
    quiet,
    sweep_account,
)
from support.oracles.leaks import raw_hits

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.integration]
STATE = optuna.trial.TrialState


def numbers(raw):
    """All raw values of a sweep, but for plain zeros and ones, which are everywhere."""
    found = [value for curve in raw.values() for each in curve for value in each.values()]
    return [value for value in found if value not in (0.0, 1.0)]


def all_of(study):
    """Everything a study knows of its trials."""
    return [
        [t.values, t.params, t.user_attrs, t.system_attrs, dict(t.intermediate_values)]
        for t in study.trials
    ]


def test_nothing_sealed_is_in_the_study_its_files_or_the_logs(tmp_path, capfd):
    folder, raw = tmp_path / "study", {}
    folder.mkdir()
    account = sweep_account(f"sqlite:///{tmp_path}/holdout.db", trials=4)
    study = quiet(
        storage=f"sqlite:///{folder}/study.db",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=1),
    )
    heard, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(heard), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    optuna.logging.set_verbosity(optuna.logging.DEBUG)
    optuna.logging.enable_propagation()
    try:
        study.optimize(display_objective(account, tmp_path / "runs", raw), n_trials=4)
    finally:
        optuna.logging.disable_propagation()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        root.removeHandler(handler)
        root.setLevel(level)
    secret = numbers(raw)
    assert len(secret) > 10
    assert raw_hits(all_of(study), secret) == []
    assert raw_hits(heard.getvalue(), secret) == []
    assert raw_hits(list(capfd.readouterr()), secret) == []
    assert raw_hits(pickle.dumps(study.trials), secret) == []
    for file in folder.iterdir():
        assert raw_hits(file.read_bytes(), secret) == [], file
    names = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*")]
    assert raw_hits(names, secret) == []
    # The same search finds them where they are.
    with closing(sqlite3.connect(tmp_path / "holdout.db")) as connection:
        sums = connection.execute("SELECT statistic, total FROM th_secret_sums").fetchall()
    shares = [total / 65536 / 97 * (5 if name == "val_loss" else 1) for name, total in sums]
    assert raw_hits([round(share, 9) for share in shares], secret)


def worked(path, mirrored):
    """The statements of each trial of a sweep, whose values are mirrored or not."""
    account = sweep_account(f"sqlite:///{path}", trials=5)
    account.status()
    statements, found = [], []

    def note(connection, cursor, statement, parameters, context, many):
        statements.append(statement)

    sa.event.listen(account._ledger._connected, "before_cursor_execute", note)
    study = quiet(pruner=optuna.pruners.MedianPruner(n_startup_trials=1))

    def objective(trial):
        statements.clear()
        x = trial.suggest_float("x", 0.0, 1.0)
        with sharing(trial, account, "val_acc", display="display_loss") as shared:
            for step in range(3):
                count = (31 * trial.number + 17 * step) % 97
                sums = account.accumulator("val_acc")
                right = torch.arange(97) < (97 - count if mirrored else count)
                sums.update(right.double())
                shared.evaluate({"val_acc": sums}, query=f"{trial.number} {step}", step=step)
                shared.report(abs(x - 0.4) + 0.1 / (step + 1), step)
            return shared.value

    def after(study, trial):
        found.append((list(statements), trial.state, trial.params, trial.intermediate_values))

    study.optimize(objective, n_trials=5, callbacks=[after])
    return found


def test_the_work_and_the_proposals_do_not_depend_on_sealed_values(tmp_path):
    """What is better in one sweep is worse in the other; transactions, states and TPE's proposals
    are the same, one by one.
    """
    assert worked(tmp_path / "one.db", False) == worked(tmp_path / "other.db", True)


# Careless objectives


def careless_net(validation_step):
    net = display_net(0.1)
    type(net).validation_step = validation_step
    return net


def run_one(account, folder, body):
    """One trial whose objective is ``body(shared, guard, trainer)``; returns its study."""
    study = quiet()

    def objective(trial):
        with sharing(trial, account, "val_acc", display="display_loss") as shared:
            own = guard_class(NAMESPACES[0])(account, prog_bar=False, public_dataloaders=(1,))
            run = trainer([own, shared.pruning(own)], max_epochs=2, default_root_dir=folder)
            return body(shared, own, run)

    study.optimize(objective, n_trials=1, catch=(Exception,))
    return study


def logs_the_sealed_name(self, batch, batch_idx, dataloader_idx=0):
    values = per_example(self, batch)
    self.log("val_acc", values["val_acc"].double().mean(), add_dataloader_idx=False)
    return values


def logs_for_the_holdout(self, batch, batch_idx, dataloader_idx=0):
    values = per_example(self, batch)
    self.log("display_loss", values["val_loss"].mean(), add_dataloader_idx=False)
    return values


@pytest.mark.parametrize("step", [logs_the_sealed_name, logs_for_the_holdout])
def test_logging_a_sealed_value_is_refused(step, tmp_path):
    account, caught = sweep_account(), []

    def body(shared, guard, run):
        try:
            fit_with_display(run, careless_net(step))
        except HoldoutError as error:
            caught.append(error)
            raise
        return shared.value

    study = run_one(account, tmp_path, body)
    assert isinstance(caught[0], UnguardedLogError)
    assert study.trials[0].state is STATE.FAIL
    assert study.trials[0].intermediate_values == {}
    assert account.budget_left == account.budget  # the failed trial gave its run up


CARELESS = {
    "callback_metrics": lambda shared, guard, run: float(run.callback_metrics["val_acc"]),
    "logged_metrics": lambda shared, guard, run: float(run.logged_metrics["val_acc"]),
    "loader's name": lambda s, g, run: float(run.callback_metrics["val_acc/dataloader_idx_0"]),
    "outcome": lambda shared, guard, run: guard.outcome.best_evaluation,
    "answers": lambda shared, guard, run: guard.answers["val_acc"].value,
    "best path": lambda shared, guard, run: len(guard.best_model_path),
    "course": lambda shared, guard, run: guard._course._weights.best(None),
    "evaluation": lambda shared, guard, run: float(guard._evaluation),
    "state": lambda shared, guard, run: guard.state_dict()["last"]["val_acc"],
    "metric": lambda s, guard, run: float(guard.holdout.release("val_acc", None, query="a")),
    "validate": lambda s, g, run: run.validate(display_net(0.5), [loader(), loader()])[0],
}


@pytest.mark.parametrize("name", CARELESS)
def test_careless_code_gets_nothing(name, tmp_path):
    """A sealed value is nowhere a trial's code would look: there is an error, or no number."""
    account = sweep_account()

    def body(shared, guard, run):
        fit_with_display(run, display_net(0.1))
        return CARELESS[name](shared, guard, run)

    study = run_one(account, tmp_path, body)
    (trial,) = study.trials
    assert (trial.state, trial.values) == (STATE.FAIL, None)
    assert set(trial.intermediate_values) == {0, 1}  # what the display has shown


def test_the_same_code_gets_a_number_where_one_is_public(tmp_path):
    """The twin: the display is where the sealed value is looked for."""
    account = sweep_account()

    def body(shared, guard, run):
        fit_with_display(run, display_net(0.1))
        return float(run.callback_metrics["display_loss"])

    assert run_one(account, tmp_path, body).trials[0].state is STATE.COMPLETE
