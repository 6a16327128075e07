"""Before a run: which mechanism, how many releases, and what they will be worth."""

import math
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal, final

from torch_holdout._shared.checks import (
    plain_whole,
    require_between,
    require_choice,
    require_failure,
    require_instance,
    require_tolerance,
    require_whole,
)
from torch_holdout._shared.numeric_search import largest_whole, smallest_whole
from torch_holdout._shared.text import up
from torch_holdout.accounting import PrivacyLoss, compose
from torch_holdout.bounds.brackets import worst_releases
from torch_holdout.bounds.certificate import (
    SMALLEST_FAILURE,
    Certificate,
    Transcript,
    certify_transcript,
    confidence_text,
    sequences_of,
)
from torch_holdout.bounds.channels import Channel
from torch_holdout.bounds.single_query import hoeffding
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms import Ladder, Mechanism, Thresholdout
from torch_holdout.mechanisms.base import DEFAULT_RESOLUTION, LARGEST_EPSILON

Purpose = Literal["early-stopping", "curve", "search"]
PURPOSES = ("early-stopping", "curve", "search")
DEFAULT_BUDGET = 20
VAULT = 0.2  # of the size, suggested for one final number
_LARGEST_SIZE, _LARGEST_QUERIES, _LARGEST_BUDGET = 10**12, 10**9, 10**5
_WEAK = 0.1
_USELESS = 0.5  # such an interval around the middle covers everything


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a holdout of ``size`` examples is to be used with, and what that buys.

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
        >>> found = plan(size=10_000, queries=200, budget=20)
        >>> isinstance(found, Plan), type(found.mechanism).__name__, found.useful
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
    purpose: Purpose
    grid: int
    delta: float | None = None
    tolerance: float | None = None
    statistics: int = 1

    @property
    def useful(self) -> bool:
        """Whether the certificate says something, and as much as was asked for."""
        return self.certificate.tolerance <= (self.tolerance or _USELESS)

    def __str__(self) -> str:
        return self.explanation


def plan(
    *,
    size: int | None = None,
    queries: int,
    failure: float = 0.05,
    budget: int | None = None,
    tolerance: float | None = None,
    purpose: Purpose = "early-stopping",
    delta: float | None = None,
    statistics: int = 1,
) -> Plan:
    """Choose mechanism, budget and stopping parameters for a holdout.

    Asked the other way round: without ``size`` it finds the smallest holdout for ``tolerance``;
    with ``tolerance`` and without ``budget`` the largest budget that keeps it. Without both the
    budget is 20. Nothing is read and nothing is charged.

    Args:
        size: Holdout examples.
        queries: How many evaluations are expected (epochs, trials; times statistics). More may be
            asked later, at a somewhat worse certificate.
        failure: Probability that the certificate is wrong.
        budget: Releases.
        tolerance: Wanted distance to the population value, normalised.
        purpose: ``"early-stopping"`` (a Ladder: best value so far), ``"search"`` (a Ladder for
            independent trials) or ``"curve"`` (Thresholdout against the last release: the whole
            curve).
        delta: State epsilon at this delta; None for pure.
        statistics: How many the holdout has; they share the budget, and each evaluation is one
            query for each of them.

    Example:
        >>> found = plan(size=10_000, queries=200, budget=20)
        >>> found.mechanism, round(found.certificate.tolerance, 3)
        (Ladder(step=0.0025, sigma=6.95...e-05), 0.087)
        >>> plan(queries=200, budget=20, tolerance=0.05).size
        32788
    """
    queries, failure, statistics = _checked(queries, failure, purpose, statistics)
    budget, tolerance, delta = _checked_options(budget, tolerance, delta)
    assumed = budget is None and (size is None or tolerance is None)
    usual = min(DEFAULT_BUDGET, queries)
    if size is None:
        if tolerance is None:
            raise InvalidArgumentError(
                "Expected `size` (how many holdout examples), or `tolerance` to find the size for."
            )
        budget = usual if budget is None else budget
        size = required_holdout_size(
            tolerance=tolerance,
            queries=queries,
            budget=budget,
            failure=failure,
            purpose=purpose,
            statistics=statistics,
        )
    size = _whole("size", size, _LARGEST_SIZE)
    setting = _Setting(size, queries, purpose, statistics)
    if budget is None:
        budget = usual if tolerance is None else max(1, setting.fitting(failure, tolerance))
    draft = _Draft(setting, budget, assumed, failure, tolerance, delta)
    if draft.epsilon > LARGEST_EPSILON:
        raise InvalidArgumentError(
            f"Expected a `budget` that a holdout can be made with, but {budget} releases with the "
            f"little noise that suits {size} examples cost epsilon {up(draft.epsilon)}, above "
            f"{LARGEST_EPSILON:g}. Use fewer releases or more examples."
        )
    return Plan(
        mechanism=setting.mechanism,
        budget=budget,
        certificate=draft.certificate,
        epsilon=draft.epsilon,
        min_delta=setting.min_delta,
        patience=draft.patience,
        explanation=draft.explanation(),
        size=size,
        queries=queries,
        purpose=purpose,
        grid=setting.grid,
        delta=delta,
        tolerance=tolerance,
        statistics=statistics,
    )


