"""What a board answers, read from its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class Quota:
    """What a team may still ask."""

    submissions_left: int
    releases_left: int


@final
@dataclass(frozen=True, kw_only=True)
class RemoteAnswer:
    """A board's answer to one submission."""

    submission: str
    kind: str
    better: bool | None
    value: float | None
    interval: tuple[float, float] | None
    values: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float] | None]
    quota: Quota
    position: int
    chain: str
