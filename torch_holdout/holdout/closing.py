"""Closing: every curve becomes public, with an interval for each evaluation."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import final

import torch
from torch import nn

from torch_holdout._shared.checks import require_instance, shown
from torch_holdout._shared.text import confidence_text, counted, floor
from torch_holdout.bounds.certificate import ASSUMPTIONS
from torch_holdout.bounds.challenges import KEEP_FAILURE
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.holdout.challenge_results import Challenge
from torch_holdout.holdout.run_results import Outcome


@final
@dataclass(frozen=True, kw_only=True)
class ClosedValue:
    """One evaluation's value, and where the population's lies, in the statistic's own units.

    Attributes:
        run: The run's number; 0 for a live answer.
        evaluation: Its number in the run; for a live answer, its position in the account.
        statistic: Of which statistic.
        value: The mean over the holdout, exactly; for a live answer without one, as published.
        low: The lower end of the interval.
        high: Its upper end.
        exact: Whether the value is the holdout's own.
        step: The step of the training loop, if the run told it.
        parts: Of a ratio, its numerator and its denominator; their intervals hold at once with its
            own.
    """

    run: int
    evaluation: int
    statistic: str
    value: float
    low: float
    high: float
    exact: bool = True
    step: str | None = None
    parts: tuple["ClosedValue", ...] = field(default=(), repr=False)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@final
@dataclass(frozen=True, kw_only=True)
class ClosedRun:
    """One run of a closed holdout.

    Attributes:
        number: Its number in the account, from 1.
        name: What it was called.
        outcome: How it ended; None if it never did.
        evaluations: How many different weights were evaluated.
        statistic: Which statistic decided what is best in it.
        weights: The file of its best weights, if it was written.
        id: Its public id.
    """

    number: int
    name: str | None
    outcome: Outcome | None
    evaluations: int
    statistic: str
    weights: str | None
    id: str = field(repr=False)


@final
@dataclass(frozen=True, kw_only=True)
class Closing:
    """A closed holdout: its runs, and a value with an interval for every evaluation.

    With probability ``1 - failure`` all intervals contain their population values at once, however
    the runs were made. ``str(closing)`` is the summary for people.

    Attributes:
        name: The holdout.
        size: Its number of examples.
        failure: The probability that an interval is wrong.
        exact: Whether the values were published; a private account erases them.
        closed_at: When it was closed.
        runs: Its sealed runs.
        values: All values, by run, evaluation and statistic.
        modes: Which direction is better, by statistic.
        challenges: Who was kept in place of whom, as it was said then.
        assumptions: What must be true.
        seeded: Whether noise came from a test seed.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=400, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=10), budget=1)
        >>> with holdout.run() as run:
        ...     sums = holdout.accumulator("val_acc")
        ...     sums.update(torch.arange(400) < 300)
        ...     _ = run.evaluate({"val_acc": sums}, query="weights of epoch 1")
        >>> closing = holdout.close()
        >>> isinstance(closing, Closing), closing.best.value
        (True, 0.75)
        >>> round(closing.best.low, 2), round(closing.best.high, 2)
        (0.69, 0.81)
    """

    name: str
    size: int
    failure: float
    exact: bool
    closed_at: str
    runs: tuple[ClosedRun, ...]
    values: tuple[ClosedValue, ...] = field(repr=False)
    modes: dict[str, str] = field(repr=False)
    challenges: tuple[Challenge, ...] = field(default=(), repr=False)
    assumptions: tuple[str, ...] = field(default=ASSUMPTIONS, repr=False)
    seeded: bool = False

    @property
    def best(self) -> ClosedValue | None:
        """The best evaluation of all runs, by the statistic that decided; None without values."""
        return self.best_of()

    def best_of(self, statistic: str | None = None, run: int | None = None) -> ClosedValue | None:
        """Return the best evaluation by a statistic, in one run or in all; the first of equals."""
        chosen = self.curve(statistic, run)
        if not chosen:
            return None
        sign = 1 if self.modes[chosen[0].statistic] == "min" else -1
        return min(chosen, key=lambda value: sign * value.value)

    def curve(self, statistic: str | None = None, run: int | None = None) -> list[ClosedValue]:
        """Return the values of a statistic in order, of one run or of all."""
        statistic = self._decides() if statistic is None else statistic
        if not isinstance(statistic, str) or statistic not in self.modes:
            raise InvalidArgumentError(
                f"Expected one of the statistics {list(self.modes)}, but got {shown(statistic)}."
            )
        chosen = self.values if run is None else self._of_run(run)
        return [value for value in chosen if value.statistic == statistic]

    def not_told_apart(self, statistic: str | None = None) -> list[ClosedValue]:
        """Return each run's best evaluation whose interval meets the winner's, the winner first.

        Which of them is best in the population cannot be told from this holdout.
        """
        winner = self.best_of(statistic)
        if winner is None:
            return []
        numbers = sorted({value.run for value in self.values})
        others = (self.best_of(statistic, number) for number in numbers if number != winner.run)
        return [winner, *(o for o in others if o and o.low <= winner.high and winner.low <= o.high)]

    @property
    def best_with_weights(self) -> ClosedValue | None:
        """The best among the runs' best evaluations whose weights were kept."""
        kept = [run.number for run in self.runs if run.weights is not None]
        found = [v for number in kept if (v := self._handed_over(number)) is not None]
        if not found:
            return None
        sign = 1 if self.modes[found[0].statistic] == "min" else -1
        return min(found, key=lambda value: sign * value.value)

    def load_best(self, model: nn.Module, run: int | None = None) -> ClosedValue:
        """Load the best weights that were kept, of one run or of all, into a model."""
        require_instance("model", model, nn.Module)
        if not self.values and any(kept.weights for kept in self.runs):
            raise HoldoutError(
                "Expected published values, which say whose weights are best, but the noise of "
                "this holdout protects its examples. Load the file of a run: closing.runs has it "
                "as `weights`, and what the run has said as `outcome`."
            )
        best = self.best_with_weights if run is None else self._handed_over(run)
        path = next((r.weights for r in self.runs if best and r.number == best.run), None)
        if best is None or path is None or not Path(path).exists():
            raise HoldoutError(
                f"Expected weights that were kept for {'any run' if run is None else f'run {run}'}"
                f", but there are none: the run was killed, its file was moved ({path}), or it was "
                f"made without a guard that keeps them."
            )
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return best

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"holdout {self.name!r}, closed: {counted(self.size, 'example')}, "
            f"{counted(len(self.runs), 'run')}, {counted(len(self.values), 'value')}"
        )
        if not self.exact:
            kept = "no exact value was published, and no sums are kept"
            yield f"  its noise protects the examples: {kept}"
        winner = self.best
        if winner is not None:
            yield f"  best: {_place(winner)}, {winner.statistic} {_interval(winner)}"
            if winner.parts:
                yield "    the quotient of " + " and ".join(
                    f"{part.statistic} {_interval(part)}" for part in winner.parts
                )
            for other in self.not_told_apart()[1:]:
                yield f"  not told apart: {_place(other)}, {_interval(other)}"
            many = f"all {len(self.values):,} intervals hold at once"
            hold = many if len(self.values) > 1 else "the interval holds"
            yield f"  with {confidence_text(self.failure)} confidence {hold}"
        if self.challenges:
            yield f"  {_keeps(self.challenges)}"
        for run in self.runs:
            yield f"  run {run.number}{f' ({run.name})' if run.name else ''}: {_ending(run)}"

    def _of_run(self, run: int) -> Sequence[ClosedValue]:
        """Return the values of one run; there may be thousands of runs."""
        return self._by_run.get(run, ()) if isinstance(run, int) else ()

    @cached_property
    def _by_run(self) -> dict[int, list[ClosedValue]]:
        found: dict[int, list[ClosedValue]] = {}
        for value in self.values:
            found.setdefault(value.run, []).append(value)
        return found

    def _decides(self) -> str:
        names = [run.statistic for run in self.runs]
        return names[0] if names else next(iter(self.modes))

    def _handed_over(self, number: int) -> ClosedValue | None:
        """Return the evaluation whose weights a run has kept: its best one."""
        run = next((run for run in self.runs if run.number == number), None)
        if run is None:
            return None
        said = None if run.outcome is None else run.outcome.best_evaluation
        if said is None:
            return self.best_of(run.statistic, number)
        curve = self.curve(run.statistic, number)
        return next((v for v in curve if v.evaluation == said), None)


