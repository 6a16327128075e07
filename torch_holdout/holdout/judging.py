"""The verdict on one pass of a sealed run: is it the best so far, does the run stop. Raw."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NamedTuple, final

from torch_holdout._noise.streams import NoiseStream
from torch_holdout.holdout.registration import Registration
from torch_holdout.ledger.run_events import StoredRun
from torch_holdout.mechanisms.patience import Reference, judged
from torch_holdout.mechanisms.private_patience import PrivatePatience

Secret = dict[str, Any]  # what an open run keeps; "evaluation" and "passes" are of its best pass


class Verdict(NamedTuple):
    """What the run keeps from now on, whether this pass is its best, and whether it stops. Raw."""

    secret: Secret
    better: bool
    stops: bool

    def __repr__(self) -> str:
        return "<sealed verdict>"


@final
@dataclass(frozen=True, repr=False)
class Judge:
    """The rule of one run, exact or with noise."""

    run: StoredRun
    registration: Registration
    epsilon: float | None

    def verdict(
        self,
        kept: Mapping[str, Any] | None,
        totals: Sequence[int],
        *,
        evaluation: int,
        known: bool,
        stream: NoiseStream,
    ) -> Verdict:
        """Judge the last of the passes of a run.

        Args:
            kept: What the run has kept.
            totals: The sums of its passes, this one the last; only this one without noise.
            evaluation: The number of the evaluation it belongs to.
            known: Whether its weights were evaluated in an earlier pass.
            stream: This pass's noise.
        """
        passes = self.run.passes + 1
        if self.epsilon is not None:
            return self._private(kept or {}, totals, evaluation, known, stream)
        judgement = judged(
            Reference(**kept) if kept else None,
            totals[-1],
            evaluation=evaluation,
            passes=passes,
            mode=self._mode,
            margin=self._margin,
            patience=self.run.patience,
        )
        reference = judgement.reference
        secret = {} if reference is None else asdict(reference)
        return Verdict(secret, judgement.better, judgement.stops)

    def _private(
        self,
        kept: Mapping[str, Any],
        totals: Sequence[int],
        evaluation: int,
        known: bool,
        stream: NoiseStream,
    ) -> Verdict:
        """Judge with noise: the threshold is drawn with the first comparison, once for the run."""
        patience, passes = self.run.patience, self.run.passes + 1
        after = patience.after if patience else 0
        secret, better = dict(kept), False
        if passes <= after:
            return Verdict(secret, False, False)
        rule = PrivatePatience(
            epsilon=self.epsilon or 0.0,
            resolution=self.registration.levels,
            patience=patience.patience if patience else len(totals) + 1,
            mode=self._mode,
            min_delta=math.floor(self._margin),
        )
        if not (known and "noisy" in secret):
            before = (secret["noisy"], secret["evaluation"]) if "noisy" in secret else None
            noisy, best = rule.choice.keep(totals[-1], evaluation, before, stream)
            better = best == evaluation
            where = passes if better else secret["passes"]
            secret |= {"noisy": noisy, "evaluation": best, "passes": where}
        counted = totals[after:]
        if rule.compares(len(counted)) and "threshold" not in secret:
            secret["threshold"] = rule.draw_threshold(stream)
        return Verdict(secret, better, rule.stops(counted, secret.get("threshold"), stream))

    @property
    def _mode(self) -> str:
        return self.registration.statistic(self.run.statistic).mode

    @property
    def _margin(self) -> Fraction:
        """The least improvement, in levels of the sum."""
        if self.run.patience is None:
            return Fraction(0)
        name, registration = self.run.statistic, self.registration
        statistic = registration.statistic(name)
        width = Fraction(statistic.high) - Fraction(statistic.low)
        largest = registration.units(name) * registration.levels
        return Fraction(self.run.patience.min_delta) / width * largest
