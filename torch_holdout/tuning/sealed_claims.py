"""What a closed holdout says about a sweep: the ranking of its trials, and the Pareto front."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from torch_holdout.errors import HoldoutError
from torch_holdout.holdout.closing import ClosedRun, ClosedValue, Closing
from torch_holdout.holdout.door import ReusableHoldout
from torch_holdout.tuning.claims import Claim
from torch_holdout.tuning.trial_runs import is_closed

Runs = Mapping[str, Sequence[str]]  # the ids of each trial's runs
Places = Mapping[tuple[str, int], str]  # where weights are, by a run's id and its evaluation


@final
@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """A model that no other of the sweep beats in every objective.

    Attributes:
        trial: Which trial.
        step: After which step of it.
        evaluation: The number of the evaluation in its run.
        values: One value for each objective.
        claims: By sealed statistic, the value with its interval.

    Example:
        >>> point = FrontPoint(trial="3", step="epoch 7", evaluation=8, values=(0.9, 120.0))
        >>> point.values
        (0.9, 120.0)
    """

    trial: str
    step: str | None
    evaluation: int
    values: tuple[float, ...]
    claims: Mapping[str, Claim] = field(default_factory=dict, repr=False)


def closing_of_sweep(holdout: ReusableHoldout, failure: float = 0.05) -> Closing:
    """Return what closing has published; raise while the holdout is open, which stays so."""
    if not is_closed(holdout):
        raise HoldoutError(
            f"Expected a closed holdout, because {holdout.name!r} is sealed: it shows no value, "
            f"and no winner, before it is closed. Call holdout.close() when the sweep is over; "
            f"nothing can be evaluated afterwards. Nothing was closed."
        )
    closing = holdout.close(failure=failure)
    if not closing.exact:
        raise HoldoutError(
            f"Expected published values, but noise protects the examples of {holdout.name!r}, and "
            f"closing has erased its sums: no trial can be ranked. holdout.close() shows what its "
            f"runs have said."
        )
    return closing


def no_evaluation(statistic: str) -> HoldoutError:
    """Return the error for a sweep of which the closed holdout knows nothing."""
    return HoldoutError(
        f"Expected an evaluation of {statistic!r} by one of the trials on this account, but there "
        f"is none, so nothing can be claimed. Pass the study, or the results, of the trials that "
        f"ran with sharing(...): a study in memory is gone with its process, unless it has "
        f"storage=. holdout.close() shows the best of all runs, whoever made them."
    )


@final
class ClosedSweep:
    """The trials of a sweep on a closed holdout.

    All intervals hold at once with probability ``1 - failure``, for the trial that was picked too.

    Args:
        closing: The closed holdout.
        runs: By trial, the ids of its runs.
        account: The account's public mark.
        places: Where the weights of evaluations are, beside the files that guards have written.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=3)
        >>> runs = {}
        >>> for trial in ("0", "1"):
        ...     with holdout.run() as run:
        ...         sums = holdout.accumulator("val_acc")
        ...         sums.update(torch.tensor([True, True, trial == "1", False]))
        ...         _ = run.evaluate({"val_acc": sums}, query=trial, step="epoch 9")
        ...     runs[trial] = [run.id]
        >>> sweep = ClosedSweep(holdout.close(), runs)
        >>> [(claim.trial, claim.value, claim.apart) for claim in sweep.ranking("val_acc")]
        [('1', 0.75, False), ('0', 0.5, False)]
    """

    def __init__(
        self, closing: Closing, runs: Runs, *, account: str = "", places: Places | None = None
    ) -> None:
        self._closing = closing
        self._account = account
        self._places = places or {}
        self._run = {run.number: run for run in closing.runs}
        owner = {mark: trial for trial, marks in runs.items() for mark in marks}
        self._trial = {run.number: owner[run.id] for run in closing.runs if run.id in owner}
        self._values: dict[tuple[int, str], list[ClosedValue]] = {}
        for value in closing.values:
            self._values.setdefault((value.run, value.statistic), []).append(value)

    def curves(self, statistic: str) -> dict[str, list[ClosedValue]]:
        """Return each trial's evaluations of a statistic, run by run."""
        found: dict[str, list[ClosedValue]] = {}
        for number, trial in self._trial.items():
            found.setdefault(trial, []).extend(self._values.get((number, statistic), ()))
        return {trial: curve for trial, curve in found.items() if curve}

    def ranking(self, statistic: str) -> list[Claim]:
        """Return the best evaluation of each trial, the winner first.

        Which of the trials whose claim is not ``apart`` from the winner's is best in the population
        cannot be told from this holdout.
        """
        better = self._sign(statistic)
        best = [(trial, min(curve, key=better)) for trial, curve in self.curves(statistic).items()]
        best.sort(key=lambda item: better(item[1]))
        return [
            replace(
                self.claim(trial, value),
                apart=value.low > best[0][1].high or best[0][1].low > value.high,
            )
            for trial, value in best
        ]

    def claim(self, trial: str, value: ClosedValue) -> Claim:
        """Return the claim of one evaluation of a trial."""
        run = self._run[value.run]
        return Claim(
            trial=trial,
            step=value.step,
            statistic=value.statistic,
            value=value.value,
            low=value.low,
            high=value.high,
            failure=self._closing.failure,
            position=value.evaluation,
            account=self._account,
            weights=self._places.get((run.id, value.evaluation)) or self._file(run, value),
            evaluation=value.evaluation,
            run=run.id,
        )

    def beside(self, claim: Claim, statistic: str) -> ClosedValue | None:
        """Return the value of a statistic at the evaluation of a claim, if it was evaluated."""
        number = next(number for number, run in self._run.items() if run.id == claim.run)
        values = self._values.get((number, statistic), ())
        return next((v for v in values if v.evaluation == claim.evaluation), None)

    def front(
        self,
        statistics: Sequence[str | None],
        *,
        told: Mapping[str, Sequence[float]],
        maximised: Sequence[bool],
    ) -> list[FrontPoint]:
        """Return the evaluations that no other beats: as good in all objectives, better in one.

        Args:
            statistics: The sealed statistic of each objective; None for one that is not a statistic
                of the holdout (size, latency): its value is what the trial told.
            told: By trial, the values it told, one for each objective.
            maximised: Whether more is better, by objective.
        """
        names = [name for name in statistics if name is not None]
        found: dict[tuple[str, int, int], dict[str, ClosedValue]] = {}
        for name in names:
            for trial, curve in self.curves(name).items():
                for value in curve:
                    found.setdefault((trial, value.run, value.evaluation), {})[name] = value
        points: list[tuple[float, ...]] = []
        models: list[tuple[str, dict[str, ClosedValue]]] = []
        for (trial, _, _), own in found.items():
            said = told.get(trial, ())
            if len(own) < len(set(names)):
                continue  # not every objective is known
            if None not in statistics or len(said) == len(statistics):
                models.append((trial, own))
                points.append(
                    tuple(
                        said[place] if name is None else own[name].value
                        for place, name in enumerate(statistics)
                    )
                )
        return [
            self._point(*models[place], points[place]) for place in undominated(points, maximised)
        ]

    def _point(
        self, trial: str, own: Mapping[str, ClosedValue], values: tuple[float, ...]
    ) -> FrontPoint:
        first = next(iter(own.values()))
        return FrontPoint(
            trial=trial,
            step=first.step,
            evaluation=first.evaluation,
            values=values,
            claims={name: self.claim(trial, value) for name, value in own.items()},
        )

    def _file(self, run: ClosedRun, value: ClosedValue) -> str | None:
        """Return the file that a guard has written for a run, if it has these weights."""
        said = None if run.outcome is None else run.outcome.best_evaluation
        if said is None:
            curve = self._values.get((run.number, run.statistic), [])
            said = min(curve, key=self._sign(run.statistic)).evaluation if curve else None
        return run.weights if said == value.evaluation else None

    def _sign(self, statistic: str) -> Callable[[ClosedValue], float]:
        """Return a key by which the better value is smaller."""
        sign = 1 if self._closing.modes[statistic] == "min" else -1
        return lambda value: sign * value.value


def undominated(points: Sequence[Sequence[float]], maximised: Sequence[bool]) -> list[int]:
    """Return which points no other dominates, in order of the first objective; equals all stay.

    Example:
        >>> undominated([(0.9, 5.0), (0.8, 1.0), (0.7, 2.0), (0.9, 6.0)], [True, False])
        [0, 1]
    """
    losses = [
        tuple(-x if more else x for x, more in zip(point, maximised, strict=True))
        for point in points
    ]
    front: list[int] = []
    # Whatever dominates a point comes before it.
    for place in sorted(range(len(points)), key=lambda place: losses[place]):
        own = losses[place]
        if not any(losses[o] != own and _as_good(losses[o], own) for o in front):
            front.append(place)
    return front


def _as_good(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))