def certificate(
    *,
    size: int,
    queries: int,
    budget: int,
    failure: float = 0.05,
    purpose: Purpose = "early-stopping",
    mechanism: Mechanism | None = None,
    grid: int | None = None,
    statistics: int = 1,
) -> Certificate:
    """Return what all releases will be worth, however the budget is spent in ``queries`` queries.

    Args:
        size: Holdout examples.
        queries: Evaluations in all.
        budget: Releases.
        failure: Probability that it is wrong.
        purpose: Which mechanism a plan would take; see ``plan``.
        mechanism: Another mechanism, instead.
        grid: Another number of answer intervals; None: from 4 sqrt(size) up.
        statistics: How many the holdout has.

    Example:
        >>> round(certificate(size=1000, queries=200, budget=20).tolerance, 2)
        0.26
    """
    queries, failure, statistics = _checked(queries, failure, purpose, statistics)
    size, budget = _whole("size", size, _LARGEST_SIZE), _whole("budget", budget, _LARGEST_BUDGET)
    grid = None if grid is None else _whole("grid", grid, 2**31)
    if mechanism is not None:
        require_instance("mechanism", mechanism, Mechanism)
    return _Setting(size, queries, purpose, statistics, mechanism, grid).certificate(
        budget, failure
    )


def required_holdout_size(
    *,
    tolerance: float,
    queries: int,
    budget: int,
    failure: float = 0.05,
    purpose: Purpose = "early-stopping",
    statistics: int = 1,
) -> int:
    """Return a holdout size whose ``certificate`` is within ``tolerance``; one less is not enough.

    Example:
        >>> size = required_holdout_size(tolerance=0.05, queries=200, budget=20)
        >>> certificate(size=size, queries=200, budget=20).tolerance <= 0.05
        True
        >>> certificate(size=size - 1, queries=200, budget=20).tolerance <= 0.05
        False
    """
    queries, failure, statistics = _checked(queries, failure, purpose, statistics)
    budget = _whole("budget", budget, _LARGEST_BUDGET)
    require_tolerance(tolerance)
    found = _needed(tolerance, queries, budget, failure, purpose, statistics)
    if found is None:
        raise InvalidArgumentError(
            f"Expected a `tolerance` that some holdout can reach, but got {tolerance!r}: even "
            f"{_LARGEST_SIZE:g} examples do not suffice."
        )
    return found


def max_queries(
    *,
    size: int,
    tolerance: float,
    budget: int,
    failure: float = 0.05,
    purpose: Purpose = "early-stopping",
    statistics: int = 1,
) -> int:
    """Return how many queries keep the ``certificate`` of a budget within ``tolerance``; 0 if none.

    Example:
        >>> max_queries(size=10_000, tolerance=0.1, budget=20)
        2141
        >>> max_queries(size=10_000, tolerance=0.01, budget=20)
        0
    """
    _, failure, statistics = _checked(1, failure, purpose, statistics)
    size, budget = _whole("size", size, _LARGEST_SIZE), _whole("budget", budget, _LARGEST_BUDGET)
    require_tolerance(tolerance)

    def holds(queries: int) -> bool:
        setting = _Setting(size, queries, purpose, statistics)
        return setting.certificate(budget, failure).tolerance <= tolerance

    return largest_whole(holds, 1, _LARGEST_QUERIES) or 0


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
class _Setting:
    """A mechanism fitted to a holdout's size, the number of queries and the purpose."""

    size: int
    queries: int
    purpose: Purpose
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

    def _loss(self, budget: int) -> PrivacyLoss | None:
        if not self.mechanism.is_private():
            return None
        return PrivacyLoss(tuple(self.mechanism.budget_charges({self.size}, budget)))

    def fitting(self, failure: float, tolerance: float) -> int:
        """Return the largest budget whose certificate is within a tolerance; 0 if none is."""

        def holds(budget: int) -> bool:
            return self.certificate(budget, failure).tolerance <= tolerance

        return largest_whole(holds, 1, min(self.queries, _LARGEST_BUDGET)) or 0

    def _channel(self) -> Channel:
        return self.mechanism.channel(
            units=self.size, resolution=DEFAULT_RESOLUTION, grid=self.grid
        )


