"""A board without HTTP: predictions in, certified answers out."""

from typing import Any, final

from torch_holdout.service.server.config import BoardConfig
from torch_holdout.service.server.tokens import Caller
from torch_holdout.service.server.uploads import Layout
from torch_holdout.service.server.view import View


@final
class Board:
    """A board in its own process: configuration, labels, teams, uploads and the ledger."""

    config: BoardConfig
    layout: Layout

    @classmethod
    def open(cls, config: BoardConfig) -> "Board":
        """Open an initialised board; reads the public part of the labels, once."""
        raise NotImplementedError

    def close_connections(self) -> None:
        """Give up the connections to the databases."""
        raise NotImplementedError

    def caller(self, token: str | None) -> Caller:
        """Return who a token belongs to; refuse a wrong one.

        Without a token: a reader, if the board is public.
        """
        raise NotImplementedError

    def submit(
        self, caller: Caller, sha: str, body: bytes, media_type: str, *, final: bool = False
    ) -> tuple[bool, dict[str, Any]]:
        """Answer an upload; return whether it is new, and the answer as JSON."""
        raise NotImplementedError

    def submission(self, caller: Caller, sha: str) -> dict[str, Any]:
        """Return the answer to one of the team's own submissions."""
        raise NotImplementedError

    def submissions(self, caller: Caller, after: int = 0, limit: int = 100) -> dict[str, Any]:
        """Return the team's own answers after a position, oldest first.

        ``{"submissions": [...], "next": position or None}``
        """
        raise NotImplementedError

    def finalists(self, caller: Caller, submissions: list[str]) -> dict[str, Any]:
        """Replace the team's finalists: ``{"finalists": [...], "at_most": n}``."""
        raise NotImplementedError

    def me(self, caller: Caller) -> dict[str, Any]:
        """Return scope, team, quota and expiry of a token."""
        raise NotImplementedError

    def rotate(self, caller: Caller, *, now: bool = False) -> dict[str, Any]:
        """Return a new token; the old one ends after 24 hours, or now."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return the board's public facts: layout, statistics, mode, state, certificate."""
        raise NotImplementedError

    def view(self) -> View:
        """Return what readers may see at the ledger's position; computed once for each."""
        raise NotImplementedError

    def team_view(self, caller: Caller) -> dict[str, Any]:
        """Return ``{"team", "quota", "submissions", "finalists", "expires_at"}`` for the page."""
        raise NotImplementedError

    def host_view(self, caller: Caller) -> dict[str, Any]:
        """Return ``{"teams", "refusals", "events", "plan", "budget"}`` for the page."""
        raise NotImplementedError

    def event(
        self,
        action: str,
        status: int,
        caller: Caller | None = None,
        size: int = 0,
        position: int | None = None,
    ) -> None:
        """Append an event: what was asked, by which token, how it ended."""
        raise NotImplementedError
