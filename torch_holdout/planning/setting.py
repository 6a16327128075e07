"""The solver: a mechanism fitted to a holdout, and what a budget of it certifies."""

import math
from dataclasses import dataclass, replace
from typing import Literal, final

from torch_holdout._shared.numeric_search import largest_whole, smallest_whole
from torch_holdout.accounting import PrivacyLoss, compose
from torch_holdout.bounds.brackets import worst_releases
from torch_holdout.bounds.certificate import (
    Certificate,
    Transcript,
    certify_transcript,
    sequences_of,
)
from torch_holdout.bounds.channels import Channel
from torch_holdout.mechanisms import Ladder, Mechanism, Thresholdout
from torch_holdout.mechanisms.base import DEFAULT_RESOLUTION

PlanPurpose = Literal["early-stopping", "curve", "search"]
PURPOSES = ("early-stopping", "curve", "search")
LARGEST_SIZE, LARGEST_QUERIES, LARGEST_BUDGET = 10**12, 10**9, 10**5


@final
@dataclass(frozen=True)
class Setting:
    """A mechanism fitted to a holdout's size, the number of queries and the purpose."""

    size: int
    queries: int
    purpose: PlanPurpose
    statistics: int = 1
    given: Mechanism | None = None
    intervals: int | None = None

    @property
    def error(self) -> float:
        """The worst-case standard error u of a mean of values in [0, 1]."""
        return 1 / (2 * math.sqrt(self.size))

    @property
    def threshold(self) -> float:
        """A Ladder's step of u/2 for epochs, u for independent trials; T = u for a curve."""
        return min(0.5, self.error / 2 if self.purpose == "early-stopping" else self.error)

    @property
    def sigma(self) -> float:
        """Comparison noise that rarely exceeds the threshold in m queries: T/(6 ln 2m).

        For a handful of queries it is that of twenty. Above that a plan for more queries takes less
        noise, and with few of them its certificate can be some per cent tighter for it.
        """
        return self.threshold / (6 * math.log(2 * max(self.queries, 20)))

    @property
    def mechanism(self) -> Mechanism:
        """The given mechanism, or the one that suits the purpose."""
        if self.given is not None:
            return self.given
        if self.purpose == "curve":
            return Thresholdout(threshold=self.threshold, sigma=self.sigma, guess="last")
        return Ladder(step=self.threshold, sigma=self.sigma)

    @property
    def grid(self) -> int:
        """Steps of u/2 or a little less."""
        return self.intervals or math.ceil(4 * math.sqrt(self.size))

    @property
    def min_delta(self) -> float:
        """Half a grid step: less than any published change, more than rounding."""
        return 0.5 / self.grid

    def certificate(self, budget: int, failure: float) -> Certificate:
        """Return what all releases are worth when the budget is spent in the worst way."""
        channel = self._channel()
        channels = {f"statistic {k + 1}": channel for k in range(self.statistics)}
        before = worst_releases(self.queries, budget, sequences_of(channels.values()))
        end = Transcript(
            queries=self.queries,
            releases=before + 1,
            last_release=self.queries,
            budget=budget,
            rounds=budget,
            planned=self.queries,
            loss=self._loss(budget),
        )
        released = certify_transcript(end, channels, failure)
        guessed = certify_transcript(replace(end, releases=before), channels, failure)
        return replace(
            released,
            releases=min(budget, self.queries),
            guess_tolerance=guessed.guess_tolerance,
            user_guess_tolerance=guessed.user_guess_tolerance,
        )

    def epsilon(self, budget: int, delta: float | None) -> float:
        """Return what a whole budget costs at delta, replacing one example."""
        return compose(self.mechanism.budget_charges({self.size}, budget), delta).epsilon

    def _loss(self, budget: int) -> PrivacyLoss | None:
        if not self.mechanism.is_private():
            return None
        return PrivacyLoss(tuple(self.mechanism.budget_charges({self.size}, budget)))

    def fitting(self, failure: float, tolerance: float) -> int:
        """Return the largest budget whose certificate is within a tolerance; 0 if none is."""

        def holds(budget: int) -> bool:
            return self.certificate(budget, failure).tolerance <= tolerance

        return largest_whole(holds, 1, min(self.queries, LARGEST_BUDGET)) or 0

    def _channel(self) -> Channel:
        return self.mechanism.channel(
            units=self.size, resolution=DEFAULT_RESOLUTION, grid=self.grid
        )


def needed_size(
    tolerance: float,
    queries: int,
    budget: int,
    failure: float,
    purpose: PlanPurpose,
    statistics: int,
) -> int | None:
    """Return the smallest holdout whose certificate is within a tolerance; None if none is."""

    def suffices(size: int) -> bool:
        setting = Setting(size, queries, purpose, statistics)
        return setting.certificate(budget, failure).tolerance <= tolerance

    # Asked first: that nothing suffices should not take a long search.
    return smallest_whole(suffices, 1, LARGEST_SIZE) if suffices(LARGEST_SIZE) else None