@final
@dataclass(frozen=True)
class _Draft:
    """A plan before it is put into words."""

    setting: _Setting
    budget: int
    assumed: bool
    failure: float
    wanted: float | None
    delta: float | None

    @property
    def certificate(self) -> Certificate:
        return self.setting.certificate(self.budget, self.failure)

    @property
    def epsilon(self) -> float:
        charges = self.setting.mechanism.budget_charges({self.setting.size}, self.budget)
        return compose(charges, self.delta).epsilon

    @property
    def patience(self) -> int:
        """How many evaluations there are for each release, if they are spread evenly."""
        return max(3, math.ceil(self.setting.queries / self.setting.statistics / self.budget))

    def explanation(self) -> str:
        return "\n".join(self._sentences())

    def _sentences(self) -> list[str]:
        setting, claim = self.setting, self.certificate
        sure = confidence_text(self.failure)
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
        if self.epsilon > 10:
            return f"{text}; that protects nobody's record: the certificate is what this buys."
        return f"{text}."

    def _advice(self) -> list[str]:
        setting, claim = self.setting, self.certificate
        vault = int(VAULT * setting.size)
        sentences = []
        if self.wanted is not None:
            if claim.tolerance > self.wanted:
                sentences.append(f"The wanted tolerance of {self.wanted:g} is not reached.")
        elif claim.tolerance > _USELESS:
            sentences.append("Nothing useful can be certified with these numbers.")
        elif claim.tolerance > _WEAK:
            sentences.append("That is a weak certificate.")
        if sentences:
            target = self.wanted or _WEAK
            needed = _needed(
                target,
                setting.queries,
                self.budget,
                self.failure,
                setting.purpose,
                setting.statistics,
            )
            sentences.append(
                f"It would take {needed:,} examples for {target:g}."
                if needed
                else f"No number of examples gives {target:g}."
            )
            fits = setting.fitting(self.failure, target)
            sentences.append(
                f"These {setting.size:,} allow {fits} release{'' if fits == 1 else 's'} for that."
                if fits
                else "Not even one release of these examples is that close."
            )
        if vault:
            sentences.append(
                f"For one final number keep a vault besides: {vault:,} more examples that nothing "
                f"reads until the end are within {up(hoeffding(vault, self.failure))}, once."
            )
        return sentences


def _needed(
    tolerance: float, queries: int, budget: int, failure: float, purpose: Purpose, statistics: int
) -> int | None:
    def suffices(size: int) -> bool:
        setting = _Setting(size, queries, purpose, statistics)
        return setting.certificate(budget, failure).tolerance <= tolerance

    # Asked first: that nothing suffices should not take a long search.
    return smallest_whole(suffices, 1, _LARGEST_SIZE) if suffices(_LARGEST_SIZE) else None


def _checked(queries: int, failure: float, purpose: str, statistics: int) -> tuple[int, float, int]:
    require_failure(failure, SMALLEST_FAILURE)
    require_choice("purpose", purpose, PURPOSES)
    return (
        _whole("queries", queries, _LARGEST_QUERIES),
        float(failure),
        _whole("statistics", statistics, 1000),
    )


def _checked_options(
    budget: int | None, tolerance: float | None, delta: float | None
) -> tuple[int | None, float | None, float | None]:
    if tolerance is not None:
        require_tolerance(tolerance)
        tolerance = float(tolerance)
    if delta is not None:
        require_between("delta", delta, 0, 1, ends=False)
        delta = float(delta)
    return None if budget is None else _whole("budget", budget, _LARGEST_BUDGET), tolerance, delta


def _whole(name: str, value: int, largest: int) -> int:
    plain = plain_whole(value)
    require_whole(name, plain, 1, largest)
    return int(value)
