"""What a board sends, read from its JSON: answers, facts, quotas."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

from torch_holdout.errors import HoldoutError

_Part = TypeVar("_Part")


@final
@dataclass(frozen=True, kw_only=True)
class Quota:
    """What a team may still ask.

    Attributes:
        submissions_left: Predictions that may still be submitted; a repeat is free.
        releases_left: Values that may still be told; None where a board tells none.

    Example:
        >>> Quota(submissions_left=41, releases_left=6)
        Quota(submissions_left=41, releases_left=6)
    """

    submissions_left: int
    releases_left: int | None = None


@final
@dataclass(frozen=True, kw_only=True)
class RemoteAnswer:
    """A board's answer to one submission.

    Attributes:
        submission: Its address: the SHA-256 of what was sent.
        kind: ``"release"`` or ``"guess"`` (a Ladder or a record), ``"kept"``, ``"reverted"`` or
            ``"first"`` (a gate), ``"sealed"``, or ``"repeat"`` of an earlier answer, which is free.
        better: Whether it was better, or kept; None where the board does not say.
        value: What was told about the first statistic, in its own units; with a guess, what had to
            be beaten, which is the public baseline at first; None if nothing is said.
        interval: Where the population's value lies; None where nothing is certified.
        values: What was told about every statistic.
        quota: What the team may still ask.
        position: The number of the answer in the board's ledger.
        chain: The head of the ledger's chain there: keep both, and a board that was set back can be
            told.

    Example:
        >>> quota = Quota(submissions_left=41, releases_left=6)
        >>> answer = RemoteAnswer(
        ...     submission="9f2c", kind="release", better=True, value=0.84, interval=None,
        ...     values={"accuracy": 0.84}, quota=quota, position=17, chain="7be1")
        >>> answer.accepted, answer.value
        (True, 0.84)
    """

    submission: str
    kind: str
    better: bool | None
    value: float | None
    interval: tuple[float, float] | None
    values: Mapping[str, float | None]
    quota: Quota
    position: int
    chain: str
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def accepted(self) -> bool:
        """Whether a loop keeps what it made: it was better, was kept, or nothing is said."""
        return self.better is not False


@final
@dataclass(frozen=True, kw_only=True)
class PublicStatistic:
    """What is public of a board's statistic.

    Attributes:
        low: The smallest value that a row, or a block, can have.
        high: The largest.
        mode: ``"min"`` or ``"max"``: which direction is better.
        kind: How it is computed, e.g. ``"accuracy"``.

    Example:
        >>> PublicStatistic(low=0.0, high=1.0, mode="max", kind="accuracy").mode
        'max'
    """

    low: float
    high: float
    mode: str
    kind: str


@final
@dataclass(frozen=True, kw_only=True)
class BoardStatus:
    """A board's public facts, and what the token's team may still ask.

    Attributes:
        name: What it is called in addresses.
        title: What people call it.
        mode: ``"ladder"``, ``"record"``, ``"gate"`` or ``"sealed"``: what a submission is told.
        state: ``"open"``, ``"ended"`` (nothing is taken any more) or ``"closed"``.
        closes: Until when submissions are taken, in UTC; None for no end.
        rows: Predictions in a submission.
        upload: What a submission holds: ``"classes"``, ``"probabilities"`` or ``"scores"``.
        classes: How many classes there are; None for scores.
        statistics: What is computed, by name.
        first: The statistic that ranks.
        baseline: The public value to beat; None where there is none.
        step: The smallest improvement that is told, as a share of the range; None without.
        position: How many answers the board's ledger holds.
        chain: The head of the ledger's chain.
        quota: What the token's team may still ask; None without a team's token.
        releases: Values that the team may be told in all; None where that is not said.

    Example:
        >>> board = status_from({
        ...     "name": "digits", "title": "Digits", "mode": "ladder", "state": "open",
        ...     "closes": None, "rows": 3000, "upload": "classes", "classes": 10,
        ...     "statistics": {"acc": {"low": 0, "high": 1, "mode": "max", "kind": "accuracy"}},
        ...     "first": "acc", "position": 0, "chain": "7be1"})  # a BoardStatus
        >>> board.rows, board.statistics["acc"].mode, board.quota
        (3000, 'max', None)
    """

    name: str
    title: str
    mode: str
    state: str
    closes: str | None
    rows: int
    upload: str
    classes: int | None
    statistics: Mapping[str, PublicStatistic]
    first: str
    baseline: float | None
    step: float | None
    position: int
    chain: str
    quota: Quota | None = None
    releases: int | None = None


def answer_from(content: Any, first: str) -> RemoteAnswer:
    """Read an answer; ``first`` is the statistic that ranks.

    Example:
        >>> answer = answer_from(
        ...     {"submission": "9f2c", "position": 17, "kind": "release", "better": True,
        ...      "results": {"accuracy": {"value": 0.84, "interval": [0.8, 0.9]}}, "chain": "7be1",
        ...      "quota": {"submissions_left": 41, "releases_left": 6}}, "accuracy")
        >>> answer.value, answer.interval, answer.quota.releases_left
        (0.84, (0.8, 0.9), 6)
    """

    def read() -> RemoteAnswer:
        results = content["results"]
        own = results.get(first) or {"value": None, "interval": None}
        better = content["better"]
        return RemoteAnswer(
            submission=str(content["submission"]),
            kind=str(content["kind"]),
            better=None if better is None else bool(better),
            value=_number(own["value"]),
            interval=_interval(own["interval"]),
            values={str(name): _number(result["value"]) for name, result in results.items()},
            quota=_quota(content["quota"]),
            position=int(content["position"]),
            chain=str(content["chain"]),
            content=content,
        )

    return _understood(read, "an answer")


def status_from(content: Any, own: Any = None) -> BoardStatus:
    """Read a board's facts, and what ``/v1/me`` says about the token."""

    def read() -> BoardStatus:
        statistics = {
            str(name): PublicStatistic(
                low=float(each["low"]),
                high=float(each["high"]),
                mode="min" if each["mode"] == "min" else "max",
                kind=str(each.get("kind", "")),
            )
            for name, each in content["statistics"].items()
        }
        closes = content["closes"]
        quota = None if own is None else own.get("quota")
        return BoardStatus(
            name=str(content["name"]),
            title=str(content["title"]),
            mode=str(content["mode"]),
            state=str(content["state"]),
            closes=None if closes is None else str(closes),
            rows=int(content["rows"]),
            upload=str(content["upload"]),
            classes=_whole(content["classes"]),
            statistics=statistics,
            first=str(content["first"]),
            baseline=_number(content.get("baseline")),
            step=_number(content.get("step")),
            position=int(content["position"]),
            chain=str(content["chain"]),
            quota=None if quota is None else _quota(quota),
            releases=None if quota is None else _whole(quota.get("releases")),
        )

    return _understood(read, "a board's facts")


def _understood(read: Callable[[], _Part], what: str) -> _Part:
    try:
        return read()
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise HoldoutError(
        f"Expected {what} as JSON from the board, but got something else. Is the address that of a "
        f"board, and does the server have the same version of torch_holdout?"
    )


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


def _interval(ends: Any) -> tuple[float, float] | None:
    if ends is None:
        return None
    low, high = ends
    return float(low), float(high)


def _quota(content: Any) -> Quota:
    return Quota(
        submissions_left=int(content["submissions_left"]),
        releases_left=_whole(content["releases_left"]),
    )


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