def _keeps(challenges: Sequence[Challenge]) -> str:
    tested = [challenge for challenge in challenges if challenge.kept is not None]
    kept = sum(bool(challenge.kept) for challenge in tested)
    certified = [challenge for challenge in tested if challenge.rule == "certified"]
    made = f"{kept} of {counted(len(tested), 'challenge')} kept"
    if not certified:
        return f"{made}; no single keep is certified"
    confidence = confidence_text(KEEP_FAILURE)
    which = "" if len(certified) == len(tested) else " of the certified ones"
    return f"{made}; separately, with {confidence} confidence none{which} was kept falsely"


def _place(value: ClosedValue) -> str:
    return (
        f"run {value.run}, evaluation {value.evaluation}"
        if value.run
        else f"query {value.evaluation}"
    )


def _interval(value: ClosedValue) -> str:
    digits = max(3, 2 - math.floor(math.log10(max(value.high - value.low, 1e-12))))
    low, high = floor(value.low, digits), -floor(-value.high, digits)
    return f"{value.value:.{digits}f} in [{low:.{digits}f}, {high:.{digits}f}]"


def _ending(run: ClosedRun) -> str:
    made = counted(run.evaluations, "evaluation")
    if run.outcome is None:
        return f"{made}, never ended"
    if run.outcome.stopped_at is not None:
        best = run.outcome.best_evaluation
        return f"{made}, stopped by patience at pass {run.outcome.stopped_at}, best {best}"
    return f"{made}, {run.outcome.reason}"
