"""The name of the run is kept beside its answers, with every kind of launcher."""

import os

import optuna
import pytest
import torch_holdout as th
from torch_holdout.ledger import Ledger
from torch_holdout.tuning.optuna import sharing

from support.builders.guarded import (
    NAMESPACES,
    fit,
    guard_class,
    holdout,
    network,
    package,
    trainer,
)
from support.builders.holdouts import ask, make_holdout

pytestmark = pytest.mark.integration


def runs_of(account):
    ledger = account._ledger
    return [answer.run for answer in ledger.answers(ledger.accounts()["val"])]


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_a_run_is_named_by_its_loggers_folder(namespace, tmp_path):
    account = holdout(f"sqlite:///{tmp_path}/holdout.db")
    for _ in range(2):
        logger = package(namespace).loggers.CSVLogger(tmp_path, name="digits")
        guard = guard_class(namespace)(account)
        fit(trainer([guard], namespace, max_epochs=1, logger=logger), network(namespace))
    assert runs_of(account) == ["digits/version_0"] * 2 + ["digits/version_1"] * 2


def test_a_name_of_ones_own_comes_first():
    account = holdout()
    fit(trainer([guard_class("lightning.pytorch")(account, run="mine")], max_epochs=1), network())
    with th.named_run("around"):
        for name in (None, "mine too"):
            guard = guard_class("lightning.pytorch")(account, run=name)
            fit(trainer([guard], max_epochs=1), network())
    assert runs_of(account) == ["mine"] * 2 + ["around"] * 2 + ["mine too"] * 2


class Silent(package("lightning.pytorch").loggers.Logger):
    """A logger without a folder, which ends the test if it is asked for anything but to log."""

    @property
    def name(self):
        pytest.fail("a logger without a folder was asked")  # no Exception: nothing suppresses it

    version = name

    def log_hyperparams(self, *args, **kwargs):
        pass

    def log_metrics(self, *args, **kwargs):
        pass


class Failing(Silent):
    """A logger that has no folder yet, and says so."""

    @property
    def log_dir(self):
        raise RuntimeError("not started")


class Odd(Silent):
    """A logger whose folder is none."""

    log_dir = 17


@pytest.mark.parametrize("logger", [False, Silent(), Failing(), Odd()])
def test_without_a_folder_the_run_is_named_by_its_start(logger):
    account = holdout()
    run = trainer([guard_class("lightning.pytorch")(account)], max_epochs=1, logger=logger)
    fit(run, network())
    (name,) = set(runs_of(account))
    assert name.startswith("fit of 20")
    assert name.endswith(f" UTC, process {os.getpid()}")


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    ("study_name", "names"),
    [(None, ["trial 0", "trial 1"]), ("lr sweep", ["lr sweep trial 0", "lr sweep trial 1"])],
)
def test_trials_are_named_by_their_number(study_name, names, tmp_path):
    account = make_holdout(f"sqlite:///{tmp_path}/holdout.db", mechanism=th.Ladder(step=0.01))

    def objective(trial):
        with sharing(trial, account) as shared:
            shared.report(ask(account, 20 + 10 * trial.number, f"weights {trial.number}"), step=0)
            return shared.value

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", study_name=study_name)
    study.optimize(objective, n_trials=2)
    assert runs_of(account) == names
    ask(account, 45, "after the study")
    assert [
        answer.run
        for answer in Ledger(account.status().ledger).answers(account._ledger.accounts()["val"])
    ][-1] is None
