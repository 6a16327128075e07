"""A plan, and the solver: a mechanism fitted to a holdout, and what a budget of it certifies."""

import math
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, final, get_args

from torch_holdout._shared.checks import require_instance
from torch_holdout._shared.numeric_search import largest_whole, smallest_whole
from torch_holdout._shared.text import LARGE_EPSILON, USELESS
from torch_holdout.accounting import PrivacyLoss, compose
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
from torch_holdout.planning.curves import (
    finest_step,
    lasting_budget,
    lasting_records,
    standard_error,
)

PlanPurpose = Literal["early-stopping", "curve", "search"]
PURPOSES = get_args(PlanPurpose)
LARGEST = {
    "size": 10**12,
    "queries": 10**9,
    "budget": 10**5,
    "runs": 10**5,
    "statistics": 1000,
    "grid": 2**31,
}


class Explained:
    """What prints as its explanation.

    Not a dataclass, and a plan is not final: LightningCLI would build one that is from its fields,
    and not let ``class_path: torch_holdout.plan`` make it.
    """

    explanation: str

    def __str__(self) -> str:
        return self.explanation


@dataclass(frozen=True, kw_only=True)
class Plan(Explained):
    """A mechanism and a budget for a holdout of ``size`` examples, and what they certify.

    ``ReusableHoldout(url, name=..., statistics=..., plan=plan)`` takes it. With as many statistics
    as planned, each a mean over the whole holdout at the default resolution, the account's own
    certificate is never wider than this one until ``queries`` have been asked.

    Attributes:
        mechanism: With its parameters, in normalised units.
        budget: Sealed runs, or releases of values (``unit``).
        certificate: However they are spent in ``queries`` queries; for runs, if a display stops all
            but the last.
        epsilon: What they cost, at ``delta``, replacing one example; infinite without noise.
        min_delta: For EarlyStopping or Patience, normalised: multiply by the statistic's range.
        patience: For EarlyStopping or Patience: evaluations without an improvement.
        explanation: One sentence for each of these, what is not reached and what would help.
        size: Examples.
        queries: Planned; more may be asked.
        purpose: What it is for.
        grid: Number of answer intervals.
        delta: At which delta epsilon is stated, None for pure.
        tolerance: What was asked for, if anything.
        statistics: How many share the budget; each evaluation is one query for each of them.
        arguments: What ``plan`` was called with, which an account made from it keeps; None for
            plans of version 0.1.0.
        refusal: Why no account can be created from it (it can be attached to one that exists).

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
    arguments: dict[str, Any] | None = field(default=None, repr=False)
    refusal: str | None = field(default=None, repr=False)

    @property
    def unit(self) -> str:
        """What the budget counts: ``"run"`` or ``"release"``."""
        return "release" if self.mechanism.shows_values else "run"

    @property
    def useful(self) -> bool:
        """Whether the certificate says something, and as much as was asked for."""
        return self.certificate.tolerance <= (self.tolerance or USELESS)


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
    taken = {name: getattr(given, name) for name in arguments}
    taken |= {"plan_arguments": given.arguments, "refusal": given.refusal}
    if not given.mechanism.shows_values:  # as an account that is made by hand
        return taken | {"grid": None}
    return taken | {"planned": given.queries}


@final
@dataclass(frozen=True)
class Setting:
    """A mechanism fitted to a holdout's size and the purpose; no part of it follows the queries.

    So a certificate for more queries is never narrower.
    """

    size: int
    queries: int
    failure: float
    purpose: PlanPurpose
    statistics: int = 1
    given: Mechanism | None = None
    intervals: int | None = None
    delta: float | None = None

    @property
    def evaluations(self) -> int:
        """How many evaluations the queries are: each is one query for each statistic."""
        return -(-self.queries // self.statistics)

    @property
    def lasting_budget(self) -> int:
        """How many releases a steep start, or a search's series of records, takes."""
        if self.purpose == "search":
            needed = lasting_records(self.evaluations)
        else:
            needed = lasting_budget(self.evaluations, self.threshold)
        return min(self.queries, self.statistics * needed, LARGEST["budget"])

    @property
    def threshold(self) -> float:
        """A Ladder's step: the finest for epochs, u for independent trials; T for a curve.

        A curve's threshold is twice the finest step, because it releases in both directions. u is
        the worst-case standard error of a mean of values in [0, 1].
        """
        if self.purpose == "search":
            return min(0.5, standard_error(self.size))
        return min(0.5, finest_step(self.size) * (2 if self.purpose == "curve" else 1))

    def sigma(self, budget: int) -> float:
        """Noise far below the threshold, T/90; none where epsilon would protect nobody.

        Comparison noise of four times this exceeds the threshold in one of 10^10 queries.
        """
        return self.threshold / 90 if self.private(budget) else 0.0

    def private(self, budget: int) -> bool:
        """Whether the noise of a whole budget costs an epsilon that protects a record."""
        charges = self._fitted(self.threshold / 90).budget_charges({self.size}, budget)
        return compose(charges, self.delta).epsilon <= LARGE_EPSILON

    def mechanism(self, budget: int) -> Mechanism:
        """Return the given mechanism, or the one that suits the purpose."""
        return self._fitted(self.sigma(budget)) if self.given is None else self.given

    def _fitted(self, sigma: float) -> Mechanism:
        if self.purpose == "curve":
            return Thresholdout(threshold=self.threshold, sigma=sigma, guess="last")
        return Ladder(step=self.threshold, sigma=sigma)

    @property
    def grid(self) -> int:
        """Steps of the threshold or a little less, of half of it for trials and curves.

        For a mechanism that is given: of half the worst-case standard error.
        """
        if self.given is not None:
            return self.intervals or math.ceil(4 * math.sqrt(self.size))
        halves = 1 if self.purpose == "early-stopping" else 2
        return self.intervals or math.ceil(halves / self.threshold)

    def certificate(self, budget: int) -> Certificate:
        """Return what all releases are worth when the budget is spent in the worst way."""
        mechanism = self.mechanism(budget)
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
        """Return the largest budget whose certificate is within a tolerance; 0 if none is.

        Noise makes a certificate wider, so it grows with the budget only among those with noise and
        among those without: these are searched first.
        """
        most = min(self.queries, LARGEST["budget"])
        noisy = self._noisy_up_to(most)

        def keeps(budget: int) -> bool:
            return self._keeps(tolerance, budget)

        quiet = largest_whole(keeps, noisy + 1, most) if noisy < most else None
        return quiet or (noisy and largest_whole(keeps, 1, noisy)) or 0

    def most_queries(self, tolerance: float, budget: int) -> int:
        """Return the largest number of queries that keeps a tolerance; 0 if none does."""

        def holds(queries: int) -> bool:
            return replace(self, queries=queries)._keeps(tolerance, budget)

        return largest_whole(holds, 1, LARGEST["queries"]) or 0

    def smallest_size(self, tolerance: float, budget: int | None) -> int | None:
        """Return the smallest holdout that keeps a tolerance; None if none does.

        Without a budget each size has the one that lasts. Sizes without noise are searched first,
        for the reason that ``largest_budget`` has.
        """

        def suffices(size: int) -> bool:
            other = replace(self, size=size)
            return other._keeps(tolerance, budget or other.lasting_budget)

        def noisy(size: int) -> bool:
            other = replace(self, size=size)
            return self.given is None and other.private(budget or other.lasting_budget)

        # Asked first: that nothing suffices should not take a long search.
        most = LARGEST["size"]
        if not suffices(most):
            return None
        first = smallest_whole(noisy, 1, most) or most
        quiet = smallest_whole(suffices, 1, first - 1) if first > 1 else None
        return quiet or smallest_whole(suffices, first, most)

    def _noisy_up_to(self, most: int) -> int:
        if self.given is not None:
            return 0
        return largest_whole(self.private, 1, most) or 0

    def _keeps(self, tolerance: float, budget: int) -> bool:
        return self.certificate(budget).tolerance <= tolerance
