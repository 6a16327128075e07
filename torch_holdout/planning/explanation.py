"""A plan in words: one sentence for each decision, what is not reached and what would help."""

import math
from dataclasses import dataclass
from typing import final

from torch_holdout._shared.text import LARGE_EPSILON, USELESS, WEAK, confidence_text, up
from torch_holdout.bounds.certificate import Certificate
from torch_holdout.bounds.single_query import hoeffding
from torch_holdout.planning.setting import Setting, needed_size

VAULT = 0.2  # of the size, suggested for one final number


@final
@dataclass(frozen=True)
class Draft:
    """A plan before it is put into words."""

    setting: Setting
    budget: int
    assumed: bool
    certificate: Certificate
    epsilon: float
    wanted: float | None
    delta: float | None

    @property
    def patience(self) -> int:
        """How many evaluations there are for each release, if they are spread evenly."""
        return max(3, math.ceil(self.setting.queries / self.setting.statistics / self.budget))

    def explanation(self) -> str:
        """Return a sentence for each decision, then what is not reached and what would help."""
        return "\n".join(self._sentences())

    def _sentences(self) -> list[str]:
        setting, claim = self.setting, self.certificate
        sure = confidence_text(self.certificate.failure)
        sentences = [
            self._mechanism(),
            self._budget(),
            f"Certificate: with {sure} confidence every released value is within "
            f"{up(claim.tolerance)} of the population's, however the budget is spent in these "
            f"queries ({claim.theorem}).",
            self._privacy(),
        ]
        if setting.purpose != "search":
            sentences.append(
                f"EarlyStopping: min_delta {setting.min_delta:.2g} (half a grid step) and patience "
                f"{self.patience} (evaluations for each release)."
            )
        return sentences + self._advice()

    def _mechanism(self) -> str:
        setting = self.setting
        noise = f"noise of scale {setting.sigma:.3g}, answers in steps of 1/{setting.grid}"
        if setting.purpose == "curve":
            return (
                f"Mechanism: Thresholdout; the last release is returned until the holdout is more "
                f"than {setting.threshold:.3g} away from it; {noise} (all normalised)."
            )
        return (
            f"Mechanism: Ladder; the best value is returned until one beats it by more than "
            f"{setting.threshold:.3g}; {noise} (all normalised)."
        )

    def _budget(self) -> str:
        queries = self.setting.queries
        shared = " All statistics share it." if self.setting.statistics > 1 else ""
        if self.assumed:
            shared += f" No budget was given: {self.budget} is the default."
        if self.budget >= queries:
            return f"Budget: {self.budget}; each of {queries} queries may be a release.{shared}"
        return (
            f"Budget: {self.budget} of {queries} queries may be answered from the holdout; the "
            f"others cost nothing.{shared}"
        )

    def _privacy(self) -> str:
        at = "pure" if self.delta is None else f"at delta {self.delta:g}"
        text = (
            f"Privacy: epsilon {up(self.epsilon)} for the whole budget, {at}, replacing one example"
        )
        if self.epsilon > LARGE_EPSILON:
            return f"{text}; that protects nobody's record: the certificate is what this buys."
        return f"{text}."

    def _advice(self) -> list[str]:
        vault = int(VAULT * self.setting.size)
        sentences = self._shortfall()
        if sentences:
            sentences += self._remedies(self.wanted or WEAK)
        if vault:
            sentences.append(
                f"For one final number keep a vault besides: {vault:,} more examples that nothing "
                f"reads until the end are within "
                f"{up(hoeffding(vault, self.certificate.failure))}, once."
            )
        return sentences

    def _shortfall(self) -> list[str]:
        tolerance = self.certificate.tolerance
        if self.wanted is not None:
            missed = tolerance > self.wanted
            return [f"The wanted tolerance of {self.wanted:g} is not reached."] if missed else []
        if tolerance > USELESS:
            return ["Nothing useful can be certified with these numbers."]
        return ["That is a weak certificate."] if tolerance > WEAK else []

    def _remedies(self, target: float) -> list[str]:
        setting, failure = self.setting, self.certificate.failure
        needed = needed_size(
            target, setting.queries, self.budget, failure, setting.purpose, setting.statistics
        )
        fits = setting.fitting(failure, target)
        return [
            f"It would take {needed:,} examples for {target:g}."
            if needed
            else f"No number of examples gives {target:g}.",
            f"These {setting.size:,} allow {fits} release{'' if fits == 1 else 's'} for that."
            if fits
            else "Not even one release of these examples is that close.",
        ]
