"""What the host does on the server itself: no write of these is reachable over HTTP."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import sqlalchemy as sa

from torch_holdout._shared.private_files import why_not_private, write_private
from torch_holdout.errors import HoldoutError
from torch_holdout.ledger.backend import now
from torch_holdout.service.server import schema, teams, tokens
from torch_holdout.service.server.accounts import is_made
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.closing import (
    RESULTS_PAGE,
    results_content,
    results_path,
)
from torch_holdout.service.server.config import VAULT_FILE, BoardConfig
from torch_holdout.service.server.statistics import described
from torch_holdout.service.server.tokens import Caller, Scope


@final
@dataclass(frozen=True, kw_only=True)
class Made:
    """What `board init` has made; the tokens are kept nowhere."""

    rows: int
    public: int
    host_token: str = field(repr=False)
    reader_token: str | None = field(default=None, repr=False)


def initialise(config: BoardConfig) -> Made:
    """Cut the data, register the account and make the host's token; once for each board."""
    if is_made(config):
        raise HoldoutError(
            f"Expected a new board, but {config.board.name!r} is in the ledger: it was initialised "
            f"before. `board rotate --host` prints a new token for you."
        )
    _require_use(config)
    board = Board.create(config)
    store, name = board.store, config.board.name
    with store.transaction() as connection:
        host, _ = tokens.issue(connection, name, scope="host")
        reader = None
        if config.board.visibility == "teams":
            reader, _ = tokens.issue(connection, name, scope="reader")
    store.end()
    return Made(
        rows=board.layout.rows, public=board.public_size, host_token=host, reader_token=reader
    )


def _require_use(config: BoardConfig) -> None:
    """Raise where no submission could ever be answered, or told a value."""
    closes, feedback = config.board.closes_at, config.feedback
    if closes is not None and closes <= now():
        raise HoldoutError(
            f"Expected a time in the future in closes, but {closes} is over: no submission would "
            f"be answered. Nothing was changed."
        )
    if feedback.baseline is None or feedback.step is None:
        return
    own = described(config.statistics)[config.first]
    larger = own["mode"] == "max"
    best = own["high"] if larger else own["low"]
    first_told = feedback.baseline + (feedback.step if larger else -feedback.step)
    if (first_told > best) == larger and first_told != best:
        raise HoldoutError(
            f"Expected a baseline that can be beaten by a step, but {feedback.baseline:g} and a "
            f"step of {feedback.step:g} leave nothing up to {best:g}: no value would ever be told. "
            f"Both are in the units of {config.first!r}. Nothing was changed."
        )


def add_team(config: BoardConfig, name: str, submissions: int | None = None) -> str:
    """Add a team, whose releases are reserved from the budget; return its token."""
    board = Board.open(config)
    name, own = teams.checked_name(name), config.board.name
    with board.store.transaction() as connection:
        teams.require_new(connection, own, name)
    # A crash after this leaves a team without a token: then it is here already, and goes on.
    if name not in (analyst.name for analyst in board.holdout.analysts()):
        board.holdout.add_analyst(
            name,
            submissions=submissions or config.limits.submissions,
            releases=config.limits.releases or 0,
        )
    with board.store.transaction() as connection:
        teams.add(connection, own, name)
        token, _ = tokens.issue(connection, own, scope="team", team=name)
    board.close_connections()
    return token


def rotate(config: BoardConfig, scope: Scope, team: str | None, *, at_once: bool = False) -> str:
    """Return a new token; those before it end within 24 hours, or at once."""
    store, board = _store_of(config), config.board.name
    with store.transaction() as connection:
        if team is not None:
            teams.require_known(connection, board, team)
            teams.set_revoked(connection, board, team, None)
        token, name = tokens.issue(connection, board, scope=scope, team=team)
        before = _newest_before(connection, board, scope, team, name)
        whose = Caller(scope=scope, team=team, token=before)
        tokens.end_others(connection, board, name, whose, at_once=at_once)
    store.end()
    return token


def revoke(config: BoardConfig, team: str) -> None:
    """Shut a team out, at once; what it has used is not given back."""
    store, board = _store_of(config), config.board.name
    with store.transaction() as connection:
        teams.require_known(connection, board, team)
        tokens.revoke_all(connection, board, "team", team)
        teams.set_revoked(connection, board, team, now())
    store.end()


def log(config: BoardConfig, limit: int) -> list[dict[str, Any]]:
    """Return the last events, newest first."""
    store = _store_of(config)
    with store.transaction(reads_only=True) as connection:
        events = teams.last_events(connection, config.board.name, limit)
    store.end()
    return events


def require_closable(config: BoardConfig, vault: Path | None) -> None:
    """Raise unless what closing needs is there: the service's tables, and the vault's file.

    That file is looked at, and opened by a closed board only.
    """
    store = _store_of(config)
    with store.transaction(reads_only=True) as connection:  # who was named is read after closing
        teams.finalists(connection, config.board.name)
    store.end()
    if config.data.public == 1:
        return
    place = vault or config.folder / VAULT_FILE
    if not place.is_file():
        raise HoldoutError(
            f"Expected the vault's labels at {place}, but there is no file. Bring vault.labels "
            f"back and give it with --vault. Nothing was closed."
        )
    if problem := why_not_private(place.lstat()):
        raise HoldoutError(
            f"Expected {place} to be a file that only this user can read, but {problem}. Make it "
            f"so (chmod 600, no links). Nothing was closed."
        )


def close(config: BoardConfig, vault: Path | None) -> dict[str, Any]:
    """Close a board for good, judge its finalists, write results.json and results.html."""
    from torch_holdout.service.server.pages import results_page

    board = Board.open(config)
    # What was written before stands where the uploads may be gone since.
    content = None if config.store.keep_uploads else board.view().results
    if content is None:
        results, lost = board.close(vault)
        closed_at = str(board.holdout.head()[2])
        content = results_content(config, closed_at, results, lost)
        write_private(results_path(config), json.dumps(content, indent=1).encode())
    write_private(config.folder / RESULTS_PAGE, results_page(board.view()).encode())
    if not config.store.keep_uploads:
        board.remove_uploads()
    board.close_connections()
    return content


def _store_of(config: BoardConfig) -> schema.Store:
    if not is_made(config):
        raise HoldoutError(
            f"Expected the board {config.board.name!r}; `torch-holdout board init` makes it."
        )
    return schema.Store(config.ledger_url)


def _newest_before(
    connection: sa.Connection, board: str, scope: Scope, team: str | None, but: str
) -> str | None:
    own = schema.tokens.c
    same = own.team.is_(None) if team is None else own.team == team
    valid = (own.board == board) & (own.scope == scope) & same & own.revoked_at.is_(None)
    newest = sa.select(own.token).where(valid, own.token != but).order_by(own.made_at.desc())
    row = connection.execute(newest.limit(1)).first()
    return None if row is None else str(row[0])
