"""Tokens: 256 random bits each, stored as SHA-256, compared in constant time."""

import hashlib
import hmac
import re
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from threading import Lock
from typing import Literal, final

import sqlalchemy as sa

from torch_holdout._noise.streams import fresh_secret
from torch_holdout.ledger.backend import now
from torch_holdout.ledger.statements import change
from torch_holdout.service.server.problems import Problem, RefusedError
from torch_holdout.service.server.schema import boards, tokens

Scope = Literal["team", "host", "reader"]
OVERLAP = timedelta(hours=24)  # for which an old token is valid beside the new one
_FORM = re.compile(r"th_([0-9a-f]{8})_([0-9a-f]{64})")
_WRONG_A_MINUTE = 10
# Built once: building them takes longer than running them, and each request runs these.
_CLOSED_AT = sa.select(boards.c.closed_at).where(boards.c.board == sa.bindparam("of_board"))
_TOKEN = (
    sa.select(tokens, boards.c.closed_at)
    .join_from(tokens, boards, tokens.c.board == boards.c.board, isouter=True)
    .where(tokens.c.board == sa.bindparam("of_board"), tokens.c.token == sa.bindparam("name"))
)


@final
@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who sent a request, as its token says.

    Attributes:
        scope: "team", "host" or "reader" (also without a token, on a public board).
        team: The team's name, for the scope "team".
        token: The public 8-character id of the token, for events; None without one.
        expires_at: When the token ends, in UTC; None if it does not.
        closed: Whether the board was closed when the token was read.
    """

    scope: Scope
    team: str | None = None
    token: str | None = None
    expires_at: str | None = None
    closed: bool = False


def issue(
    connection: sa.Connection, board: str, *, scope: Scope, team: str | None = None
) -> tuple[str, str]:
    """Make a token; return its text, which is nowhere kept, and its id."""
    name, secret = fresh_secret(4).hex(), fresh_secret(32)
    row = {"board": board, "token": name, "digest": _digest(secret.hex()), "scope": scope}
    change(connection, tokens.insert().values(row | {"team": team, "made_at": now()}))
    return f"th_{name}_{secret.hex()}", name


def end_others(
    connection: sa.Connection, board: str, kept: str, caller: Caller, *, at_once: bool
) -> None:
    """End the other tokens of a team or host: the caller's own within 24 hours unless at once."""
    others = _of(board, caller.scope, caller.team) & (tokens.c.token != kept)
    own = tokens.c.token == (caller.token or "")
    ended = tokens.update().where(others, tokens.c.revoked_at.is_(None))
    if at_once:
        connection.execute(ended.values(revoked_at=now()))
        return
    connection.execute(ended.where(~own).values(revoked_at=now()))
    end = (datetime.now(timezone.utc) + OVERLAP).isoformat(timespec="milliseconds")
    sooner = tokens.c.expires_at.is_(None) | (tokens.c.expires_at > end)
    connection.execute(tokens.update().where(others, own, sooner).values(expires_at=end))


def revoke_all(connection: sa.Connection, board: str, scope: Scope, team: str | None) -> int:
    """End every token of a team, at once; return how many were valid."""
    ended = tokens.update().where(_of(board, scope, team), tokens.c.revoked_at.is_(None))
    return int(connection.execute(ended.values(revoked_at=now())).rowcount)


def _of(board: str, scope: Scope, team: str | None) -> sa.ColumnElement[bool]:
    same = tokens.c.team.is_(None) if team is None else tokens.c.team == team
    return (tokens.c.board == board) & (tokens.c.scope == scope) & same


@final
class Gatekeeper:
    """Who may come in: reads the token's row at every request, so a revoked one ends at once."""

    def __init__(self, board: str) -> None:
        self._board = board
        self._wrong: defaultdict[str, deque[float]] = defaultdict(deque)
        self._lock = Lock()

    def caller(self, connection: sa.Connection, token: str) -> Caller:
        """Return who a token belongs to; refuse one that is unknown, wrong or over."""
        parts = _FORM.fullmatch(token)
        row = None
        if parts is not None:
            which = {"of_board": self._board, "name": parts[1]}
            row = connection.execute(_TOKEN, which).one_or_none()
        if parts is None or row is None:
            raise _unauthorised()
        if not hmac.compare_digest(_digest(parts[2]), row.digest):
            self._count_wrong(parts[1])
            raise _unauthorised()
        if row.revoked_at is not None or (row.expires_at or "9") <= now():
            raise _unauthorised()
        return Caller(
            scope=row.scope,
            team=row.team,
            token=row.token,
            expires_at=row.expires_at,
            closed=row.closed_at is not None,
        )

    def _count_wrong(self, name: str) -> None:
        """Refuse more than ten wrong secrets a minute; the right one is always let in."""
        moment = time.monotonic()
        with self._lock:
            wrong = self._wrong[name]
            while wrong and moment - wrong[0] > 60:
                wrong.popleft()
            full = len(wrong) >= _WRONG_A_MINUTE
            if not full:
                wrong.append(moment)
        if full:
            raise RefusedError(
                Problem.RATE,
                "Expected at most 10 wrong tokens a minute; wait a minute.",
                retry_after=60,
            )


def closed_at(connection: sa.Connection, board: str) -> str | None:
    """Return when a board was closed; None while it is open."""
    row = connection.execute(_CLOSED_AT, {"of_board": board}).one_or_none()
    return None if row is None else row[0]


def _unauthorised() -> RefusedError:
    return RefusedError(
        Problem.UNAUTHORISED, "Expected a valid token: Authorization: Bearer th_..."
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
