"""One pass of a sealed run, inside the ledger's transaction: raw sums in, a decision out."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, final

from torch_holdout.holdout.registration import Registration
from torch_holdout.holdout.run_checks import ended_run, unknown_weights
from torch_holdout.holdout.run_results import Evaluation, outcome_of
from torch_holdout.ledger.chains import canonical
from torch_holdout.ledger.sealed_runs import Event, SealedRuns, State, StoredRun, Sums
from torch_holdout.mechanisms.patience import Reference, judged
from torch_holdout.mechanisms.sealed import Sealed

_EVENTS: dict[str, str] = {"stopped": "stop", "ended": "end", "given_up": "give_up"}


class Passed(NamedTuple):
    """What a pass says, whether it was one again, and, secret, whether it is the run's best."""

    evaluation: Evaluation
    better: bool
    again: bool = False

    def __repr__(self) -> str:
        return "<sealed pass>"


@final
@dataclass(frozen=True, repr=False)
class OpenedRun:
    """A run, and the account's runs, inside an open and exclusive transaction."""

    runs: SealedRuns
    run: StoredRun
    registration: Registration
    mechanism: Sealed
    seeded: bool

    def take(
        self, sums: Mapping[str, Sums], query: str, step: str | None, *, replays: bool
    ) -> Passed:
        """Record one evaluation, and decide whether the run stops.

        ``replays``: whether weights that were evaluated before are passes of a resumed run, come
        to again, although no step tells.
        """
        run = self.run
        own = run.statistic in sums
        seen = self.runs.evaluations_of(run.run, query)
        known = {name for event in seen for name in event.content["sums"]}
        new = {name: each for name, each in sums.items() if name not in known}
        again = [e for e in seen if e.step == step and (e.passes or not own)]
        if again and not new and (step is not None or replays or not own):
            return self._again(again[-1])
        if run.state != "open":
            raise ended_run(outcome_of(run, self.mechanism, ""))
        number = seen[0].evaluation if seen else None
        return self._new(sums, new, number or run.evaluations + 1, query, step)

    def recall(self, sums: Mapping[str, Sums], query: str) -> Passed:
        """Say again what was said of weights that this run has evaluated; record nothing."""
        seen = self.runs.evaluations_of(self.run.run, query)
        known = {name for event in seen for name in event.content["sums"]}
        if not set(sums) <= known:
            raise unknown_weights()
        return self._again(seen[-1])

    def end(self) -> None:
        """End the run; with a patience, hand over its best evaluation."""
        reference = _reference(self.runs.secret(self.run.run))
        shown = reference is not None and self.run.patience is not None
        self._finish("ended", reference.evaluation if reference and shown else None)

    def give_up(self) -> None:
        """Give the run up; free while it could not have stopped, and its sums are erased then."""
        self._finish("given_up", None)
        if is_free(self.run):
            self.runs.erase_sums(self.run.run)
            self.runs.update(self.run.run, share=None)

    def _new(
        self,
        sums: Mapping[str, Sums],
        new: Mapping[str, Sums],
        number: int,
        query: str,
        step: str | None,
    ) -> Passed:
        run, runs = self.run, self.runs
        own = run.statistic in sums
        passes = run.passes + own
        others = math.fsum(r.said(self.mechanism) for r in runs.all() if r.run != run.run)
        detail = canonical({"sums": sorted(new), "pass": passes if own else None})
        runs.keep_sums(run.run, number, new)
        runs.add(Event(run.run, "evaluate", number, query, step, others, detail, self.seeded))
        runs.update(run.run, evaluations=max(number, run.evaluations), passes=passes)
        if not own:
            return Passed(Evaluation(number, passes, False), False)
        return self._judged(sums[run.statistic].total, number, passes)

    def _judged(self, total: int, number: int, passes: int) -> Passed:
        run, kept = self.run, self.runs.secret(self.run.run)
        judgement = judged(
            _reference(kept),
            total,
            evaluation=number,
            passes=passes,
            mode=self.registration.statistic(run.statistic).mode,
            margin=self._margin(),
            patience=run.patience,
        )
        reference = judgement.reference
        state = {} if reference is None else asdict(reference)
        self.runs.keep_secret(run.run, state, first=kept is None)
        if judgement.stops and reference is not None:
            replace(self, run=replace(run, passes=passes))._finish("stopped", reference.evaluation)
        return Passed(Evaluation(number, passes, judgement.stops), judgement.better)

    def _margin(self) -> Fraction:
        """Return the least improvement, in levels of the sum."""
        if self.run.patience is None:
            return Fraction(0)
        name, registration = self.run.statistic, self.registration
        statistic = registration.statistic(name)
        width = Fraction(statistic.high) - Fraction(statistic.low)
        largest = registration.units(name) * registration.levels
        return Fraction(self.run.patience.min_delta) / width * largest

    def _again(self, event: Event) -> Passed:
        """Say again what was said of a pass."""
        run = self.run
        passes = event.passes or run.passes
        number = event.evaluation or 0
        reference = _reference(self.runs.secret(run.run))
        best = run.best == number if reference is None else reference.passes == passes
        stops = run.state == "stopped" and passes == run.passes
        return Passed(Evaluation(number, passes, stops), best, again=True)

    def _finish(self, state: State, best: int | None) -> None:
        run, runs = self.run, self.runs
        price = self.mechanism.price(
            state=state, passes=run.passes, patience=run.patience, best=best
        )
        detail = canonical({"pass": run.passes})
        runs.add(
            Event(run.run, _EVENTS[state], best, nats=price, detail=detail, seeded=self.seeded)
        )
        runs.update(run.run, state=state, best=best)
        runs.erase_secret(run.run)


def is_free(run: StoredRun) -> bool:
    """Whether a run has said nothing yet, not even by its silence."""
    return run.patience is None or run.passes < run.patience.earliest_stop


def _reference(kept: Mapping[str, Any] | None) -> Reference | None:
    return Reference(**kept) if kept else None
