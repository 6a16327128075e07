"""The claim of a sweep's winner: a value with its interval."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import torch
from torch import nn

from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout._shared.checks import require_callable, require_instance
from torch_holdout._shared.text import outwards
from torch_holdout.errors import BudgetExhaustedError, HoldoutError, InvalidArgumentError
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.holdout.queries import require_eval
from torch_holdout.holdout.results import Answer
from torch_holdout.training.requirements import budget_spent

FRESH = (
    "Asked again after it was chosen: that removes the bias of having picked the luckiest noise, "
    "not the overfitting to the holdout, which the interval covers and a new holdout cures."
)


class Pointer(NamedTuple):
    """The position of a trial's release in the ledger, where its value is read.

    Without an account or a statistic it is taken to be of those that are claimed.
    """

    trial: str
    step: int
    position: int
    account: str = ""
    statistic: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """The best value of a sweep: the best *release*, or the best evaluation of sealed runs.

    Never a guess, never a stale value; of a sealed holdout, only after it was closed.

    Attributes:
        trial: Which trial (Optuna: its number, Ray: its id).
        step: After which step, as the trial reported it: that model is the winner.
        statistic: Of what.
        value: As released; of a sealed run, as closed: the mean over the holdout.
        low: The population value lies above this,
        high: and below this, with probability ``1 - failure`` for all releases, or evaluations, of
            the account at once, so also for the one that was picked from them.
        failure: The probability that any of them is wrong.
        position: Which query of the ledger it is; of a sealed run, which evaluation.
        fresh: Whether the winner was asked again after it was chosen.
        account: The account's public mark (``holdout.account``).
        weights: Where the weights of that evaluation are, if they were kept.
        apart: Whether its interval and the winner's do not meet; None for a release.
        evaluation: The number of the evaluation in its run; None for a release.
        run: The id of the sealed run; empty for a release.

    Example:
        >>> print(Claim(trial="7", step=3, statistic="val_acc", value=0.91, low=0.83, high=0.96,
        ...             failure=0.05, position=12))
        val_acc 0.91, released for trial 7 after step 3 (query 12 of the ledger).
        Population value in [0.83, 0.96] with probability 0.95, for all releases at once.
    """

    trial: str
    step: int | str | None
    statistic: str
    value: float
    low: float
    high: float
    failure: float
    position: int
    fresh: bool = False
    account: str = ""
    weights: str | None = None
    apart: bool | None = None
    evaluation: int | None = None
    run: str = ""

    def __str__(self) -> str:
        if self.evaluation is not None:
            return "\n".join(self._sealed_lines())
        lines = [
            f"{self.statistic} {self.value:.4g}, released for trial {self.trial} after step "
            f"{self.step} (query {self.position} of the ledger).",
            f"Population value in {outwards(self.low, self.high)} with probability "
            f"{1 - self.failure:g}, for all releases at once.",
        ]
        return "\n".join([*lines, FRESH] if self.fresh else lines)

    def _sealed_lines(self) -> Iterator[str]:
        named = f"step {self.step}" if str(self.step).isdigit() else self.step
        step = "" if self.step is None else f" ({named})"
        yield (
            f"{self.statistic} {self.value:.4g}, trial {self.trial}, evaluation "
            f"{self.evaluation}{step} of its run."
        )
        yield (
            f"Population value in {outwards(self.low, self.high)} with probability "
            f"{1 - self.failure:g}, for all evaluations at once."
        )
        yield "Its weights were not kept." if self.weights is None else f"Weights: {self.weights}"


def points_here(answer: Answer, holdout: ReusableHoldout, statistic: str) -> bool:
    """Whether an answer is a release of this account's ledger, so that a trial may be named by it.

    An answer of another account or statistic is refused: it says nothing about a model that this
    account was asked about. One that does not say whose it is (made by hand, or unpickled from
    version 0.1.0) is looked up.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> foreign = Answer(0.9, "release", 1, "release", 1, "another account", "val_acc")
        >>> points_here(foreign, holdout, "val_acc")
        Traceback (most recent call last):
            ...
        torch_holdout.errors.InvalidArgumentError: Expected an answer about 'val_acc' by the
        holdout 'val' that the trials share, but another account or statistic gave this one. ...
    """
    require_instance("answer", answer, Answer)
    own = holdout.account, statistic
    if answer.account not in (None, own[0]) or answer.statistic not in (None, own[1]):
        raise InvalidArgumentError(
            f"Expected an answer about {statistic!r} by the holdout {holdout.name!r} that the "
            f"trials share, but another account or statistic gave this one. Report what this "
            f"trial's own question to the shared holdout was answered."
        )
    if not answer.is_release or answer.position is None:
        return False
    if (answer.account, answer.statistic) == own:
        return True
    try:
        recorded = holdout.interval(answer)
    except InvalidArgumentError:
        return False
    return (recorded.statistic, recorded.kind) == (statistic, "release")


def best_claim(
    pointers: Iterable[Pointer], holdout: ReusableHoldout, statistic: str, failure: float
) -> Claim:
    """Return the best release among those the trials point to, as the ledger has it."""
    account = holdout.account
    released = {
        answer.position: answer
        for answer in holdout._recorded()
        if answer.kind == "release" and answer.statistic == statistic
    }
    known = [
        pointer
        for pointer in pointers
        if pointer.position in released
        and (pointer.account or account, pointer.statistic or statistic) == (account, statistic)
    ]
    if not known:
        raise HoldoutError(
            f"Expected a release of {statistic!r} by one of the trials on this account, but there "
            f"is none, so nothing can be claimed: guesses and stale values do not count."
        )
    sign = 1 if holdout.statistics[statistic].mode == "max" else -1
    # The earliest of equals: a repeat of the same weights came later.
    best = max(known, key=lambda p: (sign * released[p.position].value, -p.position))
    won = released[best.position]
    answer = Answer(won.value, "repeat", 0, "release", won.position, account, statistic)
    interval = holdout.interval(answer, failure)
    return Claim(
        trial=best.trial,
        step=best.step,
        statistic=interval.statistic,
        value=interval.value,
        low=interval.low,
        high=interval.high,
        failure=interval.failure,
        position=interval.position,
        account=account,
    )


def reask(
    claim: Claim,
    holdout: ReusableHoldout,
    model: nn.Module,
    loader: Iterable[Any],
    *,
    values: Callable[[nn.Module, Any], Any] | None = None,
    version: str = "",
) -> Claim:
    """Ask for the winner once more, with new noise: one release, recorded as asked afresh.

    A value that was picked because it was the best has the luckiest noise; a fresh one does not.
    That is all it cures: a model that overfits the holdout does so in every answer. The model must
    be the very one of the claim (the same weights as then); another is refused and not charged.

    Args:
        claim: What ``claim(...)`` returned.
        holdout: The account.
        model: The winner, e.g. loaded from its checkpoint.
        loader: The holdout's examples, each once.
        values: ``values(model, batch)``: per-example values, or a tuple of what the statistic's own
            function takes. None: what ``model.validation_step`` (or ``holdout_step``) returns for
            it, and for a plain module ``(model(inputs), target)``.
        version: As given to the guard or metric when it was first asked.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.LaplaceMechanism(epsilon=1.0), budget=2)
        >>> model, loader = nn.Linear(8, 3).eval(), [(torch.zeros(4, 8), torch.zeros(4).long())]
        >>> metric = th.ReusableHoldoutMetric(holdout, "val_acc", model=model)
        >>> metric.update(model(loader[0][0]), loader[0][1])
        >>> _ = metric.compute()
        >>> best = best_claim([Pointer("0", 0, 1)], holdout, "val_acc", failure=0.05)
        >>> reask(best, holdout, model, loader).fresh, holdout.status().releases
        (True, 2)
    """
    require_instance("claim", claim, Claim)
    require_instance("holdout", holdout, ReusableHoldout)
    require_instance("model", model, nn.Module)
    if values is not None:
        require_callable("values", values)
    if claim.evaluation is not None:
        raise InvalidArgumentError(
            "Expected the claim of a release, but this is one of a sealed holdout that was closed: "
            "its value has no noise that could be drawn again. The claim stands as it is."
        )
    if claim.fresh or claim.account != holdout.account:
        raise InvalidArgumentError(
            "Expected a claim of this account that has not been asked afresh yet, but this one has "
            "been, or is another account's. Nothing was charged."
        )
    name, take = claim.statistic, values or _values_of(model, claim.statistic)
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        require_eval(model)
        before = weights_fingerprint(model, version)
        asked = holdout.recall(name, before)
        if asked is None or asked.position != claim.position:
            raise InvalidArgumentError(
                f"Expected the model of the claim (trial {claim.trial} after step {claim.step}), "
                f"but these weights are not the ones it was released for. Load that step's "
                f"checkpoint, and pass the same version. Nothing was charged."
            )
        sums = holdout.accumulator(name)
        with torch.no_grad():
            for batch in loader:
                taken = take(model, batch)
                sums.update(*(taken if isinstance(taken, tuple) else (taken,)))
        query = before.confirmed_by(weights_fingerprint(model, version))
        # A forced release compares with nothing; where a guess must be there, a public one will do.
        guess = claim.value if holdout.mechanism.wants_guess() else None
        answer = holdout.release(name, sums, query=query, guess=guess, fresh=True)
    finally:
        for module, mode in training.items():
            module.training = mode
    if answer.kind == "exhausted":
        raise BudgetExhaustedError(
            f"{budget_spent(holdout)}, so the winner cannot be asked again. The claim stands as it "
            f"is; plan one more next time."
        )
    new = holdout.interval(answer, claim.failure)
    return replace(
        claim, value=new.value, low=new.low, high=new.high, position=new.position, fresh=True
    )


def _values_of(model: nn.Module, name: str) -> Callable[[nn.Module, Any], Any]:
    step = getattr(model, "holdout_step", None) or getattr(model, "validation_step", None)
    if step is not None:
        return lambda _, batch: step(_moved(batch, model), 0)[name]

    def of_pair(model: nn.Module, batch: Any) -> Any:
        inputs, target = _moved(batch, model)
        return model(inputs), target

    return of_pair


def _moved(batch: Any, model: nn.Module) -> Any:
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if isinstance(batch, list | tuple):
        return [part.to(device) if isinstance(part, torch.Tensor) else part for part in batch]
    return batch.to(device) if isinstance(batch, torch.Tensor) else batch
