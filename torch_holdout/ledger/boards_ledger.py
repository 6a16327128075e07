"""Boards behind a URL: made, opened exclusively, and read."""

import contextlib
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import sqlalchemy as sa

from torch_holdout._noise.streams import fresh_secret
from torch_holdout._shared.checks import require_instance, require_text
from torch_holdout.errors import HoldoutMismatchError
from torch_holdout.ledger import schema, statements
from torch_holdout.ledger.analysts import (
    ANALYST,
    BOARD,
    EVENT_AT,
    FIND,
    HEAD,
    LOCK_BOARD,
    BoardAccount,
    read_analysts,
    read_submissions,
)
from torch_holdout.ledger.backend import now
from torch_holdout.ledger.board_events import (
    BoardTerms,
    StoredAnalyst,
    StoredBoard,
    StoredEvent,
)
from torch_holdout.ledger.board_replay import require_board_fits
from torch_holdout.ledger.chains import canonical, first_link, parsed
from torch_holdout.ledger.headers import covered
from torch_holdout.ledger.registration import require_same
from torch_holdout.ledger.runs_ledger import RunsLedger
from torch_holdout.ledger.same_data import ledger_key

_DIGESTS = "digests"


@final
@dataclass(frozen=True, kw_only=True)
class BoardReading:
    """A board at one moment; all of it is public.

    Attributes:
        terms: Its registered parameters.
        stands: How it stands.
        budget: Releases that may be made in all.
        chain: The head of its chain.
        analysts: Its analysts, in the order they were added.
        best: The event of each analyst's best release.
    """

    terms: BoardTerms
    stands: StoredBoard
    budget: int
    chain: str
    analysts: list[StoredAnalyst]
    best: list[StoredEvent]


