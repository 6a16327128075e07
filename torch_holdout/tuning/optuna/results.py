"""What may be claimed of a study: its winner, its ranking, and the study with closed values."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from torch_holdout._shared.checks import require_instance, shown
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.holdout.closing import ClosedValue
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.tuning.claims import Claim, Pointer, best_claim
from torch_holdout.tuning.optuna.studies import optuna, run_label, stored_runs
from torch_holdout.tuning.reporting import one_statistic
from torch_holdout.tuning.sealed_claims import (
    ClosedSweep,
    FrontPoint,
    closing_of_sweep,
    no_evaluation,
)
from torch_holdout.tuning.trial_runs import runs_of_trials

_STATES = optuna.trial.TrialState
_ATTRIBUTE = "torch_holdout:"
_NUMBER = re.compile(r"\d+")  # the first of "epoch 3, batch 40"


def claim(
    study: optuna.Study,
    holdout: ReusableHoldout,
    statistic: str | None = None,
    *,
    failure: float = 0.05,
) -> Claim:
    """Return the best value of a study's trials, and its interval from the ledger.

    On a live account that is the best *release*. Complete and pruned trials count alike: a release
    stands, whatever became of the trial. The study only says which trial asked for which query of
    the ledger; whether that was a release, and its value, is read there. ``reask`` asks for the
    winner once more. On a sealed account it is the best evaluation of all trials and epochs, after
    ``holdout.close()``; ``ranking`` has the others.

    Args:
        study: The study.
        holdout: The account its trials shared.
        statistic: What the study was about; may be left out if the holdout has only one, and on a
            sealed account: then it is the one that decided what is best in the trials' runs.
        failure: Probability that any interval is wrong.

    Example:
        >>> import torch, torch_holdout as th
        >>> from torch_holdout.tuning.optuna import sharing
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=2)
        >>> study = optuna.create_study(direction="maximize")
        >>> sums = holdout.accumulator("val_acc")
        >>> sums.update(torch.tensor([True, True, False, True]))
        >>> def objective(trial):
        ...     with sharing(trial, holdout) as shared:
        ...         shared.report(holdout.release("val_acc", sums, query="trial 0"), step=0)
        ...         return shared.value
        >>> study.optimize(objective, n_trials=1)
        >>> claim(study, holdout).value
        0.75
    """
    require_instance("holdout", holdout, ReusableHoldout)
    if not holdout.mechanism.shows_values:
        return ranking(study, holdout, statistic, failure=failure)[0]
    name = one_statistic(holdout, statistic)
    require_instance("study", study, optuna.Study)
    states = (_STATES.COMPLETE, _STATES.PRUNED)
    account = holdout.account
    pointers = [
        pointer
        for trial in study.get_trials(deepcopy=False, states=states)
        for pointer in _pointers(trial, name, account)
    ]
    return best_claim(pointers, holdout, name, failure)


def ranking(
    study: optuna.Study,
    holdout: ReusableHoldout,
    statistic: str | None = None,
    *,
    failure: float = 0.05,
) -> list[Claim]:
    """Return the best evaluation of each trial on a closed sealed holdout, the winner first.

    Each has its interval, its step, the place of its weights, and whether it can be told ``apart``
    from the winner. Pruned and killed trials count too: what was evaluated was evaluated.

    Args:
        study: The study.
        holdout: The account its trials shared, closed.
        statistic: As for ``claim``.
        failure: Probability that any interval is wrong.

    Example:
        >>> import torch, torch_holdout as th
        >>> from torch_holdout.tuning.optuna import sharing
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=1), budget=2)
        >>> study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        >>> def objective(trial):
        ...     with sharing(trial, holdout) as shared:
        ...         sums = holdout.accumulator("val_acc")
        ...         sums.update(torch.arange(4) < 2 + trial.number)
        ...         shared.evaluate({"val_acc": sums}, query=f"trial {trial.number}")
        >>> study.optimize(objective, n_trials=2)
        >>> _ = holdout.close()
        >>> [(claim.trial, claim.value) for claim in ranking(study, holdout)]
        [('1', 0.75), ('0', 0.5)]
    """
    sweep = _StudySweep(study, holdout, failure)
    name = sweep.statistic(statistic)
    ranked = sweep.closed.ranking(name)
    if not ranked:
        raise no_evaluation(name)
    return ranked


def front(
    study: optuna.Study,
    holdout: ReusableHoldout,
    statistics: Sequence[str | None],
    *,
    failure: float = 0.05,
) -> list[FrontPoint]:
    """Return the Pareto front of all trials and epochs on a closed sealed holdout.

    Args:
        study: A study of several objectives.
        holdout: The account its trials shared, closed.
        statistics: The statistic of each objective; None for one that is not a statistic of the
            holdout (size, latency): there it is the value that the trial told the study.
        failure: Probability that any interval is wrong.

    Example:
        >>> import torch, torch_holdout as th
        >>> from torch_holdout.tuning.optuna import sharing
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=1), budget=2)
        >>> study = optuna.create_study(directions=["minimize", "minimize"])
        >>> for parameters in (10, 20):
        ...     with sharing(study.ask(), holdout, display="display_loss") as shared:
        ...         sums = holdout.accumulator("val_acc")
        ...         sums.update(torch.arange(4) < parameters // 10)
        ...         _ = shared.evaluate({"val_acc": sums}, query=str(parameters))
        ...         shared.report(0.7, step=0)
        ...         _ = study.tell(study.trials[-1].number, (shared.value, parameters))
        >>> _ = holdout.close()
        >>> [point.values for point in front(study, holdout, ["val_acc", None])]
        [(0.5, 20.0), (0.25, 10.0)]
    """
    sweep = _StudySweep(study, holdout, failure)
    names = sweep.objectives(statistics)
    told = {str(trial.number): trial.values or () for trial in sweep.trials}
    return sweep.closed.front(names, told=told, maximised=sweep.maximised(names))


def closed_study(
    study: optuna.Study,
    holdout: ReusableHoldout,
    statistics: str | Sequence[str | None] | None = None,
    *,
    storage: Any = None,
    failure: float = 0.05,
) -> optuna.Study:
    """Return an ordinary study with the values of a closed sealed holdout, e.g. for plots.

    Trials keep their numbers, parameters and attributes. A trial that was evaluated is complete,
    with the value of its best evaluation, and its curve as intermediate values; user attributes
    ``torch_holdout:low``, ``high``, ``run``, ``evaluation``, ``weights``, ``display`` (what the
    study had been told) and ``state`` (what became of the trial) say the rest. With several
    statistics a trial has the values of the evaluation that is best by the first one.

    Args:
        study: The study.
        holdout: The account its trials shared, closed.
        statistics: As for ``claim``; for several objectives as for ``front``.
        storage: Where the new study is kept, as in ``optuna.create_study``; None: in memory.
        failure: Probability that any interval is wrong.

    Example:
        >>> import torch, torch_holdout as th
        >>> from torch_holdout.tuning.optuna import sharing
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=1), budget=2)
        >>> study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        >>> def objective(trial):
        ...     with sharing(trial, holdout) as shared:
        ...         sums = holdout.accumulator("val_acc")
        ...         sums.update(torch.arange(4) < 2 + trial.number)
        ...         shared.evaluate({"val_acc": sums}, query=f"trial {trial.number}")
        >>> study.optimize(objective, n_trials=2)
        >>> _ = holdout.close()
        >>> closed = closed_study(study, holdout)
        >>> closed.best_trial.number, closed.best_value
        (1, 0.75)
    """
    sweep = _StudySweep(study, holdout, failure)
    names: list[str | None]
    if statistics is None or isinstance(statistics, str):
        names = [sweep.statistic(statistics)]
    else:
        names = sweep.objectives(statistics)
    closed = _new_study(f"{study.study_name}, closed", sweep.maximised(names), storage)
    first = next(name for name in names if name is not None)
    ranked = {best.trial: best for best in sweep.closed.ranking(first)}
    curves = sweep.closed.curves(first) if len(names) == 1 else {}
    for trial in sweep.trials:
        best = ranked.get(str(trial.number))
        values = None if best is None else _values_of(trial, best, names, sweep.closed)
        closed.add_trial(_closed_trial(trial, best, values, curves.get(str(trial.number), ())))
    return closed


def _new_study(name: str, maximised: Sequence[bool], storage: Any) -> optuna.Study:
    if storage is not None:
        require_instance("storage", storage, str | optuna.storages.BaseStorage)
    best = optuna.study.StudyDirection
    directions = [best.MAXIMIZE if more else best.MINIMIZE for more in maximised]
    try:
        return optuna.create_study(storage=storage, study_name=name, directions=directions)
    except (SQLAlchemyError, optuna.exceptions.DuplicatedStudyError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise InvalidArgumentError(
        f"Expected `storage` to be free for a study named {name!r}, but Optuna refused it "
        f"({reason}). Use another storage, or delete that study first."
    )


class _StudySweep:
    """The trials of a study, and what closing says about them."""

    def __init__(self, study: optuna.Study, holdout: ReusableHoldout, failure: float) -> None:
        require_instance("study", study, optuna.Study)
        require_instance("holdout", holdout, ReusableHoldout)
        if holdout.mechanism.shows_values:
            raise InvalidArgumentError(
                f"Expected a sealed holdout, but {holdout.name!r} answers with values, which the "
                f"study has been told: claim(study, holdout) returns the best release."
            )
        closing, account = closing_of_sweep(holdout, failure), holdout.account
        self.trials = study.get_trials(deepcopy=False)
        runs = runs_of_trials(
            closing,
            stored={str(t.number): list(stored_runs(t, account)) for t in self.trials},
            labels={run_label(study.study_name, t): str(t.number) for t in self.trials},
        )
        self.closed = ClosedSweep(closing, runs, account=account)
        self._study = study
        self._holdout = holdout
        own = {mark for marks in runs.values() for mark in marks}
        decided = (run.statistic for run in closing.runs if run.id in own)
        self._decides = next(decided, next(iter(closing.modes)))

    def statistic(self, name: str | None) -> str:
        """Return a statistic's name; None: the one that decided what is best in the runs."""
        return one_statistic(self._holdout, self._decides if name is None else name)

    def objectives(self, statistics: Sequence[str | None] | None) -> list[str | None]:
        """Return the statistic of each objective, or None; raise if they do not fit the study."""
        listed = isinstance(statistics, list | tuple) and any(n is not None for n in statistics)
        if not listed or statistics is None:
            raise InvalidArgumentError(
                f"Expected the statistic of each objective, at least one of "
                f"{list(self._holdout.statistics)}, and None for every other objective, but got "
                f"{shown(statistics)}."
            )
        if None in statistics and len(statistics) != len(self._study.directions):
            raise InvalidArgumentError(
                f"Expected a statistic or None for each of the study's "
                f"{len(self._study.directions)} objectives, but got {list(statistics)}."
            )
        if None in statistics and not any(trial.values for trial in self.trials):
            raise HoldoutError(
                "Expected trials that told the study the value of each objective, because None "
                "stands for one that is not a statistic of the holdout, but none did: without "
                "sharing(..., display=...) a sealed trial tells nothing. Name statistics only."
            )
        return [None if name is None else self.statistic(name) for name in statistics]

    def maximised(self, names: Sequence[str | None]) -> list[bool]:
        """Return whether more is better, by objective."""
        directions = self._study.directions
        return [
            directions[place] == optuna.study.StudyDirection.MAXIMIZE
            if name is None
            else self._holdout.statistics[name].mode == "max"
            for place, name in enumerate(names)
        ]


