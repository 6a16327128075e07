"""Teams: who may submit, what they have sent, which of it the vault is asked about; events."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from torch_holdout.errors import HoldoutError
from torch_holdout.ledger.backend import now
from torch_holdout.ledger.statements import change
from torch_holdout.service.server import schema
from torch_holdout.service.server.problems import board_closed
from torch_holdout.service.server.tokens import Caller

_VERSION = 1  # of the service's tables

# Built once: building them takes longer than running them, and each upload runs these.
_OF_TEAM = (
    schema.submissions.c.board == sa.bindparam("of_board"),
    schema.submissions.c.team == sa.bindparam("of_team"),
    schema.submissions.c.submission == sa.bindparam("sha"),
)
_RECEIVED = sa.select(schema.submissions.c.size).where(*_OF_TEAM)
_BOARD = sa.select(schema.boards.c.closed_at).where(
    schema.boards.c.board == sa.bindparam("of_board")
)
_RECEIVE, _APPEND = schema.submissions.insert(), schema.events.insert()

_NAME = re.compile(r"[\w .-]{1,40}")


class Event(NamedTuple):
    """What was asked, by which token, and how it ended; ``position`` is the ledger's.

    Example:
        >>> Event("submit", 422, None, size=128).position is None
        True
    """

    action: str
    status: int
    caller: Caller | None
    size: int = 0
    position: int | None = None


def checked_name(name: str) -> str:
    """Return a team's name as it is kept; raise unless it is short and plain.

    Example:
        >>> checked_name("Team A.1")
        'Team A.1'
    """
    kept = unicodedata.normalize("NFC", name)
    if not _NAME.fullmatch(kept) or kept != kept.strip() or not kept.isprintable():
        raise HoldoutError(
            "Expected a team's name of 1 to 40 letters, digits, spaces, '.', '_' and '-', with no "
            "space at either end."
        )
    return kept


def likeness(name: str) -> str:
    """Return what names that differ only in case, width or accents' encoding have in common.

    Example:
        >>> likeness("Team A") == likeness("team a")
        True
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())[:80]


def add_board(connection: sa.Connection, board: str) -> None:
    """Add a board; one that a crashed attempt left is kept, and one with tokens is refused."""
    if connection.execute(_BOARD, {"of_board": board}).first() is None:
        row = {"board": board, "version": _VERSION, "made_at": now()}
        change(connection, schema.boards.insert().values(row))
        return
    own = schema.tokens.c
    if connection.execute(sa.select(own.token).where(own.board == board)).first() is not None:
        raise HoldoutError(
            f"Expected a new board, but {board!r} has tokens already and its ledger is gone. A new "
            f"ledger would be a new budget on the same labels: bring the old one back."
        )


def lock_open(connection: sa.Connection, board: str) -> None:
    """Hold a board open until the transaction ends; raise if it is closed."""
    row = connection.execute(_BOARD.with_for_update(), {"of_board": board}).one()
    if row[0] is not None:
        raise board_closed()


def require_new(connection: sa.Connection, board: str, name: str) -> None:
    """Raise if a team has this name, or one that looks like it."""
    same = (schema.teams.c.board == board) & (schema.teams.c.likeness == likeness(name))
    found = connection.execute(sa.select(schema.teams.c.team).where(same)).first()
    if found is not None:
        raise HoldoutError(
            f"Expected a new team, but {found[0]!r} is there. `board rotate` prints a new token."
        )


def add(connection: sa.Connection, board: str, name: str) -> None:
    """Add a team."""
    row = {"board": board, "team": name, "likeness": likeness(name), "added_at": now()}
    change(connection, schema.teams.insert().values(row))


def require_known(connection: sa.Connection, board: str, name: str) -> None:
    """Raise unless a team has this name."""
    same = (schema.teams.c.board == board) & (schema.teams.c.team == name)
    if connection.execute(sa.select(schema.teams.c.team).where(same)).first() is None:
        raise HoldoutError("Expected the name of a team of this board; `board status` lists them.")


def set_revoked(connection: sa.Connection, board: str, name: str, at: str | None) -> None:
    """Note when a team was shut out, or None when it is let in again."""
    same = (schema.teams.c.board == board) & (schema.teams.c.team == name)
    change(connection, schema.teams.update().where(same).values(revoked_at=at))


def revoked(connection: sa.Connection, board: str) -> dict[str, str]:
    """Return when teams were shut out, by name."""
    own = schema.teams.c
    shut = sa.select(own.team, own.revoked_at).where(
        own.board == board, own.revoked_at.is_not(None)
    )
    return {str(team): str(at) for team, at in connection.execute(shut)}


def has_received(connection: sa.Connection, board: str, team: str, sha: str) -> bool:
    """Whether an upload of a team is noted."""
    which = {"of_board": board, "of_team": team, "sha": sha}
    return connection.execute(_RECEIVED, which).first() is not None


def receive(connection: sa.Connection, board: str, team: str, sha: str, size: int) -> None:
    """Note an upload that is kept; one that is noted already stays as it is."""
    if not has_received(connection, board, team, sha):
        row = {"board": board, "team": team, "submission": sha, "size": size}
        change(connection, _RECEIVE, row | {"received_at": now()})


def forget(connection: sa.Connection, board: str, team: str, sha: str) -> bool:
    """Take back the note of an upload; return whether no other team has the same one."""
    own = schema.submissions.c
    same = (own.board == board) & (own.submission == sha)
    connection.execute(schema.submissions.delete().where(same, own.team == team))
    return connection.execute(sa.select(own.team).where(same)).first() is None


def finalists(connection: sa.Connection, board: str) -> dict[str, list[str]]:
    """Return the submissions that teams have named for closing, by team."""
    own = schema.finalists.c
    named = sa.select(own.team, own.submission).where(own.board == board)
    lists: dict[str, list[str]] = {}
    for team, submission in connection.execute(named.order_by(own.team, own.place)):
        lists.setdefault(team, []).append(submission)
    return lists


def set_finalists(
    connection: sa.Connection, board: str, team: str, submissions: Sequence[str]
) -> None:
    """Replace a team's finalists."""
    own = schema.finalists.c
    connection.execute(schema.finalists.delete().where(own.board == board, own.team == team))
    for place, submission in enumerate(submissions):
        row = {"board": board, "team": team, "place": place, "submission": submission}
        change(connection, schema.finalists.insert().values(row))


def append_events(connection: sa.Connection, board: str, events: Sequence[Event]) -> None:
    """Append events."""
    for event in events:
        row = {"action": event.action, "status": event.status, "bytes": event.size}
        who: dict[str, str | None] = {"token": None, "team": None}
        if event.caller is not None:
            who = {"token": event.caller.token, "team": event.caller.team}
        row |= {"board": board, "at": now(), "position": event.position}
        change(connection, _APPEND, row | who)


def last_events(connection: sa.Connection, board: str, limit: int) -> list[dict[str, Any]]:
    """Return the last events, newest first."""
    own = schema.events.c
    chosen = (own.number, own.at, own.action, own.status, own.token, own.team, own.bytes)
    wanted = sa.select(*chosen, own.position).where(own.board == board)
    rows = connection.execute(wanted.order_by(own.number.desc()).limit(limit))
    return [dict(row._mapping) for row in rows]


def set_closed(connection: sa.Connection, board: str, at: str) -> None:
    """Note when a board was closed, as the ledger has it."""
    same = schema.boards.c.board == board
    change(connection, schema.boards.update().where(same).values(closed_at=at))
