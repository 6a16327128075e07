"""What a board says: answers to submissions, its standing while it is open, results at closing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

AnswerKind = Literal["release", "guess", "repeat", "kept", "reverted", "first", "sealed"]


@final
@dataclass(frozen=True)
class Result:
    """One statistic of a submission: its value in user units, and an interval for the population.

    Attributes:
        value: What was told; None if nothing was.
        interval: Where the population's value lies; None where nothing useful is certified.
    """

    value: float | None
    interval: tuple[float, float] | None


@final
@dataclass(frozen=True)
class Quota:
    """What an analyst may still ask."""

    submissions_left: int
    releases_left: int


@final
@dataclass(frozen=True, kw_only=True)
class Analyst:
    """An analyst of a board, with a quota of its own.

    Attributes:
        name: Its name.
        submissions: How many it may make, in all.
        submissions_left: How many of them are left.
        releases: How many values it may be told, in all.
        releases_left: How many of them are left.
        refused: How many submissions came after its quota or the board's budget was gone.
        created_at: When it was added.
    """

    name: str
    submissions: int
    submissions_left: int
    releases: int
    releases_left: int
    refused: int
    created_at: str


@final
@dataclass(frozen=True, kw_only=True)
class BoardAnswer:
    """The answer to one submission.

    Attributes:
        submission: The content's hash, as it was given.
        analyst: Whose it is.
        position: Its number among all submissions of the board, from 1.
        kind: What was said; ``"repeat"`` for one that was asked before.
        source: What was said the first time.
        better: Whether it was better: a release, or kept. None where nothing is said about that.
        results: By statistic, what was told.
        quota: What is left to the analyst, now.
        chain: The head of the board's chain after it.
        asked_at: When it was asked the first time.
        nats: What it said: whatever is asked later pays for it.
    """

    submission: str
    analyst: str
    position: int
    kind: AnswerKind
    source: AnswerKind
    better: bool | None
    results: Mapping[str, Result]
    quota: Quota
    chain: str
    asked_at: str
    nats: float


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the next submission's interval would be worth, and what that counts on.

    Attributes:
        bracket: c of the next submission: ``n kl(h || P) <= c`` for all submissions at once.
        half_width: By statistic, in user units: half an interval at the middle of the range.
        failure: The probability that any interval of the board is wrong.
        certified: Whether the first statistic's half-width is below a tenth of its range.
        assumptions: What it assumes.
    """

    bracket: float
    half_width: Mapping[str, float]
    failure: float
    certified: bool
    assumptions: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Standing:
    """A board at one position of its chain; all of it is public.

    Attributes:
        best: The answer with the best released value of each analyst that has one, best first.
        analysts: All analysts, in the order they were added.
        position: Number of submissions so far.
        events: Number of events in its chain: it changes whenever anything here does.
        chain: The head of its chain.
        budget: Releases that may be made in all.
        budget_left: How many of them are left.
        nats: What was told so far, to all accounts together.
        closed_at: When it was closed; None while it is open.
        claim: The certificate.
    """

    best: tuple[BoardAnswer, ...]
    analysts: tuple[Analyst, ...]
    position: int
    events: int
    chain: str
    budget: int
    budget_left: int
    nats: float
    closed_at: str | None
    claim: Claim


@final
@dataclass(frozen=True, kw_only=True)
class Finalist:
    """One finalist after closing.

    Attributes:
        submission: The content's hash.
        analyst: Whose it is.
        rank: Best and worst rank that the certified orderings leave.
        results: By statistic, the exact value with its interval.
        told: The first statistic's value that was told before closing; None if none was.
        better_than: Submissions it is certified to be better than.
    """

    submission: str
    analyst: str
    rank: tuple[int, int]
    results: Mapping[str, Result]
    told: float | None
    better_than: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class BoardResults:
    """What closing says, with two statements that fail with ``failure`` each.

    Attributes:
        finalists: Best value first.
        rows: On how many rows they were judged.
        vault: Whether these are the vault's.
        bracket: c of the intervals; of the widest, where they differ.
        ordering_bracket: c of the orderings.
        failure: The probability that any interval is wrong; and the same for any ordering.
        closed_at: When the board was closed.
        chain: The head of its chain after closing.
        assumptions: What is assumed.
    """

    finalists: tuple[Finalist, ...]
    rows: int
    vault: bool
    bracket: float
    ordering_bracket: float
    failure: float
    closed_at: str
    chain: str
    assumptions: tuple[str, ...]
