"""A board without HTTP: predictions in, certified answers out."""

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, final

from torch_holdout.errors import BoardClosedError, HoldoutError, QuotaExhaustedError
from torch_holdout.holdout.board import BoardHoldout
from torch_holdout.holdout.board_results import BoardAnswer, BoardResults
from torch_holdout.ledger.backend import now
from torch_holdout.service.server import teams, tokens
from torch_holdout.service.server.accounts import holdout_of, require_account
from torch_holdout.service.server.closing import Values, by_submission, judged, read_results
from torch_holdout.service.server.config import PUBLIC_FILE, VAULT_FILE, BoardConfig
from torch_holdout.service.server.labels import (
    LabelPart,
    cut_labels,
    has_parts,
    planned_part,
    read_part,
    read_source,
    read_vault,
    require_cut_from,
)
from torch_holdout.service.server.layouts import layout_of
from torch_holdout.service.server.problems import Problem, RefusedError, board_closed
from torch_holdout.service.server.schema import Store
from torch_holdout.service.server.tokens import Caller, Gatekeeper
from torch_holdout.service.server.uploads import (
    CSV,
    NPY,
    Array,
    Layout,
    UploadFolder,
    digest,
    is_sha,
    parse,
)
from torch_holdout.service.server.view import State, View, answer_json, view_of

_MOST_EVENTS = 50  # on the host's page
_NO_VAULT = "This board has no vault to name finalists for."


