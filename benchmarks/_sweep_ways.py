"""The ways of ``sweeps.py``: the same study, told by other things and won by other things."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import optuna
import torch
import torch_holdout as th
from _quality_fits import NAME, Net, Setting, Weights, copied
from _quality_tasks import loader
from _sweep_tasks import DISPLAY_LOSS, Careful, Plain, Point, suggested
from pytorch_lightning.callbacks import EarlyStopping
from torch_holdout.pytorch_lightning import HoldoutGuard
from torch_holdout.tuning.optuna import claim, sharing

import pytorch_lightning as pl

TRIALS, EPOCHS, PATIENCE = 20, 15, 5
RELEASES = 8  # for the records of 20 trials
HOLDOUT_SHARE = 0.2
RAW, LIVE, LIVE_BEFORE = "raw values", "live", "live, guesses pruned"
TENTH, FIFTH = "display: 10 % of training", "display: 20 % of training"
REFITS = {5: f"{FIFTH}, 5 refits", 10: f"{FIFTH}, 10 refits"}
OF_HOLDOUT = "display: 20 % of holdout"


@final
@dataclass(frozen=True, kw_only=True)
class Winner:
    """The model that a study has chosen.

    Attributes:
        weights: Its parameters.
        claimed: Its accuracy, as the way says.
        interval: Of the population's accuracy; None if there is none.
        complete: How many trials ended with a value for the sampler.
        epochs: How many epochs were trained in all.
    """

    weights: Weights
    claimed: float
    interval: tuple[float, float] | None
    complete: int
    epochs: int


@final
class Sweep:
    """A task with one seed and one kind of search; every way begins the same study anew."""

    def __init__(self, setting: Setting, search: str, trials: int = TRIALS) -> None:
        self.setting, self.search, self.trials = setting, search, trials
        self.epochs = 0  # of the study so far
        self.complete = 0  # trials of it that ended with a value for the sampler

    def study(self, direction: Any, objective: Callable[[optuna.Trial], Any]) -> optuna.Study:
        """Make a study: TPE without a pruner, or ASHA on random points."""
        seed, tpe = self.setting.seed, self.search == "TPE"
        asha = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
        sampler = optuna.samplers.TPESampler if tpe else optuna.samplers.RandomSampler
        pruner = optuna.pruners.NopPruner() if tpe else asha
        self.epochs = 0
        study = optuna.create_study(
            study_name="sweep", direction=direction, sampler=sampler(seed=seed), pruner=pruner
        )
        study.optimize(objective, n_trials=self.trials)
        self.complete = len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))
        return study

    def net(self, kind: Callable[..., Any], point: Point, number: int) -> Any:
        """Return the network of a point, with the same weights in every way."""
        torch.manual_seed(1000 * self.setting.seed + number)
        return kind(self.setting.task, self.setting.train.x.shape[1], point)

    def fit(self, net: Net, callbacks: list[Any], validation: Any, **options: Any) -> pl.Trainer:
        """Train, and count the epochs; a pruned fit counts too."""
        counter = _Epochs()
        try:
            return self.setting.fit(net, [*callbacks, counter], validation, **options)
        finally:
            self.epochs += counter.count

    def won(self, weights: Weights | str | None, claimed: Any) -> Winner:
        """Return the study's winner, its weights from a file if need be."""
        loaded = isinstance(weights, dict)
        found: Any = weights if loaded else torch.load(str(weights), weights_only=True)
        raw = isinstance(claimed, float)
        return Winner(
            weights=found,
            claimed=claimed if raw else claimed.value,
            interval=None if raw else (claimed.low, claimed.high),
            complete=self.complete,
            epochs=self.epochs,
        )


class _Epochs(pl.Callback):
    def __init__(self) -> None:
        self.count = 0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.count += 1


