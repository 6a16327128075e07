"""The certificate of published numbers: their distance to the population, with its theorem."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final

from torch_holdout._shared.checks import require_failure, require_instance
from torch_holdout._shared.formulas import formula
from torch_holdout._shared.text import confidence_text, up
from torch_holdout.accounting.compose import PrivacyLoss
from torch_holdout.bounds.brackets import (
    Sequences,
    any_sequences,
    bracket_anytime,
    bracket_planned,
    falling_sequences,
    kl_answer_interval,
    monotone_sequences,
)
from torch_holdout.bounds.channels import Channel
from torch_holdout.bounds.private_answers import THEOREMS, PrivateAnswers, best_theorem
from torch_holdout.bounds.ratios import MAY_BE_ZERO, covers_ratios, zero_denominators

Kind = Literal["release", "guess"]
SMALLEST_FAILURE = 1e-100
COUNTING = "transcript counting, anytime"
PLANNED = "transcript counting, for the registered plan and beyond it"
ASSUMPTIONS = (
    "the holdout is an i.i.d. sample, disjoint from the training data",
    "training data, seeds, scheduling, timing and noise are independent of it",
    "nothing but the published values leaves: no raw metric, no per-example value",
    "grid, bounds and statistics were fixed before the first query",
    "no other account reads the same records",
)
COVERS = (
    "the population value is the mean of the clipped statistic; values repeated after exhaustion "
    "are stale and not covered"
)


@final
@dataclass(frozen=True, kw_only=True)
class Certificate:
    """With probability ``1 - failure`` every released answer is this close to the population mean.

    Before the first release the claim is about the next query only, should it be released.

    The population mean is that of the *clipped* statistic. Distances are normalised (bounds mapped
    to [0, 1]); ``user_tolerance`` has them in each statistic's own units.

    Attributes:
        tolerance: Holds for all releases so far.
        guess_tolerance: Holds for all returned guesses so far, None if there can be none; one-sided
            for a Ladder: the guess is not worse than the population value by more than this, but it
            may be far better.
        user_tolerance: ``tolerance`` in user units, by statistic.
        user_guess_tolerance: ``guess_tolerance`` in user units, by statistic.
        failure: Probability that a claim is wrong; each of the two has its own.
        releases: How many releases the claim covers.
        theorem: Which theorem this is; chosen from registered parameters, before any answer.
        covers: What is covered, and what is not.
        assumptions: What must be true.
        one_sided_guesses: Whether guesses are a Ladder's.
        sealed: Whether the values are those that closing will show, and none is shown yet.
        unclaimed: Ratios whose denominator may be 0: nothing is claimed of them before closing.

    Example:
        >>> import torch_holdout as th
        >>> claim = th.certificate(
        ...     size=10_000, queries=200, budget=20, mechanism=th.Ladder(step=0.01))
        >>> isinstance(claim, Certificate), claim.vacuous, round(claim.tolerance, 3)
        (True, False, 0.085)
    """

    tolerance: float
    guess_tolerance: float | None
    user_tolerance: dict[str, float]
    user_guess_tolerance: dict[str, float]
    failure: float
    releases: int
    theorem: str
    covers: str
    assumptions: tuple[str, ...]
    one_sided_guesses: bool = False
    sealed: bool = False
    unclaimed: tuple[str, ...] = ()

    @property
    def vacuous(self) -> bool:
        """Whether the claim says nothing about some statistic (a distance of 1 or more)."""
        return self.tolerance >= 1

    def __str__(self) -> str:
        confidence = f"With {confidence_text(self.failure)} confidence"
        if self.sealed:
            so_far = "so far" if self.releases else "of the first run, as planned,"
            claim = f"at closing the value of every evaluation {so_far} is within"
        elif self.releases:
            claim = "every released value so far is within"
        else:
            claim = "the next value, if it is released, is within"
        lines = [f"{confidence} {claim} {up(self.tolerance)} (normalised) of the population value:"]
        side = "is not worse than the truth by more than " if self.one_sided_guesses else "+-"
        for name, distance in self.user_tolerance.items():
            guess = self.user_guess_tolerance.get(name)
            also = "" if guess is None else f"; a returned guess {side}{up(guess)}"
            lines.append(f"  {name} +-{up(distance)}{also}")
        if self.unclaimed:
            lines.append(f"  {', '.join(self.unclaimed)}: {MAY_BE_ZERO}.")
        elif self.vacuous:
            lines.append("  That says nothing useful: a larger holdout or fewer releases help.")
        lines += [f"  theorem: {self.theorem}", f"  {self.covers}", "  assumes:"]
        return "\n".join(lines + [f"  - {assumption}" for assumption in self.assumptions])


@final
@dataclass(frozen=True, kw_only=True)
class Transcript:
    """The public facts about an account that its certificate depends on.

    ``last_release`` is a position, counted over all queries of the account; ``rounds`` is the
    largest number of noisy thresholds the budget allows; ``planned`` the number of queries that was
    registered, if one was; ``loss`` what the whole budget costs in privacy, None if that is nothing
    to count on (no noise, a test seed, several units values).
    """

    queries: int
    releases: int
    last_release: int
    budget: int
    rounds: int
    planned: int | None = None
    loss: PrivacyLoss | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Interval:
    """An interval for the population value of one answer, in the statistic's own units.

    All intervals of releases hold at once with probability ``1 - failure``, and so do all intervals
    of guesses.

    Example:
        >>> interval = Interval(statistic="val_acc", position=3, kind="release", value=0.9,
        ...                     low=0.86, high=0.93, failure=0.05)
        >>> 0.88 in interval
        True
    """

    statistic: str
    position: int
    kind: Kind
    value: float
    low: float
    high: float
    failure: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@formula
def certify_transcript(
    transcript: Transcript, channels: dict[str, Channel], failure: float
) -> Certificate:
    """Certify an account from its transcript; every quantity is public.

    A release: the sampling bound plus the exact noise tail over the budget, half a grid step and
    half a level. A guess: the sampling bound, the threshold, and one-sided tails of the threshold
    and comparison noise. With noise the failure probability is divided evenly between sampling and
    noise; without, all of it is for sampling.

    Example:
        >>> facts = Transcript(queries=50, releases=5, last_release=50, budget=5, rounds=5)
        >>> channel = Channel(
        ...     units=10_000, resolution=65536, grid=512, sigma=1e-4, threshold=0.02, width=5.0
        ... )
        >>> claim = certify_transcript(facts, {"val_loss": channel}, failure=0.05)
        >>> round(claim.tolerance, 3), round(claim.user_tolerance["val_loss"], 2)
        (0.053, 0.27)
    """
    require_failure(failure, SMALLEST_FAILURE)
    _require_account(transcript, channels)
    failure = float(failure)
    theorem = _chosen(transcript, channels, failure)
    position = transcript.last_release if transcript.releases else transcript.queries + 1
    before = max(0, transcript.releases - 1)
    guessed_at = max(1, transcript.queries)
    guessed_after = min(transcript.releases, guessed_at - 1, transcript.budget - 1)
    others = f"guesses by {_counting(transcript.planned)}; " if theorem in THEOREMS else ""
    sequences = sequences_of(channels.values())
    quotients = {n: c.quotient for n, c in channels.items() if c.quotient is not None}
    released: dict[str, float] = {}
    guessed: dict[str, float] = {}
    for channel in set(channels.values()):
        claims = _Claims(transcript, channel, sequences, failure)
        names = [name for name, own in channels.items() if own == channel]
        released |= dict.fromkeys(names, claims.tolerance("release", position, before, theorem))
        if channel.rule is not None:
            guess = claims.tolerance("guess", guessed_at, guessed_after, theorem)
            guessed |= dict.fromkeys(names, guess)
    return Certificate(
        tolerance=max(released.values()),
        guess_tolerance=max(guessed.values(), default=None),
        user_tolerance={n: released[n] * c.width for n, c in channels.items()},
        user_guess_tolerance={n: guessed[n] * c.width for n, c in channels.items() if n in guessed},
        failure=failure,
        releases=transcript.releases,
        theorem=theorem,
        covers=others + covers_ratios(COVERS, quotients),
        assumptions=ASSUMPTIONS,
        one_sided_guesses=any(c.rule == "improvement" for c in channels.values()),
        unclaimed=zero_denominators(quotients),
    )


def answer_interval(
    transcript: Transcript,
    channels: dict[str, Channel],
    *,
    statistic: str,
    position: int,
    releases_before: int,
    kind: Kind,
    value: float,
    failure: float,
) -> Interval:
    """Return the interval of one answer, in KL form where counting is the theorem.

    Example:
        >>> facts = Transcript(queries=50, releases=5, last_release=50, budget=5, rounds=5)
        >>> channel = Channel(units=10_000, resolution=65536, grid=512, sigma=1e-4, threshold=0.02)
        >>> interval = answer_interval(
        ...     facts, {"error": channel}, statistic="error", position=50, releases_before=4,
        ...     kind="release", value=0.05, failure=0.05)
        >>> round(interval.low, 3), round(interval.high, 3)
        (0.029, 0.078)
    """
    require_failure(failure, SMALLEST_FAILURE)
    channel = channels[statistic]
    failure = float(failure)
    theorem = _chosen(transcript, channels, failure)
    claims = _Claims(transcript, channel, sequences_of(channels.values()), failure)
    normalised = min(max((value - channel.low) / channel.width, 0.0), 1.0)
    low, high = claims.interval(kind, position, releases_before, normalised, theorem)
    return Interval(
        statistic=statistic,
        position=position,
        kind=kind,
        value=value,
        low=channel.low + channel.width * low,
        high=channel.low + channel.width * high,
        failure=failure,
    )


def position_bracket(
    transcript: Transcript,
    channels: dict[str, Channel],
    statistic: str,
    position: int,
    releases_before: int,
    failure: float,
) -> float:
    """Return c with n kl(h || P) <= c for the exact value behind one answer, by counting."""
    claims = _Claims(transcript, channels[statistic], sequences_of(channels.values()), failure)
    return claims._bracket(position, releases_before)


@final
@dataclass(frozen=True)
class _Claims:
    """One statistic's claims."""

    transcript: Transcript
    channel: Channel
    sequences: Sequences
    failure: float

    def tolerance(self, kind: Kind, position: int, before: int, theorem: str) -> float:
        facts, channel = self.transcript, self.channel
        if kind == "release" and theorem in THEOREMS and facts.loss is not None:
            return _private_tolerance(channel, facts.budget, facts.loss, self.failure, theorem)
        sampling = channel.sampling_error(self._bracket(position, before))
        distance = sampling + self._error(kind, position)
        return distance if channel.quotient is None else min(1.0, distance)

    def interval(
        self, kind: Kind, position: int, before: int, value: float, theorem: str
    ) -> tuple[float, float]:
        channel = self.channel
        if kind == "release" and theorem in THEOREMS:
            distance = self.tolerance(kind, position, before, theorem)
            low, high = value - distance, value + distance
        elif channel.quotient is not None:
            bracket, error = self._bracket(position, before), self._error(kind, position)
            low, high = channel.quotient_interval(value, error, bracket)
        else:
            low, high = kl_answer_interval(
                value, self._error(kind, position), self._bracket(position, before), channel.units
            )
            low, high = low - channel.quantisation, high + channel.quantisation
        if kind == "guess" and channel.rule == "improvement":
            low, high = (low, 1.0) if channel.mode == "min" else (0.0, high)
        return max(0.0, low), min(1.0, high)

    def _bracket(self, position: int, before: int) -> float:
        # With noise, half of the failure is for the noise.
        share = self.failure if self.channel.sigma == 0 else self.failure / 2
        facts, sequences = self.transcript, self.sequences
        if facts.planned is None:
            return bracket_anytime(
                position=position, releases_before=before, sequences=sequences, failure=share
            )
        return bracket_planned(
            position=position,
            releases_before=before,
            sequences=sequences,
            failure=share,
            queries=facts.planned,
            budget=facts.budget,
        )

    def _error(self, kind: Kind, position: int) -> float:
        facts, share = self.transcript, self.failure / 2
        if kind == "release":
            return self.channel.release_error(share, facts.budget, facts.rounds, position)
        return self.channel.guess_error(share, facts.rounds, position)