@final
class Board:
    """A board in its own process: configuration, labels, teams, uploads and the ledger.

    Every answer comes from ``BoardHoldout``, committed before it is returned. Errors depend on the
    request and on public facts only: labels are touched after the last of those checks.
    """

    def __init__(self, config: BoardConfig, public: LabelPart) -> None:
        self.config = config
        self.layout: Layout = layout_of(config, public.rows)
        self.store = Store(config.ledger_url)
        self.holdout: BoardHoldout = holdout_of(config, self.layout, public)
        self._public = public
        self._gate = Gatekeeper(config.board.name)
        self._uploads = UploadFolder(config.path(config.store.uploads), longest=self.layout.largest)
        self._lock = threading.Lock()
        self._exhausted: set[str] = set()  # quotas never grow: once spent, spent for good
        self._view: View | None = None
        self._view_key: object = None

    @classmethod
    def open(cls, config: BoardConfig) -> "Board":
        """Open an initialised board; reads the public part of the labels, once."""
        require_account(config)
        board = cls(config, read_part(config, config.folder / PUBLIC_FILE))
        board.holdout.attach()
        return board

    @classmethod
    def create(cls, config: BoardConfig) -> "Board":
        """Cut the data and register a new board; files of an attempt that crashed are used."""
        target = read_source(config)
        planned = cls(config, planned_part(config, target))  # says what is wrong; cuts nothing yet
        planned.store.make()
        with planned.store.transaction() as connection:  # first, or a crash leaves it without a row
            teams.add_board(connection, config.board.name)
        planned.close_connections()
        if has_parts(config):
            require_cut_from(config, target)
        else:
            cut_labels(config, target)
        board = cls(config, read_part(config, config.folder / PUBLIC_FILE))
        board.holdout.attach()
        return board

    @property
    def public_size(self) -> int:
        """How many rows give feedback."""
        return self._public.size

    def close_connections(self) -> None:
        """Give up the connections to the databases."""
        self.store.end()

    def caller(self, token: str | None) -> Caller:
        """Return who a token belongs to; refuse a wrong one.

        Without a token: a reader, if the board is public.
        """
        if token is None:
            if self.config.board.visibility == "public":
                return Caller(scope="reader")
            raise RefusedError(Problem.UNAUTHORISED, "Expected a token: this board is not public.")
        with self.store.transaction(reads_only=True) as connection:
            return self._gate.caller(connection, token)

    def require_open(self, caller: Caller) -> None:
        """Refuse if nothing was answered any more when the caller's token was read."""
        if caller.closed or self._has_ended():
            raise board_closed()

    def _received_before(self, team: str, sha: str) -> bool:
        """Refuse if nothing is answered any more; return whether an upload was here before."""
        board = self.config.board.name
        with self.store.transaction(reads_only=True) as connection:
            closed = tokens.closed_at(connection, board)
            known = teams.has_received(connection, board, team, sha)
        if closed is not None or self._has_ended():
            raise board_closed()
        return known

    def submit(
        self, caller: Caller, sha: str, body: bytes, media_type: str, *, final: bool = False
    ) -> tuple[bool, dict[str, Any]]:
        """Answer an upload; return whether it is new, and the answer as JSON."""
        team = _team_of(caller)
        known = self._received_before(team, sha)
        if final and self.config.data.public == 1:  # a sealed board judges all of them
            raise RefusedError(Problem.REQUEST, _NO_VAULT)
        predictions = self._accepted(sha, body, media_type)
        # Every answer has its note, made before; if that is lost, the door itself repeats.
        answer = self.holdout.recall(team, sha) if known else None
        if answer is None:
            answer = self._answered(team, sha, body, predictions)
        if not self._uploads.has(sha):  # lost, or taken back by another team's refusal meanwhile
            self._uploads.keep(sha, body)
        if final and self._has_finalists():
            self._add_finalist(team, sha)
        return answer.kind != "repeat", answer_json(answer)

    def submission(self, caller: Caller, sha: str) -> dict[str, Any]:
        """Return the answer to one of the team's own submissions."""
        team = _team_of(caller)
        answer = self.holdout.recall(team, sha) if is_sha(sha) else None
        if answer is None:
            raise RefusedError(Problem.UNKNOWN, "This team has no such submission.")
        return answer_json(answer)

    def submissions(self, caller: Caller, after: int = 0, limit: int = 100) -> dict[str, Any]:
        """Return the team's own answers after a position, oldest first.

        ``{"submissions": [...], "next": position or None}``
        """
        answers = self.holdout.answers(_team_of(caller), after=after, limit=limit + 1)
        shown = answers[:limit]
        more = shown[-1].position if len(answers) > len(shown) > 0 else None
        return {"submissions": [answer_json(answer) for answer in shown], "next": more}

    def finalists(self, caller: Caller, submissions: Sequence[str]) -> dict[str, Any]:
        """Replace the team's finalists: ``{"finalists": [...], "at_most": n}``."""
        team, most = _team_of(caller), self.config.limits.finalists
        self.require_open(caller)
        if not self._has_finalists():
            raise RefusedError(Problem.REQUEST, _NO_VAULT)
        named = list(dict.fromkeys(submissions))
        if len(named) > most:
            raise RefusedError(Problem.REQUEST, f"Expected at most {most} finalists.")
        for sha in named:
            self.submission(caller, sha)
        with self.store.transaction() as connection:
            teams.lock_open(connection, self.config.board.name)
            teams.set_finalists(connection, self.config.board.name, team, named)
        return {"finalists": named, "at_most": most}

    def me(self, caller: Caller) -> dict[str, Any]:
        """Return scope, team, quota and expiry of a token."""
        own = {"board": self.config.board.name, "scope": caller.scope, "team": caller.team}
        quota = None if caller.team is None else self._quota(caller.team)
        return own | {"token": caller.token, "expires_at": caller.expires_at, "quota": quota}

    def rotate(self, caller: Caller, *, now: bool = False) -> dict[str, Any]:
        """Return a new token; the old one ends after 24 hours, or now."""
        if caller.token is None:
            raise RefusedError(Problem.UNAUTHORISED, "Expected a token that can be replaced.")
        board = self.config.board.name
        with self.store.transaction() as connection:
            made, name = tokens.issue(connection, board, scope=caller.scope, team=caller.team)
            tokens.end_others(connection, board, name, caller, at_once=now)
        return {"token": made, "scope": caller.scope, "team": caller.team, "expires_at": None}

    def facts(self) -> dict[str, Any]:
        """Return the board's public facts: layout, statistics, mode, state, certificate."""
        return self.view().facts

    def view(self) -> View:
        """Return what readers may see at the ledger's position; computed once for each."""
        chain, events, closed_at = self.holdout.head()
        key = (chain, events, self._state(closed_at))
        with self._lock:
            if self._view is not None and self._view_key == key:
                return self._view
        standing = self.holdout.standing()
        state = self._state(standing.closed_at)
        results = read_results(self.config, standing.closed_at)
        view = view_of(self.config, self.layout, standing, state, results)
        with self._lock:
            if state != "closed" or results is not None:  # results.json may come a moment later
                self._view, self._view_key = view, (standing.chain, standing.events, state)
        return view

    def team_view(self, caller: Caller) -> dict[str, Any]:
        """Return ``{"team", "quota", "submissions", "finalists", "expires_at"}`` for the page."""
        team = _team_of(caller)
        with self.store.transaction(reads_only=True) as connection:
            named = teams.finalists(connection, self.config.board.name).get(team, [])
        own = [answer_json(answer) for answer in self.holdout.answers(team)]
        return {
            "team": team,
            "quota": self._quota(team),
            "submissions": own,
            "finalists": named,
            "expires_at": caller.expires_at,
        }

    def host_view(self, caller: Caller) -> dict[str, Any]:
        """Return ``{"teams", "plan", "budget", "events"}`` for the page."""
        if caller.scope != "host":
            raise RefusedError(Problem.FORBIDDEN, "Expected the host's token.")
        return self.overview()

    def overview(self) -> dict[str, Any]:
        """Return what the host sees: teams, plan against reality, events; nothing raw."""
        board, limits = self.config.board.name, self.config.limits
        with self.store.transaction(reads_only=True) as connection:
            shut = teams.revoked(connection, board)
            events = teams.last_events(connection, board, _MOST_EVENTS)
        analysts = self.holdout.analysts()
        plan = {
            "teams": f"{len(analysts)} of {limits.teams}",
            "submissions_each": limits.submissions,
            "releases_each": limits.releases,
        }
        rows = [
            {
                "team": analyst.name,
                "submissions": analyst.submissions - analyst.submissions_left,
                "submissions_left": analyst.submissions_left,
                "releases": analyst.releases - analyst.releases_left,
                "releases_left": analyst.releases_left,
                "refused": analyst.refused,
                "added_at": analyst.created_at,
                "revoked_at": shut.get(analyst.name),
            }
            for analyst in analysts
        ]
        return {"teams": rows, "plan": plan, "budget": self.view().budget, "events": events}

    def record_events(self, events: Sequence[teams.Event]) -> None:
        """Append events in one transaction."""
        with self.store.transaction(durable=False) as connection:
            teams.append_events(connection, self.config.board.name, events)

    def close(self, vault: Path | None) -> tuple[BoardResults | None, list[str]]:
        """Close the board for good, then read the vault and judge; again, the same comes out.

        Returns the results, None without any submission; and the submissions whose uploads are
        lost, which are not judged.
        """
        closed = self.holdout.close()  # committed before the vault's file is opened
        with self.store.transaction() as connection:
            teams.set_closed(connection, self.config.board.name, closed)
            named = teams.finalists(connection, self.config.board.name)
        part = self._public
        if self.config.data.public < 1:
            place = vault or self.config.folder / VAULT_FILE
            part = read_vault(self.config, place, self._public)
        whose = by_submission(judged(self.config, self.holdout.answers(), named))
        lost = [sha for sha in whose if self._uploads.read(sha) is None]
        kept = {sha: own for sha, own in whose.items() if sha not in lost}
        if not kept:
            self.holdout.require_unjudged()
            return None, lost
        return self.holdout.judge(Values(list(kept), partial(self._judged, part)), kept), lost

    def _judged(self, part: LabelPart, sha: str) -> dict[str, Any]:
        predictions = self._kept(sha)
        if predictions is None:  # lost since it was looked for
            raise HoldoutError("An upload was lost while the board was judged; close it again.")
        return part.values(self.config.statistics, predictions)

    def remove_uploads(self) -> None:
        """Remove what was uploaded, after closing."""
        for answer in self.holdout.answers():
            self._uploads.remove(answer.submission)

    def _accepted(self, sha: str, body: bytes, media_type: str) -> Array:
        """Return an upload's predictions; the order of the checks is part of the API."""
        if len(body) > self.layout.largest:
            raise RefusedError(Problem.SIZE, f"Expected at most {self.layout.largest} bytes.")
        if media_type not in self.layout.media_types:
            expected = " or ".join(self.layout.media_types)
            raise RefusedError(Problem.MEDIA_TYPE, f"Expected the content type {expected}.")
        if digest(body) != sha:
            raise RefusedError(
                Problem.DIGEST, "Expected the address to be the SHA-256 of the body's bytes."
            )
        return parse(body, media_type, self.layout)

    def _answered(self, team: str, sha: str, body: bytes, predictions: Array) -> BoardAnswer:
        """Keep an upload, note it, and ask the door: in this order, so that nothing is lost."""
        board, spent = self.config.board.name, team in self._exhausted
        new = not self._uploads.has(sha)
        if not spent:
            self._uploads.keep(sha, body)
            with self.store.transaction(durable=False) as connection:
                teams.receive(connection, board, team, sha, len(body))
        try:
            return self.holdout.submit(
                team, self._values(predictions), query=sha, incumbent=self._incumbent
            )
        except BoardClosedError:
            refusal = board_closed()
        except QuotaExhaustedError as error:
            self._exhausted.add(team)
            refusal = _exhausted(error.scope)
        if new:
            self._take_back(team, sha)
        raise refusal

    def _values(self, predictions: Array) -> dict[str, Any]:
        if self.config.feedback.mode == "sealed":
            return {}
        return self._public.values(self.config.statistics, predictions)

    def _incumbent(self, sha: str) -> dict[str, Any] | None:
        predictions = self._kept(sha)
        return None if predictions is None else self._values(predictions)

    def _kept(self, sha: str) -> Array | None:
        """Return the predictions of an upload that was accepted before; None if it is lost."""
        body = self._uploads.read(sha)
        if body is None:
            return None
        return parse(body, NPY if body[:1] == b"\x93" else CSV, self.layout)

    def _take_back(self, team: str, sha: str) -> None:
        """Remove an upload that was refused, unless another team has sent the same one."""
        with self.store.transaction() as connection:
            if teams.forget(connection, self.config.board.name, team, sha):
                self._uploads.remove(sha)

    def _has_finalists(self) -> bool:
        return 0 < self.config.data.public < 1

    def _add_finalist(self, team: str, sha: str) -> None:
        """Put a submission first in its team's list of finalists."""
        board, most = self.config.board.name, self.config.limits.finalists
        with self.store.transaction() as connection:
            teams.lock_open(connection, board)
            named = teams.finalists(connection, board).get(team, [])
            kept = list(dict.fromkeys([sha, *named]))[:most]
            teams.set_finalists(connection, board, team, kept)

    def _quota(self, team: str) -> dict[str, int]:
        for analyst in self.holdout.analysts():
            if analyst.name == team:
                told = ("submissions", "submissions_left", "releases", "releases_left")
                return {name: getattr(analyst, name) for name in told}
        raise RefusedError(Problem.UNKNOWN, "This team is not on the board.")

    def _state(self, closed_at: str | None) -> State:
        if closed_at is not None:
            return "closed"
        return "ended" if self._has_ended() else "open"

    def _has_ended(self) -> bool:
        closes = self.config.board.closes_at
        return closes is not None and closes <= now()


def _team_of(caller: Caller) -> str:
    if caller.team is None:
        raise RefusedError(Problem.FORBIDDEN, "Expected a team's token.")
    return caller.team


def _exhausted(scope: str) -> RefusedError:
    if scope == "board":
        return RefusedError(Problem.EXHAUSTED_BOARD, "Nothing is left of the board's budget.")
    return RefusedError(
        Problem.EXHAUSTED_TEAM,
        "Nothing is left of this team's quota; an upload that was answered before is still free.",
    )
