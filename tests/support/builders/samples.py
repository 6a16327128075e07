"""Objects of the library for random calls: small, and made once where calls only read them."""

import atexit
import functools
import itertools
import shutil
import tempfile
from fractions import Fraction

import optuna
import torch
import torch_holdout as th
from torch.utils.data import TensorDataset
from torch_holdout import accounting, ledger, prediction, report, tuning
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.mechanisms import Query

from support.builders.holdouts import ask, correct, make_holdout, sums_of
from support.builders.hostile import OwnError
from support.builders.mechanisms import MECHANISMS, guess_of
from support.builders.predictors import LABELS, make
from support.builders.stable import problem_of, records

_COUNT = itertools.count()
PAIRS = TensorDataset(
    torch.randn(60, 6, generator=torch.Generator().manual_seed(0)), correct(30, 60).long()
)
CHARGES = (
    accounting.Pure(0.1),
    accounting.Pure(0.5, 10),
    accounting.Concentrated(0.01, 3),
    accounting.DiscreteLaplace(10.0, 1, 4),
    accounting.SoftVote(0.3, 20, 3, 5),
    accounting.SampledGaussian(0.2, 8.0, 5),
)


def fresh_name(generator):
    return f"name-{next(_COUNT)}"


def trained_holdout(generator=None):
    """A holdout with some answers; the mechanism is drawn."""
    name = "ladder" if generator is None else generator.choice(sorted(MECHANISMS))
    holdout = make_holdout(mechanism=MECHANISMS[name])
    guess = guess_of(holdout.mechanism)
    for count in (20, 40):
        ask(holdout, count, f"model {count}", **guess)
    return holdout


@functools.lru_cache
def shared_holdout():
    """One holdout for calls that only read."""
    return trained_holdout()


@functools.lru_cache
def shared_ledger():
    """A ledger with an account of each kind."""
    shared = make_holdout("memory://random-calls")
    ask(shared, 20, "first"), ask(shared, 45, "second")
    make(ledger="memory://random-calls")(torch.zeros(2, 4))
    return ledger.Ledger("memory://random-calls")


def holdout_account(generator):
    return next(iter(shared_ledger().accounts().values()))


def records_account(generator):
    return next(iter(shared_ledger().records_accounts().values()))


@functools.lru_cache
def file_holdout():
    """A holdout that other processes could reach."""
    folder = tempfile.mkdtemp(prefix="random-calls-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_holdout(f"sqlite:///{folder}/holdout.db")


@functools.lru_cache
def shared_report():
    return report.summarise(shared_ledger())


def answer_of(generator):
    holdout = shared_holdout()
    return ask(holdout, generator.choice((20, 40)), generator.choice(("model 20", "model 40")))


@functools.lru_cache
def shared_study():
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    study = optuna.create_study(direction="maximize")
    holdout = shared_holdout()

    def objective(trial):
        with tuning.optuna.sharing(trial, holdout) as shared:
            count = (20, 40)[trial.number % 2]
            shared.report(ask(holdout, count, f"model {count}"), step=1)
            return shared.value

    study.optimize(objective, n_trials=2)
    return study


@functools.lru_cache
def sealed_sweep():
    """A study on a sealed holdout, which is closed."""
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    study = optuna.create_study(direction="maximize")
    holdout = make_holdout(name="swept", mechanism=th.Sealed(evaluations=10))

    def objective(trial):
        with tuning.optuna.sharing(trial, holdout, display="display_acc") as shared:
            sums = {"val_acc": sums_of(holdout, correct(20 + trial.number))}
            shared.evaluate(sums, query=f"model {trial.number}")
            shared.report(0.5, step=0)
            return shared.value

    study.optimize(objective, n_trials=2)
    holdout.close()
    return study, holdout


@functools.lru_cache
def sealed_holdout():
    """An open sealed holdout for trials that evaluate nothing."""
    return make_holdout(name="sealed", mechanism=th.Sealed(evaluations=10))


def fresh_trial(generator):
    shared_study()
    return optuna.create_study(direction="maximize").ask()


@functools.lru_cache
def shared_claim():
    return tuning.optuna.claim(shared_study(), shared_holdout())


@functools.lru_cache
def shared_stable_model():
    problem = problem_of()
    return prediction.fit_stable_model(records(problem), problem)


def predictor(generator):
    return make(generator.choice(LABELS), name=fresh_name(generator), seed=3)


def table(generator):
    return torch.tensor([[12, 5, 3], [20, 0, 0]])


def stop_here(part):
    raise OwnError("the audit would begin")


def sizes(first, second):
    return 10.0 / first + 3.0 / second


def asked(generator):
    """What the door asks a mechanism."""
    return Query(
        total=2000,
        units=50,
        resolution=100,
        grid=100,
        guess=Fraction(1, 2),
        threshold=None,
        forced=False,
        noise=SeededNoise(7).stream("random calls"),
    )