def _require_account(transcript: Transcript, channels: dict[str, Channel]) -> None:
    require_instance("transcript", transcript, Transcript)
    require_instance("channels", channels, dict)
    for channel in channels.values() or (None,):
        require_instance("channels", channel, Channel)


def sequences_of(channels: Iterable[Channel]) -> Sequences:
    """Count an account's released sequences: by the largest grid, or fewer if all are Ladders."""
    channels = list(channels)
    all_answers = [channel.grid + 1 for channel in channels]
    if any(channel.rule != "improvement" for channel in channels):
        return any_sequences(max(all_answers))
    strict = all(c.sigma == 0 and c.threshold >= 1 / c.grid for c in channels)
    return (falling_sequences if strict else monotone_sequences)(sum(all_answers))


def _chosen(transcript: Transcript, channels: dict[str, Channel], failure: float) -> str:
    if transcript.loss is None:
        return _counting(transcript.planned)
    facts = (transcript.budget, transcript.rounds, transcript.planned, transcript.loss)
    return _choice(*facts, tuple(channels.values()), failure)


def _counting(planned: int | None) -> str:
    return COUNTING if planned is None else PLANNED


@lru_cache(maxsize=256)
def _choice(
    budget: int,
    rounds: int,
    planned: int | None,
    loss: PrivacyLoss,
    channels: tuple[Channel, ...],
    failure: float,
) -> str:
    """Choose the theorem from registered parameters alone: what has been asked does not enter.

    Compared when the whole budget is spent, in the planned number of queries or in the fewest
    possible. Theorems about privacy need answers that are near on both sides.
    """
    counting = _counting(planned)
    if any(channel.rule == "improvement" for channel in channels):
        return counting
    last = max(budget, planned or 0)
    facts = {"queries": last, "releases": budget, "last_release": last, "budget": budget}
    end = Transcript(**facts, rounds=rounds, planned=planned, loss=None)
    worst = min(channels, key=lambda channel: channel.grid)
    claims = _Claims(end, worst, sequences_of(channels), failure)
    counted = claims.tolerance("release", last, budget - 1, counting)
    errors = worst.answer_errors(budget)
    private, theorem = best_theorem(PrivateAnswers(worst.units, loss, errors, failure, counted))
    return theorem if private + worst.quantisation < counted else counting


@lru_cache(maxsize=256)
def _private_tolerance(
    channel: Channel, budget: int, loss: PrivacyLoss, failure: float, theorem: str
) -> float:
    answers = PrivateAnswers(channel.units, loss, channel.answer_errors(budget), failure)
    return THEOREMS[theorem](answers) + channel.quantisation