class BoardsLedger(RunsLedger):
    """A ledger that can be asked for boards; ledgers before them have none."""

    def register_board(
        self,
        name: str,
        registration: dict[str, Any],
        *,
        budget: int,
        digests: Mapping[str, bytes],
        account: str | None = None,
    ) -> str:
        """Create a board, or check that it exists with the same parameters; return its id.

        Args:
            name: The board's name.
            registration: Everything that is fixed; any difference is refused, and shown.
            budget: Releases allowed in all.
            digests: More that is fixed, by name, and never shown: what the ledger keeps of it is a
                digest under its secret. No two boards of a ledger may share one.
            account: The id that a copied handle carries: this very board must exist.

        Raises:
            HoldoutMismatchError: It exists with other parameters, or another board has this data.
        """
        require_text("name", name)
        require_instance("registration", registration, dict)
        require_instance("digests", digests, Mapping)
        for part, content in digests.items():
            require_instance(f"digests[{part!r}]", content, bytes)
        canonical(registration)  # what cannot be written must not leave a file behind
        with self._transaction(create=account is None) as connection:
            keyed = _keyed(connection, digests)
            row = self._locked_row(connection, schema.boards, name, account)
            if row is None:
                _require_new(connection, name, keyed)
                whole = canonical(registration | {_DIGESTS: keyed})
                return self._made_board(connection, name, whole, budget)
            require_board_fits(connection, row, self.address, self._marks(connection))
            stored = parsed(row, self.address)
            require_same(
                row,
                stored | {_DIGESTS: None},
                registration | {_DIGESTS: None},
                _unlike(stored.get(_DIGESTS), keyed),
            )
            return str(row.account)

    @contextlib.contextmanager
    def board(self, account: str) -> Iterator[BoardAccount]:
        """Open a board exclusively; leaving the block commits, an exception rolls back."""
        with self._transaction() as connection:
            yield BoardAccount(connection, self._row(connection, LOCK_BOARD, account), self.address)

    def boards(self) -> dict[str, str]:
        """Return the boards' ids by name, oldest first."""
        with self._transaction(reads_only=True) as connection:
            if self._version < schema.WITH_BOARDS:
                return {}
            table = schema.boards
            rows = connection.execute(sa.select(table.c.name, table.c.account).order_by(table.c.id))
            return {str(name): str(account) for name, account in rows}

    def board_reading(self, account: str) -> BoardReading:
        """Read a board as it stands, at one moment."""
        with self._transaction(reads_only=True) as connection:
            row = self._row(connection, BOARD, account)
            known = read_analysts(connection, row.id)
            places = sorted(own.best_at for own in known if own.best_at is not None)
            events = (
                connection.execute(EVENT_AT, {"board": row.id, "position": place}).mappings().one()
                for place in places
            )
            return BoardReading(
                terms=BoardTerms.of_row(row, self.address),
                stands=StoredBoard.of_row(row),
                budget=row.budget,
                chain=row.chain,
                analysts=known,
                best=[StoredEvent.of_row(event) for event in events],
            )

    def board_head(self, account: str) -> tuple[str, int, str | None]:
        """Return the head of a board's chain, its length, and when it was closed: one row."""
        with self._transaction(reads_only=True) as connection:
            row = self._row(connection, HEAD, account)
            return str(row.chain), int(row.events), row.closed_at

    def board_submission(
        self, account: str, analyst: str, query: str
    ) -> tuple[StoredEvent, StoredAnalyst, BoardTerms] | None:
        """Return an earlier submission, its analyst and the terms; None if there is none."""
        with self._transaction(reads_only=True) as connection:
            row = self._row(connection, BOARD, account)
            asked = {"board": row.id, "analyst": analyst, "query": query}
            found = connection.execute(FIND, asked).mappings().one_or_none()
            if found is None:
                return None
            own = connection.execute(ANALYST, {"board": row.id, "analyst": analyst}).one()
            terms = BoardTerms.of_row(row, self.address)
        return StoredEvent.of_row(found), StoredAnalyst.of_row(own), terms

    def board_submissions(
        self, account: str, analyst: str | None = None, after: int = 0, limit: int | None = None
    ) -> tuple[list[StoredEvent], dict[str, StoredAnalyst], BoardTerms]:
        """Return submissions of one analyst or of all, oldest first; the analysts; the terms.

        Those after a submission's number, at most ``limit``.
        """
        with self._transaction(reads_only=True) as connection:
            row = self._row(connection, BOARD, account)
            events = read_submissions(connection, row.id, analyst, after, limit)
            known = {own.analyst: own for own in read_analysts(connection, row.id)}
            return events, known, BoardTerms.of_row(row, self.address)

    def _made_board(
        self, connection: sa.Connection, name: str, registration: str, budget: int
    ) -> str:
        account = fresh_secret(16).hex()
        row = {"account": account, "name": name, "registration": registration, "budget": budget}
        row |= {"fingerprint": None, "chain": first_link(name), "created_at": now()}
        with covered(connection, schema.boards, account, self.address):
            statements.change(connection, schema.boards.insert().values(row))
        return account


def _keyed(connection: sa.Connection, digests: Mapping[str, bytes]) -> dict[str, str]:
    """Return digests of contents under the ledger's secret: without it they tell nothing."""
    key = ledger_key(connection)
    return {
        name: hmac.new(key, b"board data " + content, hashlib.sha256).hexdigest()
        for name, content in sorted(digests.items())
    }


def _require_new(connection: sa.Connection, name: str, keyed: Mapping[str, str]) -> None:
    """Raise if another board of the ledger has the same data: a new name would refill it."""
    rows = connection.execute(sa.select(schema.boards.c.name, schema.boards.c.registration))
    for row in rows:
        known = set(parsed(row, "this ledger").get(_DIGESTS, {}).values())
        shared = [part for part, digest in keyed.items() if digest in known]
        if shared:
            raise HoldoutMismatchError(
                f"Expected new data for board {name!r}, but its {shared[0]} are already those of "
                f"board {row.name!r}: another name would be another budget. Open it by that name, "
                f"or take new records. Nothing was created."
            )


def _unlike(stored: Any, keyed: Mapping[str, str]) -> str | None:
    """Return which digests differ, never what they are."""
    known = stored if isinstance(stored, dict) else {}
    names = sorted(n for n in {*known, *keyed} if known.get(n) != keyed.get(n))
    return "; ".join(f"{name}: not the same content" for name in names) or None
