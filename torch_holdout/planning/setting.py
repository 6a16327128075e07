"""A plan, and the solver: a mechanism fitted to a holdout, and what a budget of it certifies."""

import math
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, final, get_args

from torch_holdout._shared.checks import require_instance
from torch_holdout._shared.numeric_search import largest_whole, smallest_whole
from torch_holdout._shared.text import USELESS
from torch_holdout.accounting import PrivacyLoss
from torch_holdout.bounds.brackets import worst_releases
from torch_holdout.bounds.certificate import (
    Certificate,
    Transcript,
    certify_transcript,
    sequences_of,
)
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import Ladder, Mechanism, Thresholdout
from torch_holdout.mechanisms.base import DEFAULT_RESOLUTION

PlanPurpose = Literal["early-stopping", "curve", "search"]
PURPOSES = get_args(PlanPurpose)
LARGEST = {"size": 10**12, "queries": 10**9, "budget": 10**5, "statistics": 1000, "grid": 2**31}


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """A mechanism and a budget for a holdout of ``size`` examples, and what they certify.

    ``ReusableHoldout(url, name=..., statistics=..., plan=plan)`` takes it. With as many statistics
    as planned, each a mean over the whole holdout at the default resolution, the account's own
    certificate is never wider than this one until ``queries`` have been asked.

    Attributes:
        mechanism: With its parameters, in normalised units.
        budget: Releases.
        certificate: However they are spent in ``queries`` queries.
        epsilon: What they cost, at ``delta``, replacing one example.
        min_delta: For EarlyStopping, normalised: multiply by the statistic's range.
        patience: For EarlyStopping: evaluations without an improvement.
        explanation: One sentence for each of these, what is not reached and what would help.
        size: Examples.
        queries: Planned; more may be asked.
        purpose: What it is for.
        grid: Number of answer intervals.
        delta: At which delta epsilon is stated, None for pure.
        tolerance: What was asked for, if anything.
        statistics: How many share the budget; each evaluation is one query for each of them.

    Example:
        >>> from torch_holdout import plan
        >>> made = plan(size=10_000, queries=200, budget=20)
        >>> isinstance(made, Plan), type(made.mechanism).__name__, made.useful
        (True, 'Ladder', True)
    """

    mechanism: Mechanism
    budget: int
    certificate: Certificate
    epsilon: float
    min_delta: float
    patience: int
    explanation: str = field(repr=False)
    size: int
    queries: int
    purpose: PlanPurpose
    grid: int
    delta: float | None = None
    tolerance: float | None = None
    statistics: int = 1

    @property
    def useful(self) -> bool:
        """Whether the certificate says something, and as much as was asked for."""
        return self.certificate.tolerance <= (self.tolerance or USELESS)

    def __str__(self) -> str:
        return self.explanation


def planned_arguments(given: Plan | None, **arguments: Any) -> dict[str, Any]:
    """Fill a holdout's arguments from a plan; what is given twice must agree."""
    if given is None:
        missing = [name for name in ("size", "mechanism", "budget") if arguments[name] is None]
        if missing:
            raise InvalidArgumentError(
                f"Expected {', '.join(f'`{name}`' for name in missing)}, or plan=th.plan(...)."
            )
        return arguments
    require_instance("plan", given, Plan)
    for name, value in arguments.items():
        usable = isinstance(value, Real | Mechanism) and not isinstance(value, bool)
        if value is not None and not (usable and value == getattr(given, name)):
            raise InvalidArgumentError(
                f"Expected `{name}` to come from the plan ({getattr(given, name)!r}), but also got "
                f"{value!r}. Give one of them; a plan for other numbers is another plan."
            )
    return {name: getattr(given, name) for name in arguments} | {"planned": given.queries}


@final
@dataclass(frozen=True)
class Setting:
    """A mechanism fitted to a holdout's size, the number of queries and the purpose."""

    size: int
    queries: int
    failure: float
    purpose: PlanPurpose
    statistics: int = 1
    given: Mechanism | None = None
    intervals: int | None = None

    @property
    def threshold(self) -> float:
        """A Ladder's step of u/2 for epochs, u for independent trials; T = u for a curve.

        u is the worst-case standard error of a mean of values in [0, 1].
        """
        error = 1 / (2 * math.sqrt(self.size))
        return min(0.5, error / 2 if self.purpose == "early-stopping" else error)

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

    def certificate(self, budget: int) -> Certificate:
        """Return what all releases are worth when the budget is spent in the worst way."""
        mechanism = self.mechanism
        channel = mechanism.channel(units=self.size, resolution=DEFAULT_RESOLUTION, grid=self.grid)
        channels = {f"statistic {k + 1}": channel for k in range(self.statistics)}
        before = worst_releases(self.queries, budget, sequences_of(channels.values()))
        charges = tuple(mechanism.budget_charges({self.size}, budget))
        end = Transcript(
            queries=self.queries,
            releases=before + 1,
            last_release=self.queries,
            budget=budget,
            rounds=budget,
            planned=self.queries,
            loss=PrivacyLoss(charges) if mechanism.is_private() else None,
        )
        released = certify_transcript(end, channels, self.failure)
        guessed = certify_transcript(replace(end, releases=before), channels, self.failure)
        return replace(
            released,
            releases=min(budget, self.queries),
            guess_tolerance=guessed.guess_tolerance,
            user_guess_tolerance=guessed.user_guess_tolerance,
        )

    def largest_budget(self, tolerance: float) -> int:
        """Return the largest budget whose certificate is within a tolerance; 0 if none is."""
        most = min(self.queries, LARGEST["budget"])
        return largest_whole(lambda budget: self._keeps(tolerance, budget), 1, most) or 0

    def most_queries(self, tolerance: float, budget: int) -> int:
        """Return the largest number of queries that keeps a tolerance; 0 if none does."""

        def holds(queries: int) -> bool:
            return replace(self, queries=queries)._keeps(tolerance, budget)

        return largest_whole(holds, 1, LARGEST["queries"]) or 0

    def smallest_size(self, tolerance: float, budget: int) -> int | None:
        """Return the smallest holdout that keeps a tolerance; None if none does."""

        def suffices(size: int) -> bool:
            return replace(self, size=size)._keeps(tolerance, budget)

        # Asked first: that nothing suffices should not take a long search.
        most = LARGEST["size"]
        return smallest_whole(suffices, 1, most) if suffices(most) else None

    def _keeps(self, tolerance: float, budget: int) -> bool:
        return self.certificate(budget).tolerance <= tolerance
