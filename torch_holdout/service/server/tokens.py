"""Tokens: 256 random bits each, stored as SHA-256, compared in constant time."""

from dataclasses import dataclass
from typing import Literal, final

Scope = Literal["team", "host", "reader"]


@final
@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who sent a request, as its token says.

    Attributes:
        scope: "team", "host" or "reader" (also without a token, on a public board).
        team: The team's name, for the scope "team".
        token: The public 8-character id of the token, for events; None without one.
        expires_at: When the token ends, in UTC; None if it does not.
    """

    scope: Scope
    team: str | None = None
    token: str | None = None
    expires_at: str | None = None
