"""One pass of a sealed run, inside the ledger's transaction: raw sums in, a decision out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

from torch_holdout._noise.streams import NoiseSource
from torch_holdout.holdout.judging import Judge
from torch_holdout.holdout.registration import Registration
from torch_holdout.holdout.run_checks import ended_run, unknown_weights
from torch_holdout.holdout.run_results import Evaluation, outcome_of
from torch_holdout.ledger.chains import canonical
from torch_holdout.ledger.run_events import Event, State, StoredRun, Sums
from torch_holdout.ledger.sealed_runs import SealedRuns
from torch_holdout.mechanisms.sealed import Sealed

_EVENTS: dict[str, str] = {"stopped": "stop", "ended": "end", "given_up": "give_up"}


class Passed(NamedTuple):
    """What a pass says, and, secret, whether it is the run's best.

    Attributes:
        evaluation: What it says.
        better: Whether it is the best of the run. Secret.
        again: Whether the pass was made before, and is only told again.
        unread: Whether values came that are not read, because the query has had some of the same
            statistic before.
    """

    evaluation: Evaluation
    better: bool
    again: bool = False
    unread: bool = False

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
    noise: NoiseSource

    def take(
        self,
        sums: Mapping[str, Sums],
        query: str,
        step: str | None,
        *,
        replays: bool,
        by_weights: bool = False,
    ) -> Passed:
        """Record one evaluation, and decide whether the run stops.

        Args:
            sums: By statistic.
            query: Its key.
            step: Which step of the training loop it is.
            replays: Whether weights that were evaluated before are passes of a resumed run, come to
                again, although no step tells.
            by_weights: Whether the weights' own fingerprint names the query.
        """
        run = self.run
        own = run.statistic in sums
        seen = self.runs.evaluations_of(run.run, query)
        known = {name for event in seen for name in event.content["sums"]}
        new = {name: each for name, each in sums.items() if name not in known}
        again = [e for e in seen if e.step == step and (e.passes or not own)]
        if again and not new and (step is not None or replays or not own):
            return self._again(again[-1])
        # Another statistic of weights that were evaluated in time may come late: asking for it
        # was possible, whatever the run said. A free text may name values chosen after the stop,
        # which do not pay for it.
        late = bool(seen) and not own and run.share is not None
        late = late and (by_weights or run.ended_silently)
        if run.state != "open" and not late:
            raise ended_run(outcome_of(run, self.mechanism, ""), by_text=not own and not by_weights)
        number = seen[0].evaluation if seen else None
        return self._new(sums, new, number or run.evaluations + 1, query, step)

    def recall(self, sums: Mapping[str, Sums], query: str) -> Passed:
        """Repeat what was said about weights that this run has evaluated; record nothing."""
        seen = self.runs.evaluations_of(self.run.run, query)
        known = {name for event in seen for name in event.content["sums"]}
        if not set(sums) <= known:
            raise unknown_weights()
        return self._again(seen[-1])

    def end(self) -> None:
        """End the run; with a patience, hand over its best evaluation."""
        kept = self.runs.secret(self.run.run) or {}
        self._finish("ended", kept if self.run.patience is not None else {})

    @property
    def is_free(self) -> bool:
        """Whether the run has said nothing yet, nor has anything else since its first evaluation.

        Only then may another run take its share: a share whose evaluations come again after
        something was said would be used twice on one path of what is published.
        """
        run = self.run
        silent = run.patience is None or run.passes < run.patience.earliest_stop
        return silent and self.runs.said_at_first(run.run) in (None, self._said_by_others())

    def give_up(self) -> None:
        """Give the run up; if that is free, its share comes back and its sums are erased."""
        free = self.is_free
        self._finish("given_up", {})
        if free:
            self.runs.erase_sums(self.run.run)
            self.runs.update(self.run.run, share=None)

    def give_up_if_free(self) -> None:
        """Give an open run up if that is free; otherwise leave it as it is."""
        if self.run.state == "open" and self.is_free:
            self.give_up()

    def undo_if_free(self) -> None:
        """Give the run up if that is free, also if nothing stops it and it ended without a word.

        For a trial that is tried again, or fails after its run has ended.
        """
        if (self.run.state == "open" or self.run.ended_silently) and self.is_free:
            self.give_up()

    def _said_by_others(self) -> float:
        return self.runs.said_by_others(self.run.run, self.mechanism)

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
        others = self._said_by_others()
        detail = canonical({"sums": sorted(new), "pass": passes if own else None})
        seeded = self.noise.seeded
        runs.keep_sums(run.run, number, new)
        runs.add(Event(run.run, "evaluate", number, query, step, others, detail, seeded))
        runs.update(run.run, evaluations=max(number, run.evaluations), passes=passes)
        unread = len(new) < len(sums)
        if not own:
            said = Evaluation(number, passes, run.state == "stopped")
            return Passed(said, False, unread=unread)
        return self._judged(number, known=run.statistic not in new)._replace(unread=unread)

    def _judged(self, number: int, *, known: bool) -> Passed:
        run, runs = self.run, self.runs
        kept = runs.secret(run.run)
        if self.mechanism.epsilon is None:
            totals = [runs.sums(run.run, number)[run.statistic].total]
        else:
            totals = runs.totals(run.run, run.statistic)
        passes = run.passes + 1
        stream = self.noise.stream(self.registration.name, "run", run.run, passes)
        judge = Judge(run, self.registration, self.mechanism.epsilon)
        verdict = judge.verdict(kept, totals, evaluation=number, known=known, stream=stream)
        runs.keep_secret(run.run, verdict.secret, first=kept is None)
        if verdict.stops:
            stopped = replace(self, run=replace(run, passes=passes))
            stopped._finish("stopped", verdict.secret)
        return Passed(Evaluation(number, passes, verdict.stops), verdict.better)

    def _again(self, event: Event) -> Passed:
        """Repeat what was said about a pass."""
        run = self.run
        passes = event.passes or run.passes
        number = event.evaluation or 0
        kept = self.runs.secret(run.run)
        best = run.best == number if kept is None else kept.get("passes") == passes
        stops = run.state == "stopped" and passes == run.passes
        return Passed(Evaluation(number, passes, stops), best, again=True)

    def _finish(self, state: State, kept: Mapping[str, Any]) -> None:
        """End the run; what it has ``kept`` names its best pass, if that is handed over.

        After noise was drawn nothing in here may fail: an error would tell the decision.
        """
        run, runs = self.run, self.runs
        best, best_pass = kept.get("evaluation"), kept.get("passes")
        price = self.mechanism.price(
            state=state, passes=run.passes, patience=run.patience, best=best_pass
        )
        detail, seeded = canonical({"pass": run.passes, "best_pass": best_pass}), self.noise.seeded
        runs.add(Event(run.run, _EVENTS[state], best, nats=price, detail=detail, seeded=seeded))
        runs.update(run.run, state=state, best=best, best_pass=best_pass)
        runs.erase_secret(run.run)
