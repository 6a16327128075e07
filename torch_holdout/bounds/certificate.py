"""What the published numbers are worth: a distance to the population, with its theorem."""

from dataclasses import dataclass
from typing import final

from torch_holdout.bounds.counting import counting_anytime
from torch_holdout.bounds.tails import laplace_tail
from torch_holdout.checks import require_failure

THEOREM = "transcript counting, anytime (Hoeffding over all transcripts)"
ASSUMPTIONS = (
    "the holdout is an i.i.d. sample, disjoint from the training data",
    "training data, seeds, scheduling, timing and noise are independent of it",
    "nothing but the published values leaves: no raw metric, no per-example value",
    "grid, bounds and statistics were fixed before the first query",
    "no other account reads the same records",
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
        guess_tolerance: Holds for all returned guesses so far, None if there is no such claim.
        user_tolerance: ``tolerance`` in user units, by statistic.
        user_guess_tolerance: ``guess_tolerance`` in user units, by statistic.
        failure: Probability that a claim is wrong; each of the two has its own.
        releases: How many releases the claim covers.
        theorem: Which theorem this is.
        covers: What is covered, and what is not.
        assumptions: What must be true.
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

    @property
    def vacuous(self) -> bool:
        """Whether the claim says nothing about some statistic (a distance of 1 or more)."""
        return self.tolerance >= 1

    def __str__(self) -> str:
        confidence = f"With {100 * (1 - self.failure):g} % confidence"
        if self.releases:
            claim = "every released value so far is within"
        else:
            claim = "the next value, if it is released, is within"
        lines = [f"{confidence} {claim} {self.tolerance:.3g} (normalised) of the population value:"]
        for name, distance in self.user_tolerance.items():
            guess = self.user_guess_tolerance.get(name)
            also = "" if guess is None else f"; a returned guess +-{guess:.3g}"
            lines.append(f"  {name} +-{distance:.3g}{also}")
        if self.vacuous:
            lines.append("  That says nothing useful: a larger holdout or fewer releases help.")
        lines += [f"  theorem: {self.theorem}", f"  {self.covers}", "  assumes:"]
        return "\n".join(lines + [f"  - {assumption}" for assumption in self.assumptions])


@final
@dataclass(frozen=True, kw_only=True)
class Transcript:
    """The public facts about an account that its certificate depends on.

    ``last_release`` is a position, counted over all queries of the account; ``rounds`` is the
    largest number of noisy thresholds the budget allows; ``answers`` is the size of the largest
    grid, ends included.
    """

    queries: int
    releases: int
    last_release: int
    budget: int
    rounds: int
    answers: int


@final
@dataclass(frozen=True, kw_only=True)
class Channel:
    """How one statistic's value becomes an answer: the noise it gets, in integer levels."""

    units: int
    resolution: int
    grid: int
    sigma: float
    threshold: float | None
    width: float


def certify_transcript(
    transcript: Transcript, channels: dict[str, Channel], failure: float
) -> Certificate:
    """Certify an account from its transcript; every quantity is public.

    A release: the counting bound plus the exact noise tail over the budget, half a grid step and
    half a level. A guess: the counting bound, the threshold, and one-sided tails of the threshold
    and comparison noise. The failure probability is divided evenly among a claim's parts.

    Example:
        >>> facts = Transcript(
        ...     queries=50, releases=5, last_release=50, budget=5, rounds=5, answers=513
        ... )
        >>> channel = Channel(
        ...     units=10_000, resolution=65536, grid=512, sigma=1e-4, threshold=0.02, width=5.0
        ... )
        >>> claim = certify_transcript(facts, {"val_loss": channel}, failure=0.05)
        >>> round(claim.tolerance, 3), round(claim.user_tolerance["val_loss"], 2)
        (0.053, 0.27)
    """
    require_failure(failure)
    released = {n: _release_tolerance(transcript, c, failure) for n, c in channels.items()}
    guessed = {
        name: _guess_tolerance(transcript, channel, failure, channel.threshold)
        for name, channel in channels.items()
        if channel.threshold is not None
    }
    return Certificate(
        tolerance=max(released.values()),
        guess_tolerance=max(guessed.values()) if guessed else None,
        user_tolerance={n: released[n] * channels[n].width for n in released},
        user_guess_tolerance={n: guessed[n] * channels[n].width for n in guessed},
        failure=failure,
        releases=transcript.releases,
        theorem=THEOREM,
        covers="the population value is the mean of the clipped statistic; values repeated after "
        "exhaustion are stale and not covered",
        assumptions=ASSUMPTIONS,
    )


def _release_tolerance(transcript: Transcript, channel: Channel, failure: float) -> float:
    parts = 1 if channel.sigma == 0 else 2
    sampling = counting_anytime(
        channel.units,
        position=transcript.last_release if transcript.releases else transcript.queries + 1,
        releases_before=max(0, transcript.releases - 1),
        answers=transcript.answers,
        failure=failure / parts,
    )
    levels = channel.units * channel.resolution
    noise = laplace_tail(
        channel.sigma * levels, failure / parts / transcript.budget, two_sided=True
    )
    return sampling + noise / levels + 0.5 / channel.grid + 0.5 / channel.resolution


def _guess_tolerance(
    transcript: Transcript, channel: Channel, failure: float, threshold: float
) -> float:
    parts = 1 if channel.sigma == 0 else 3
    position = max(1, transcript.queries)
    sampling = counting_anytime(
        channel.units,
        position=position,
        releases_before=min(transcript.releases, position - 1),
        answers=transcript.answers,
        failure=failure / parts,
    )
    levels = channel.units * channel.resolution
    scale = channel.sigma * levels
    share = failure / parts
    high = laplace_tail(2 * scale, share / transcript.rounds, two_sided=False)
    # A position's share of the failure is 6 / (pi^2 i^2); 10 > pi^2 keeps it below.
    comparison = laplace_tail(4 * scale, 6 * share / (10 * position**2), two_sided=False)
    rounding = 1 / levels  # guess and threshold are rounded to levels
    return sampling + threshold + (high + comparison) / levels + rounding + 0.5 / channel.resolution
