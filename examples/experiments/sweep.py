"""A sweep on labels that are coin flips: what a raw holdout claims, and what guarded ones do.

Twenty models are blended, and Optuna tunes the weights of the blend on the holdout. The labels are
coin flips, so every blend is right half of the time on new examples. On the raw holdout the sampler
finds out which models happen to agree with the labels and the best value climbs; through the door
almost every answer is "as before", so there is nothing to climb. Sealed, the sampler climbs on a
display, whose labels are other coins, and the holdout says at closing what that was worth.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import optuna
import torch
import torch_holdout as th
from torch import Tensor, nn
from torch_holdout._noise.fixed import fixed_integers, normal_numbers
from torch_holdout._shared.checks import require_whole
from torch_holdout.tuning.optuna import Claim, claim, reask, sharing

MODELS, FRESH, DISPLAY = 20, 20_000, 1000
BUDGET = 10
STATISTIC = "val_acc"
# Five standard deviations of an accuracy on 2,000 coin flips: it takes a real change to be told.
MECHANISM = th.Thresholdout(threshold=0.06, sigma=0.001, guess="last")


@final
@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What became of a study.

    Attributes:
        told: What the study was told of each trial.
        released: Whether that was a release; all of them on a raw holdout.
        claimed: The best accuracy that is claimed.
        fresh: What the winner has on examples that decided nothing.
        claim: The guarded or sealed study's claim, with its interval.
        again: The winner's value when it was asked once more.
        spent: Releases.
    """

    told: tuple[float, ...] = field(repr=False)
    released: tuple[bool, ...] = field(repr=False)
    claimed: float
    fresh: float
    claim: Claim | None = None
    again: Claim | None = None
    spent: int | None = None


@final
class Coins:
    """Scores of twenty models, and labels that have nothing to do with them."""

    def __init__(self, size: int, seed: int) -> None:
        require_whole("size", size, 10, 10**7)
        self.size = size
        scores = normal_numbers((size + FRESH, MODELS), 2 * seed)
        labels = fixed_integers(2, (size + FRESH,), 2 * seed + 1)
        self.holdout = (scores[:size], labels[:size])
        self.fresh = (scores[size:], labels[size:])
        other = 10**6 + 2 * seed
        self.display = (
            normal_numbers((DISPLAY, MODELS), other),
            fixed_integers(2, (DISPLAY,), other + 1),
        )


@final
class Blend(nn.Module):
    """Models, weighted and added: class 1 if the sum is positive."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.weights: Tensor
        self.register_buffer("weights", torch.tensor(weights))

    def forward(self, scores: Tensor) -> Tensor:
        """Return the classes."""
        return (scores @ self.weights > 0).long()


def raw_sweep(coins: Coins, *, trials: int, seed: int) -> Sweep:
    """Tune on the holdout itself, as usual.

    Example:
        >>> found = raw_sweep(Coins(size=200, seed=0), trials=5, seed=0)
        >>> found.claimed == max(found.told)
        True
    """

    def objective(trial: optuna.Trial) -> float:
        return _accuracy(_blend(trial), coins.holdout)

    study = _study(objective, trials, seed)
    told = tuple(float(trial.values[0]) for trial in study.get_trials(deepcopy=False))
    fresh = _accuracy(_blend(study.best_trial), coins.fresh)
    return Sweep(told=told, released=(True,) * len(told), claimed=max(told), fresh=fresh)


def guarded_sweep(
    coins: Coins, *, trials: int, seed: int, url: str = "memory://", secret: int | None = None
) -> Sweep:
    """Tune the same way through the door; claim the best release and ask for the winner again.

    Args:
        coins: The data.
        trials: How many trials at most; the study stops when the budget is gone.
        seed: Of the sampler.
        url: The ledger.
        secret: Makes the noise reproducible, for tests.

    Example:
        >>> found = guarded_sweep(Coins(size=200, seed=0), trials=5, seed=0, secret=0)
        >>> found.claimed == found.claim.value and found.claim.value in found.told
        True
    """
    holdout = th.ReusableHoldout(
        url,
        name="coins",
        size=coins.size,
        statistics={STATISTIC: th.ZeroOne()},
        mechanism=MECHANISM,
        budget=BUDGET,
        seed=secret,
    )
    released = []

    def objective(trial: optuna.Trial) -> float:
        with sharing(trial, holdout, STATISTIC) as shared:
            blend = _blend(trial).eval()
            metric = th.ReusableHoldoutMetric(holdout, STATISTIC, model=blend)
            metric.update(blend(coins.holdout[0]), coins.holdout[1])
            metric.compute()
            shared.report(metric.answer, step=0)
            released.append(metric.answer is not None and metric.answer.is_release)
            return float(shared.value)

    study = _study(objective, trials, seed)
    best = claim(study, holdout, STATISTIC)
    winner = _blend(study.trials[int(best.trial)])
    left = holdout.status().budget_left
    again = reask(best, holdout, winner, [coins.holdout]) if left else None
    answered = [t for t in study.get_trials(deepcopy=False) if t.values is not None]
    return Sweep(
        told=tuple(float(trial.values[0]) for trial in answered),
        released=tuple(released),
        claimed=best.value,
        fresh=_accuracy(winner, coins.fresh),
        claim=best,
        again=again,
        spent=holdout.status().releases,
    )


def sealed_sweep(coins: Coins, *, trials: int, seed: int) -> Sweep:
    """Tune on a display, with every evaluation of the holdout sealed; close it, and claim the best.

    Example:
        >>> found = sealed_sweep(Coins(size=200, seed=0), trials=5, seed=0)
        >>> found.claim.low < 0.5 < found.claim.high, len(found.told)
        (True, 5)
    """
    holdout = th.ReusableHoldout(
        "memory://",
        name="coins",
        size=coins.size,
        statistics={STATISTIC: th.ZeroOne()},
        mechanism=th.Sealed(evaluations=1),
        budget=trials,
    )

    def objective(trial: optuna.Trial) -> float:
        with sharing(trial, holdout, display="display_acc") as shared:
            blend = _blend(trial).eval()
            sums = holdout.accumulator(STATISTIC)
            sums.update(blend(coins.holdout[0]) == coins.holdout[1])
            shared.evaluate({STATISTIC: sums}, query=f"trial {trial.number}", step=0)
            shared.report(_accuracy(blend, coins.display), step=0)
            return float(shared.value)

    study = _study(objective, trials, seed)
    holdout.close()
    best = claim(study, holdout)
    winner = study.trials[int(best.trial)]
    return Sweep(
        told=tuple(float(trial.values[0]) for trial in study.get_trials(deepcopy=False)),
        released=(False,) * trials,
        claimed=best.value,
        fresh=_accuracy(_blend(winner), coins.fresh),
        claim=best,
    )


def _blend(trial: "optuna.Trial | optuna.trial.FrozenTrial") -> Blend:
    return Blend([trial.suggest_float(f"weight_{m}", -1.0, 1.0) for m in range(MODELS)])


def _accuracy(blend: Blend, examples: tuple[Tensor, Tensor]) -> float:
    return float((blend(examples[0]) == examples[1]).double().mean())


def _study(objective: Callable[[optuna.Trial], float], trials: int, seed: int) -> optuna.Study:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        sampler = optuna.samplers.TPESampler(seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective, n_trials=trials)
    finally:
        optuna.logging.set_verbosity(before)
    return study