def _values_of(
    trial: optuna.trial.FrozenTrial, best: Claim, names: Sequence[str | None], sweep: ClosedSweep
) -> list[float] | None:
    """Return a trial's values at its best evaluation; None if one of them is not known."""
    found: list[float] = []
    for place, name in enumerate(names):
        if name is not None:
            beside = sweep.beside(best, name)
            told = None if beside is None else beside.value
        else:
            told = trial.values[place] if len(trial.values or ()) == len(names) else None
        if told is None:
            return None
        found.append(told)
    return found


def _closed_trial(
    trial: optuna.trial.FrozenTrial,
    best: Claim | None,
    values: list[float] | None,
    curve: Sequence[ClosedValue],
) -> optuna.trial.FrozenTrial:
    """Return a trial with its closed values; without any it is pruned or failed, as it was."""
    known = {"state": trial.state.name, "display": trial.values}
    if best is not None:
        known |= {
            "low": best.low,
            "high": best.high,
            "run": best.run,
            "evaluation": best.evaluation,
            "step": best.step,
            "weights": best.weights,
            "apart": best.apart,
        }
    pruned = trial.state == _STATES.PRUNED or best is not None
    state = _STATES.PRUNED if pruned else _STATES.FAIL
    start = trial.datetime_start or datetime.now()
    return optuna.trial.FrozenTrial(
        number=trial.number,
        trial_id=-1,  # given by the storage
        state=state if values is None else _STATES.COMPLETE,
        value=None,
        values=values,
        datetime_start=start,
        datetime_complete=trial.datetime_complete or start,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs=trial.user_attrs | {f"{_ATTRIBUTE}{key}": each for key, each in known.items()},
        system_attrs={},
        intermediate_values=dict(_steps(curve)),
    )


def _steps(curve: Sequence[ClosedValue]) -> Iterator[tuple[int, float]]:
    """Number the evaluations by the steps that the trial told, each later than the one before."""
    last = -1
    for value in curve:
        told = _NUMBER.search(value.step or "")
        last = max(int(told[0]) if told else value.evaluation - 1, last + 1)
        yield last, value.value


def _pointers(trial: optuna.trial.FrozenTrial, name: str, account: str) -> Iterator[Pointer]:
    for key, mark in trial.user_attrs.items():
        prefix, _, position = key.rpartition(":")
        ours = prefix == f"{_ATTRIBUTE}{name}" and isinstance(mark, dict)
        # A retried trial inherits the attributes of the failed one, which is not it; and a study
        # may have been begun on another account, whose positions mean other queries.
        if ours and (mark.get("trial"), mark.get("account")) == (trial.number, account):
            yield Pointer(str(trial.number), int(mark["step"]), int(position), account, name)