class _Told(pl.Callback):
    """Tell a trial every raw accuracy, and keep the best weights: what people write."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial
        self.best = -1.0
        self.weights: Weights = {}

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        value = float(trainer.callback_metrics[NAME])
        if value > self.best:
            self.best, self.weights = value, copied(pl_module)
        self.trial.report(value, trainer.current_epoch)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def raw(sweep: Sweep) -> dict[str, Winner]:
    """Sampler, pruner, early stopping and choice read raw accuracies of the whole holdout."""
    kept: list[_Told] = []

    def objective(trial: optuna.Trial) -> Any:
        kept.append(_Told(trial))
        stopping = EarlyStopping(NAME, patience=PATIENCE, mode="max")
        net = sweep.net(Plain, suggested(trial), trial.number)
        sweep.fit(net, [kept[-1], stopping], loader(sweep.setting.holdout))
        return kept[-1].best

    sweep.study("maximize", objective)
    best = max(kept, key=lambda told: told.best)
    return {RAW: sweep.won(best.weights, best.best)}


def live(sweep: Sweep, *, name: str, guesses: bool) -> dict[str, Winner]:
    """One question a trial, after a fit of fixed length; a Ladder publishes what is better.

    Args:
        sweep: The sweep.
        name: Of the way.
        guesses: Whether a trial that is no better tells the sampler so. If not it is pruned, and
            the sampler learns nothing: what the library did before.
    """
    setting = sweep.setting
    plan = th.plan(
        size=len(setting.holdout), queries=sweep.trials, budget=RELEASES, purpose="search"
    )
    holdout = setting.account(plan.mechanism, size=len(setting.holdout), budget=plan.budget)
    kept: dict[str, Weights] = {}

    def objective(trial: optuna.Trial) -> Any:
        with sharing(trial, holdout) as shared:
            guard = HoldoutGuard(holdout)
            net = sweep.net(Careful, suggested(trial), trial.number)
            trainer = sweep.fit(net, [guard, shared.pruning(guard)], None)
            trainer.validate(net, loader(setting.holdout), verbose=False)
            kept[str(trial.number)] = copied(net)
            if not (guesses or guard.answers[NAME].is_release):
                raise optuna.TrialPruned
            return shared.value

    best = claim(sweep.study("maximize", objective), holdout)
    return {name: sweep.won(kept[best.trial], best)}


def from_training(
    sweep: Sweep, *, name: str, share: float, refitted: dict[int, str] | None = None
) -> dict[str, Winner]:
    """A part of the training data is the display; the whole holdout is sealed.

    Args:
        sweep: The sweep.
        name: Of the way.
        share: Of the training data.
        refitted: Ways in which, before closing, so many of the display's best trials are trained
            again on all of the training data, at full length: the display can stop them no more,
            and the best epoch is chosen at closing.
    """
    setting, ways = sweep.setting, refitted or {}
    shown, rest = th.split(setting.train, display=share, seed=setting.seed)
    most = max(ways, default=0)
    holdout = _sealed(setting, len(setting.holdout), sweep.trials + most)
    study = _watching(sweep, holdout, setting.holdout, shown, rest)
    spent = [sweep.epochs]
    tried = [trial for trial in study.trials if trial.intermediate_values]
    for trial in sorted(tried, key=lambda trial: min(trial.intermediate_values.values()))[:most]:
        net = sweep.net(Careful, Point(**trial.params), trial.number)
        guard = HoldoutGuard(holdout, run=f"trial {trial.number} on all data")
        sweep.fit(net, [guard], loader(setting.holdout))
        spent.append(sweep.epochs)
    closing = holdout.close()
    won = claim(study, holdout)
    found = {name: replace(sweep.won(won.weights, won), epochs=spent[0])}
    for many, way in ways.items():
        runs = closing.runs[: sweep.trials + many]
        best, place = max(
            ((closing.best_of(run=run.number), run.weights) for run in runs),
            key=lambda pair: pair[0].value if pair[0] else 0.0,
        )
        found[way] = replace(sweep.won(place, best), epochs=spent[min(many, len(spent) - 1)])
    return found


def from_holdout(sweep: Sweep) -> dict[str, Winner]:
    """A fifth of the holdout is the display; the rest of it is sealed."""
    setting = sweep.setting
    shown, rest = th.split(setting.holdout, display=HOLDOUT_SHARE, seed=setting.seed)
    holdout = _sealed(setting, len(rest), sweep.trials)
    study = _watching(sweep, holdout, rest, shown, setting.train)
    holdout.close()
    best = claim(study, holdout)
    return {OF_HOLDOUT: sweep.won(best.weights, best)}


def ways(search: str) -> Iterator[Callable[[Sweep], dict[str, Winner]]]:
    """Yield the ways; what guesses tell a sampler matters only to one that listens."""
    yield raw
    yield partial(live, name=LIVE, guesses=True)
    if search == "TPE":
        yield partial(live, name=LIVE_BEFORE, guesses=False)
    yield partial(from_training, name=TENTH, share=0.1)
    yield partial(from_training, name=FIFTH, share=0.2, refitted=REFITS)
    yield from_holdout


def _sealed(setting: Setting, size: int, runs: int) -> th.ReusableHoldout:
    return setting.account(th.Sealed(evaluations=EPOCHS), size=size, budget=runs)


def _watching(
    sweep: Sweep, holdout: th.ReusableHoldout, sealed: Any, shown: Any, train: Any
) -> optuna.Study:
    """Make a study whose sampler, pruner and early stopping read the display's loss."""

    def objective(trial: optuna.Trial) -> Any:
        with sharing(trial, holdout, display=DISPLAY_LOSS) as shared:
            guard = HoldoutGuard(holdout, public_dataloaders=(1,))
            stopping = EarlyStopping(DISPLAY_LOSS, patience=PATIENCE)
            net = sweep.net(Careful, suggested(trial), trial.number)
            callbacks = [guard, shared.pruning(guard), stopping]
            sweep.fit(net, callbacks, [loader(sealed), loader(shown)], train=train)
            return shared.value

    return sweep.study("minimize", objective)
