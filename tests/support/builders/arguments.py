"""Arguments that fit, drawn by the name of the parameter; ordinary ones and allowed extremes."""

import functools
import inspect
import itertools
from fractions import Fraction
from pathlib import Path

import optuna
import torch
import torch_holdout as th
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_holdout import accounting, bounds, ledger, prediction, report, tuning
from torch_holdout._noise.streams import SeededNoise
from torch_holdout.bounds.certificate import Transcript
from torch_holdout.bounds.channels import Channel
from torch_holdout.mechanisms import Query, Release, mechanism_of
from torch_holdout.prediction.mechanisms import Setting

from support.builders.ensembles import data, ensemble
from support.builders.hostile import OwnError
from support.builders.holdouts import ask, correct, make_holdout, sums_of
from support.builders.mechanisms import MECHANISMS, guess_of
from support.builders.members import Members
from support.builders.predictors import LABELS, make
from support.builders.stable import problem_of, records

_COUNT = itertools.count()
PAIRS = TensorDataset(
    torch.randn(60, 6, generator=torch.Generator().manual_seed(0)), correct(30, 60).long()
)
UNIT = (0.05, 0.5, 0.9, 0.01, 1e-6, 1e-12, 1e-300, 1 - 2.0**-53)
SMALL = (0.05, 0.01, 0.1, 0.5, 1e-6, 1e-300)
POSITIVE = (1.0, 0.5, 0.1, 2.0, 10.0, 1e-6, 1e3, 1e-300, 1e300)
WHOLE = (1, 2, 3, 10, 50, 1000, 10**6)
HUGE = (1, 2, 50, 1000, 10**6, 10**9, 10**15, 2**62)
CHARGES = (
    accounting.Pure(0.1),
    accounting.Pure(0.5, 10),
    accounting.Concentrated(0.01, 3),
    accounting.DiscreteLaplace(10.0, 1, 4),
    accounting.SoftVote(0.3, 20, 3, 5),
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
def shared_url():
    url = f"memory://fuzz-{next(_COUNT)}"
    shared = make_holdout(url)
    ask(shared, 20, "first"), ask(shared, 45, "second")
    make(ledger=url)(torch.zeros(2, 4))
    globals()["_KEPT"] = shared
    return url


@functools.lru_cache
def shared_report():
    return report.summarise(ledger.Ledger(shared_url()))


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


def fresh_trial(generator):
    shared_study()
    return optuna.create_study(direction="maximize").ask()


@functools.lru_cache
def shared_claim():
    return tuning.optuna.claim(shared_study(), shared_holdout())


def stable_model(generator):
    return _stable_model()


@functools.lru_cache
def _stable_model():
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


def one_of(*choices):
    return lambda generator: generator.choice(choices)


BY_NAME = {
    "accuracy": one_of(*SMALL),
    "account": lambda g: next(iter(ledger.Ledger(shared_url()).accounts())),
    "answer": answer_of,
    "answers": one_of(1, 2, 100, 1001, 2**62),
    "arguments": lambda g: (correct(20),),
    "as_pair": one_of(None, lambda record: record),
    "at": one_of(0.0, 0.1, 1.0, 5.0, 700.0),
    "backend": one_of("auto", "vmap", "loop"),
    "balanced": one_of(False, True),
    "batch_idx": one_of(0, 1),
    "batch_size": one_of(1, 4, 7),
    "bits": one_of(0.0, 1.0, 8.0, 100.0, 1e300),
    "blocks": one_of(1, 2, 5, 10),
    "bound": one_of(1.0, 0.5, 10.0, 1e300),
    "bracket": one_of(0.0, 1.0, 12.5, 1e300),
    "budget": one_of(1, 2, 5, 20, 1000),
    "cache": one_of(0, 1, 100),
    "chunk_size": one_of(None, 1, 3),
    "claim": lambda g: shared_claim(),
    "clip_norm": one_of(None, 1.0, 0.01),
    "columns": lambda g: (torch.arange(50) % 2, torch.arange(50) % 3),
    "content": one_of({}),
    "convexity": one_of(*POSITIVE),
    "count": one_of(*WHOLE),
    "checkpoint": one_of(None),
    "channels": lambda g: {"val_acc": Channel(units=50, resolution=100, grid=100, sigma=0.01)},
    "charge": one_of(*CHARGES),
    "charges": lambda g: [g.choice(CHARGES) for _ in range(g.randrange(1, 4))],
    "dataloader_idx": one_of(0, 1),
    "datamodule": lambda g: data(),
    "dataset": one_of(PAIRS, list(range(100)), TensorDataset(torch.zeros(3, 2)), [1.5, "x"]),
    "degenerate": one_of(None, 0.0, 1.0),
    "delta": one_of(None, 1e-5, 1e-9, 0.0, 0.5, 1e-300),
    "dimension": one_of(*WHOLE),
    "divergence": one_of(0.0, 0.01, 1.0, 1e300, 1e-300),
    "draws": one_of(100),
    "each_delta": one_of(0.0, 1e-9),
    "ensemble": lambda g: g.choice((Members(), ensemble(), stable_model(g))),
    "epsilon": one_of(*POSITIVE),
    "error": one_of(*SMALL),
    "error_failure": one_of(*UNIT),
    "eta": one_of(0.3, 1.0, 1e-6, 20.0, 700.0),
    "evidence": one_of("exact", "sampled", "counted"),
    "expectation": one_of(0.0, 0.3, 1.0),
    "failure": one_of(*UNIT),
    "fallback": one_of(None, lambda inputs: torch.zeros(len(inputs), dtype=torch.int64)),
    "feature_bound": one_of(*POSITIVE),
    "fingerprint": lambda g: g.choice((None, th.fingerprint([fresh_name(g)] * 50))),
    "first": one_of(0.1, 0.0, 1.0, 0.5, 1e-300),
    "fresh": one_of(False, True),
    "given": one_of(None, Fraction(1, 2)),
    "gradient_tolerance": one_of(None, 1e-8),
    "grid": one_of(None, 1, 10, 100, 1000),
    "group": one_of(1, 2, 10),
    "guard": lambda g: None,
    "guess": one_of(0.5, 0.0, 1.0, "train", "last"),
    "guess_dataloaders": lambda g: g.choice((None, DataLoader(PAIRS, batch_size=20))),
    "guesses": one_of(None),
    "high": one_of(1.0, 2.0, 10.0, 1e300, 5e-324),
    "histogram": lambda g: torch.tensor([10, 20, 5, 15]),
    "holdout": lambda g: shared_holdout(),
    "identity": lambda g: g.choice(sorted(MECHANISMS.items()))[1].identity(),
    "index": one_of(0, 1, 59),
    "information": one_of(0.0, 1.0, 50.0),
    "initial": one_of(None, {"val_acc": 0.5}),
    "inputs": lambda g: torch.zeros(3, 4),
    "key": one_of("index", "content"),
    "keys": lambda g: list(range(60)),
    "kind": one_of("release", "guess"),
    "label": one_of("x"),
    "labels": one_of(None),
    "last": one_of(None, Release(3, 10)),
    "learning_rate": one_of(None, 0.1, 1.0),
    "ledger": lambda g: "memory://",
    "lipschitz": one_of(*POSITIVE),
    "loader": lambda g: [
        (torch.zeros(30, 4), correct(20, 30)),
        (torch.zeros(20, 4), correct(9, 20)),
    ],
    "log_train_loss": one_of(False),
    "loss": one_of(0.1, 1.0, 1e-6, 1e3),
    "loss_lipschitz": one_of(*POSITIVE),
    "losses": one_of([(0.1, 0.0), (0.2, 1e-6)], [(1.0, 0.0)]),
    "low": one_of(0.0, -1.0, -1e300),
    "max_iterations": one_of(50, 1000),
    "mean": one_of(0.0, 0.3, 1.0, 0.5, 1e-300),
    "mechanism": lambda g: g.choice(sorted(MECHANISMS.items()))[1],
    "members_changed": one_of(1, 2),
    "metric": one_of(lambda rows, others: (rows == others).float().mean()),
    "metrics": one_of(["val_acc"]),
    "mode": one_of("min", "max"),
    "model": lambda g: nn.Linear(4, 2).eval(),
    "model_fn": one_of(lambda: nn.Linear(6, 3)),
    "name": one_of("val_acc"),
    "named": one_of({}),
    "noise": one_of("laplace", "gaussian"),
    "normalised": one_of(0.0, 0.5, 1.0),
    "num_classes": one_of(2, 3, 10, 1000),
    "num_features": one_of(1, 4),
    "num_outputs": one_of(1, 3),
    "num_parts": one_of(1, 2, 20, 250, 1000),
    "num_workers": one_of(0),
    "on_exhausted": one_of("raise", "freeze", "stop", "abstain"),
    "optimizer": one_of(functools.partial(torch.optim.SGD, lr=0.1)),
    "order": one_of(1.5, 2.0, 64.0, 1.0 + 1e-9, 1e6),
    "orders": one_of([2.0, 8.0], [1.5]),
    "others": one_of(0, 3, 10, 1000),
    "outputs": lambda g: torch.zeros(5, 2, 3),
    "owner": one_of((), ("val", "val_acc")),
    "parts": one_of(prediction.Partition(num_parts=4, key="index", seed=7)),
    "path": None,
    "per_example": one_of(None, lambda values: values * 0.5),
    "pin_memory": one_of(False),
    "plan": one_of(None),
    "position": one_of(1, 2, 10, 1000, 10**9),
    "problem": lambda g: problem_of(),
    "prog_bar": one_of(False, True),
    "progress": one_of(lambda part: None),
    "public": one_of((), ("lr",)),
    "public_dataloaders": one_of((), (1,)),
    "purpose": one_of("early-stopping", "curve", "search"),
    "queries": one_of(1, 2, 10, 50, 1000, 10**6),
    "query": one_of("weights of epoch 1", "model 20"),
    "radius": one_of(*POSITIVE),
    "rank": one_of(0),
    "reads_only": one_of(False, True),
    "regularisation": one_of(None, 0.05, 1.0),
    "relation": one_of("replace-one", "add-remove"),
    "releases_before": one_of(0, 1, 5, 100),
    "report": lambda g: shared_report(),
    "resolution": one_of(None, 1, 100, 1000, 2**20),
    "results": one_of(None),
    "rho": one_of(0.01, 1.0, 1e-300, 100.0),
    "role": one_of("holdout", "guess"),
    "rounds": one_of(1, 2, 9, 100),
    "run": one_of(None, "first run"),
    "save_checkpoints": one_of(False),
    "scale": one_of(0.5, 10.0, 1e4, 1e9),
    "scheduler": one_of(None),
    "second": one_of(0.2, 0.5, 1.0, 0.9, 1e-300),
    "seed": one_of(None, 0, 7, 2**31),
    "sensitivity": one_of(1, 2, 10, 0.5),
    "sequences": lambda g: bounds.any_sequences(g.choice((2, 1001))),
    "setting": lambda g: Setting(num_parts=20, num_outputs=3),
    "sharpness": one_of(0.1, 1.0, 0.01),
    "sigma": one_of(0.01, 0.1, 0.002, 10.0, 1e-6),
    "sigma_answer": one_of(8.0, 40.0),
    "sigma_check": one_of(8.0, 40.0),
    "simplex": one_of(False, True),
    "size": one_of(50, 60, 1000, 10**6, 100, 1),
    "slack": one_of(*SMALL),
    "smoothness": one_of(*POSITIVE),
    "stability": one_of(*POSITIVE),
    "stage": one_of("validate", "test"),
    "state": lambda g: _stable_model().get_extra_state(),
    "statistic": one_of(None, "val_acc"),
    "statistics": one_of(1, 2, 5),
    "step": one_of(0, 1, 5),
    "steps": one_of([0.1, 0.2], [0.01]),
    "steps_per_epoch": one_of(1, 3),
    "student": lambda g: nn.Linear(4, 3),
    "study": lambda g: shared_study(),
    "table": table,
    "tenant": one_of("default", "other"),
    "theorem": one_of("Hoeffding"),
    "threshold": one_of(0.05, 0.01, 0.5, 10.0),
    "tolerance": one_of(0.05, 0.1, 0.01, 0.5, 1.0),
    "total": one_of(0, 20),
    "train": one_of(lambda config, holdout: None),
    "train_set": lambda g: PAIRS,
    "trainer": one_of(None),
    "transcript": lambda g: Transcript(queries=4, releases=2, last_release=3, budget=5, rounds=5),
    "trial": fresh_trial,
    "two_sided": one_of(False, True),
    "unguarded": one_of("raise", "drop"),
    "uniforms": lambda g: SeededNoise(7).uniforms("fuzz"),
    "unit": one_of("record", "user"),
    "units": one_of(*HUGE),
    "universe": one_of(2, 10, 1000),
    "updates": one_of(1, 5, 20),
    "url": one_of("memory://"),
    "value": one_of(0.0, 0.5, 1.0),
    "values": lambda g: correct(g.choice((20, 50))),
    "variation": one_of(0.0, 1e-12),
    "version": one_of("", "v2"),
    "voters": lambda g: Members(),
    "votes": one_of(0, 10, 1000),
    "whole": one_of(False, True),
    "world": one_of(1),
    "x": lambda g: torch.zeros(3, 4),
}
# Where a name means something else: "function:parameter".
BY_PLACE = {
    "ReusableHoldout:statistics": lambda g: {"val_acc": th.ZeroOne()},
    "ReusableHoldout.open:arguments": lambda g: {
        "name": "val",
        "size": 50,
        "statistics": {"val_acc": th.ZeroOne()},
        "mechanism": th.Ladder(step=0.1),
        "budget": 5,
    },
    "ReusableHoldout:name": fresh_name,
    "ReusableHoldout.release:sums": lambda g: sums_of(g.receiver, correct(g.randrange(51))),
    "ReusableHoldout.release_all:sums": lambda g: {"val_acc": sums_of(g.receiver, correct(30))},
    "CrossEntropy.levels:arguments": lambda g: (
        torch.zeros(5, 3),
        torch.zeros(5, dtype=torch.int64),
    ),
    "audit:progress": one_of(stop_here),
    "ReusableHoldout.release:guess": one_of(0.5, 0.0, 1.0),
    "ReusableHoldout.release_all:guesses": one_of({"val_acc": 0.5}, None),
    "ReusableHoldout.interval:answer": lambda g: ask(
        g.receiver, 20, "model 20", **guess_of(g.receiver.mechanism)
    ),
    "Ledger.account:account": lambda g: next(iter(ledger.Ledger(shared_url()).accounts())),
    "MultiplicativeWeights:sigma": one_of(0.05, 0.01),
    "agnostic_size:size": one_of(sizes),
    "soft_majority_size:size": one_of(sizes),
    "epsilon_lower_bound:first": one_of([5, 10, 85], [100, 1]),
    "epsilon_lower_bound:second": one_of([50, 20, 30], [1, 100]),
    "largest_parameter:charge": one_of(accounting.Pure, accounting.Concentrated),
    "Partition.assign:keys": lambda g: g.choice((None, list(range(60)))),
    "Partition.assign:dataset": one_of(PAIRS),
    "PartitionedDataModule:keys": lambda g: g.choice((None, list(range(60)))),
    "PartitionedEnsemble:loss": one_of(nn.functional.cross_entropy),
    "distill:loss": one_of(nn.functional.cross_entropy),
    "distill:predictor": predictor,
    "distill:public_loader": lambda g: DataLoader(TensorDataset(torch.zeros(4, 4)), batch_size=2),
    "StableERM.for_budget:loss": one_of("logistic", "huber"),
    "StableERM.for_budget:answers": one_of("labels", "values"),
    "StableERM:answers": one_of("labels", "values"),
    "StableERM:problem": lambda g: problem_of(),
    "fit_stable_model:train_set": lambda g: records(problem_of()),
    "PrivatePredictor:mechanism": one_of(*LABELS),
    "PrivatePredictor:budget": lambda g: prediction.PrivacyBudget(epsilon=4.0, delta=1e-5),
    "PrivatePredictor:on_exhausted": one_of("raise", "abstain"),
    "PrivatePredictor:name": fresh_name,
    "rows:ledger": lambda g: ledger.Ledger(shared_url()),
    "summarise:ledger": lambda g: ledger.Ledger(shared_url()),
    "rows:name": one_of(None, "val"),
    "summarise:name": one_of(None, "val"),
    "Ledger:url": lambda g: g.choice(("memory://", shared_url())),
    "Ledger.find_records:name": one_of("records", "other"),
    "Ledger.charges:account": lambda g: next(iter(ledger.Ledger(shared_url()).records_accounts())),
    "Ledger.records:account": lambda g: next(iter(ledger.Ledger(shared_url()).records_accounts())),
    "Ledger.records_summary:account": lambda g: next(
        iter(ledger.Ledger(shared_url()).records_accounts())
    ),
    "verify:url": lambda g: shared_url(),
    "reask:holdout": lambda g: shared_holdout(),
    "reask:values": one_of(lambda model, batch: batch[1]),
    "ray.report:answers": lambda g: {"val_acc": answer_of(g)},
    "MultiplicativeWeights:threshold": one_of(0.05, 0.5),
    "MultiplicativeWeights:name": fresh_name,
    "MultiplicativeWeights.ask:query": lambda g: torch.tensor([1.0, 0.0, 0.5, 1.0]),
    "MultiplicativeWeights.estimate:query": lambda g: torch.tensor([1.0, 0.0, 0.5, 1.0]),
    "named_run:name": one_of("night run"),
    "MemberParallelStrategy.members:num_parts": one_of(4),
    "GNMax:sigma": one_of(8.0, 40.0, 1.0),
    "ConfidentGNMax:threshold": one_of(10.0, 3.0),
    "Query:guess": one_of(None, Fraction(1, 2)),
    "Query:threshold": one_of(None, 10),
    "Query:noise": lambda g: SeededNoise(7).stream("fuzz"),
    "Query:grid": one_of(10, 100),
    "Query:resolution": one_of(100),
    "Query:units": one_of(50),
    "Release:grid": one_of(10),
    "Thresholdout:guess": one_of("train", "last"),
    "Ladder:step": one_of(0.05, 0.001, 1.0),
    "NoisyMean:epsilon": one_of(None, 1.0),
    "NoisyMean:sigma": one_of(None, 1.0),
    "StableERM:epsilon": one_of(None, 1.0),
    "StableERM:sigma": one_of(None, 1.0),
    "PrivacyBudget.queries_for:charge": one_of(*CHARGES),
    "HoldoutGuard:on_exhausted": one_of("stop", "freeze", "raise"),
    "HoldoutGuard:dataloader_idx": one_of(0),
    "ReusableHoldoutMetric:on_exhausted": one_of("raise", "freeze"),
    "ReusableHoldoutMetric:model": lambda g: g.choice((None, nn.Linear(4, 2).eval())),
    "mechanism_of:identity": lambda g: g.choice(sorted(MECHANISMS.items()))[1].identity(),
}


# The same for a method of several classes: "method:parameter".
BY_MEMBER = {
    "levels:resolution": one_of(1, 100, 2**20),
    "total:resolution": one_of(1, 100, 2**20),
    "accumulator:resolution": one_of(1, 100, 2**20),
    "noise_scale:resolution": one_of(1, 100, 2**20),
    "channel:resolution": one_of(1, 100, 2**20),
    "channel:grid": one_of(1, 100, 1000),
    "channel:statistic": one_of({}),
    "member_outputs:x": lambda g: torch.zeros(3, 6),
    "output_chunks:x": lambda g: torch.zeros(3, 6),
    "output_chunks:inputs": lambda g: torch.zeros(3, 4),
}


def fitting(place, parameter, generator):
    """Draw an argument that fits a parameter of the function at ``place``."""
    draw = BY_MEMBER.get(f"{place.partition('.')[2]}:{parameter.name}")
    if draw is not None and f"{place}:{parameter.name}" not in BY_PLACE:
        return draw(generator)
    if place.endswith(".decide"):
        return Query(
            total=2000,
            units=50,
            resolution=100,
            grid=100,
            guess=Fraction(1, 2),
            threshold=None,
            forced=False,
            noise=SeededNoise(7).stream("fuzz"),
        )
    if place.endswith(".budget_charges") and parameter.name == "units":
        return [50, 1000]
    draw = BY_PLACE.get(f"{place}:{parameter.name}") or BY_NAME.get(parameter.name)
    if draw is not None:
        return draw(generator)
    note = str(parameter.annotation)
    if "bool" in note:
        return generator.choice((True, False))
    if "float" in note:
        return generator.choice(UNIT)
    if "int" in note:
        return generator.choice(WHOLE)
    return "text" if "str" in note else None
