"""What the API sends, as models: they write its description, and check nothing at run time."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Responses = dict[int | str, dict[str, Any]]


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")


class ResultMessage(_Message):
    """A statistic's answer: a value where one was told, an interval where one is certified."""

    value: float | None
    interval: tuple[float, float] | None


class QuotaMessage(_Message):
    """What a team has left."""

    submissions_left: int
    releases_left: int | None


class AnswerMessage(_Message):
    """The answer to a submission, from the ledger."""

    submission: str = Field(pattern="^[0-9a-f]{64}$")
    position: int
    kind: Literal[
        "release", "guess", "repeat", "kept", "reverted", "first", "sealed", "record", "no_record"
    ]
    better: bool | None
    results: dict[str, ResultMessage]
    quota: QuotaMessage
    chain: str


class AnswersMessage(_Message):
    """A page of a team's own answers, oldest first."""

    submissions: list[AnswerMessage]
    next: int | None


class FinalistsMessage(_Message):
    """A team's finalists."""

    finalists: list[str]
    at_most: int


class BoardMessage(_Message):
    """A board's public facts."""

    name: str
    title: str
    mode: Literal["ladder", "record", "gate", "sealed"]
    state: Literal["open", "ended", "closed"]
    closes: str | None
    rows: int
    upload: Literal["classes", "probabilities", "scores"]
    classes: int | None
    statistics: dict[str, dict[str, Any]]
    first: str
    position: int
    chain: str


class RowMessage(_Message):
    """A team's line of the leaderboard."""

    rank: tuple[int, int] | None
    team: str
    value: float | None
    interval: tuple[float, float] | None
    not_told_apart_from: list[str]
    quota: QuotaMessage
    exhausted: bool


class LeaderboardMessage(_Message):
    """The leaderboard at a position of the ledger."""

    position: int
    chain: str
    state: Literal["open", "ended", "closed"]
    rows: list[RowMessage]


class CallerMessage(_Message):
    """What a token may do."""

    scope: Literal["team", "host", "reader"]


class TokenMessage(_Message):
    """A new token, shown once."""

    token: str


class ProblemMessage(BaseModel):
    """A refusal (RFC 9457); it quotes nothing that was sent."""

    type: str = Field(pattern="^urn:torch-holdout:[a-z-]+$")
    title: str
    status: int
    detail: str


PROBLEM = "application/problem+json"


def refusals(*statuses: int) -> Responses:
    """Describe the refusals of a route for OpenAPI."""
    content = {PROBLEM: {"schema": ProblemMessage.model_json_schema()}}
    always = (422, 500, 503)
    return {
        status: {"description": "Refused", "content": content}
        for status in sorted({*statuses, *always})
    }
