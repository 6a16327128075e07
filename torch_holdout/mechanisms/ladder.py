"""The Ladder (Blum and Hardt 2015), with a fixed step, with and without noise."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from torch_holdout._shared.checks import require_instance, require_number, require_text
from torch_holdout.mechanisms.base import Decision, Guess, Query, Release
from torch_holdout.mechanisms.families import ComparesInRounds
from torch_holdout.mechanisms.rounds import sparse_decision, to_levels


@final
@dataclass(frozen=True, kw_only=True)
class Ladder(ComparesInRounds):
    r"""Publish a value only when it beats the best published one by more than a step.

    With the holdout's mean :math:`h` and the best published value :math:`g` (better is lower; for
    ``mode="max"`` all signs turn): if :math:`g - h + \mathrm{Lap}(4\sigma) > \eta +
    \mathrm{Lap}(2\sigma)`, publish the better of :math:`g` and :math:`h + \mathrm{Lap}(\sigma)`;
    else :math:`g` again. The first query is released, or with a ``baseline`` compared with that:
    then a useless first model learns "not better" and no value. After the best model has been seen
    nothing more is spent.

    Guarantee:
        Published values never get worse, so b of them can form only :math:`\binom{G+b-1}{b}`
        sequences on a grid of G points (:math:`\binom{G}{b}` without noise and with a step of a
        grid step or more): the counting certificate is narrower than Thresholdout's. With noise,
        replacing one holdout example changes the law of a round and its answer by at most
        :math:`e^{2/(u\sigma)}`, as for Thresholdout. A returned best says only that the new value
        is not much better than it; it may be far worse.

    Args:
        step: eta, normalised: how much better a value must be.
        sigma: Scale of the answer noise, normalised; 0 for none: no privacy, counting only.
        baseline: Public first values to beat, by statistic name, in the user's units; a statistic
            without one has its first query released.

    Example:
        >>> Ladder(step=0.01).epsilon_per_step(units=500)
        inf
        >>> Ladder(step=0.01, sigma=0.002).epsilon_per_step(units=500)
        1.0
        >>> Ladder(step=0.01, baseline={"val_acc": 0.55}).baseline
        {'val_acc': 0.55}
    """

    kind: ClassVar[str] = "ladder"
    guess_rule: ClassVar[str | None] = "improvement"
    fixes_statistics: ClassVar[bool] = True  # the certificate counts sequences of all of them

    step: float
    sigma: float = 0.0
    baseline: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        self._check_distance("step")
        if self.baseline is None:
            return
        require_instance("baseline", self.baseline, Mapping)
        for name, value in self.baseline.items():
            require_text("baseline", name)
            require_number(f"baseline[{name!r}]", value)
        known = {name: float(value) for name, value in sorted(self.baseline.items())}
        object.__setattr__(self, "baseline", known or None)

    def __hash__(self) -> int:
        return hash((self.step, self.sigma, tuple((self.baseline or {}).items())))

    def __repr__(self) -> str:
        beaten = "" if self.baseline is None else f", baseline={self.baseline}"
        return f"Ladder(step={self.step}, sigma={self.sigma}{beaten})"

    def identity(self) -> dict[str, Any]:
        """Return kind and parameters; without a baseline as ledgers had it before there was one."""
        beaten = {} if self.baseline is None else {"baseline": dict(self.baseline)}
        return {"kind": self.kind, "step": self.step, "sigma": self.sigma} | beaten

    def allows_fresh(self) -> bool:
        """Whether a query may be asked again: no, a worse value could not be published."""
        return False

    def guess_for(self, statistic: str, last: Release | None, given: Guess) -> Guess:
        """Return the best release, which is the last, or the baseline: values never get worse."""
        return given if last is None else last.value

    def guess_distance(self) -> float:
        """Return the step."""
        return self.step

    def decide(self, query: Query) -> Decision:
        """Compare with the best, and publish an improvement."""
        if query.guess is None:
            return sparse_decision(query, None, self.step, self.sigma * query.levels)
        sign = 1 if query.mode == "min" else -1
        gap = sign * (to_levels(query.guess, query.levels) - query.total)
        decision = sparse_decision(query, gap, self.step, self.sigma * query.levels)
        if decision.index is None:
            return decision
        # A release lies on the grid; of a baseline, the first grid point that is no worse.
        best = query.guess * query.grid
        better = min(math.floor(best), decision.index)
        if sign == -1:
            better = max(math.ceil(best), decision.index)
        return replace(decision, index=better)
