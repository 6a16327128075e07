"""How far rows were replayed before: opening goes on from there, ``verify`` begins at the first.

A mark holds a position, the link of the chain there and what was counted up to it, under the
ledger's secret and with the id of the account, so that none can be made up, or be another
account's or ledger's. It holds for the *life* of the database: of an SQLite file that was closed
cleanly and is no copy, of a server that was not started anew. A mark that does not hold is as
none: everything is replayed.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any, final

import sqlalchemy as sa

from torch_holdout.ledger.chains import canonical
from torch_holdout.ledger.same_data import ledger_key
from torch_holdout.ledger.schema import checked
from torch_holdout.ledger.statements import change

OFTEN = 1_000  # rows: fewer than that are replayed again each time
_WHICH = checked.c.account == sa.bindparam("of_account")
_READ = sa.select(checked.c.position, checked.c.state, checked.c.mark).where(_WHICH)
_CHANGE = checked.update().where(_WHICH)


@final
@dataclass(frozen=True)
class Reached:
    """Where a replay stands.

    Attributes:
        position: The last row it has seen; 0 for none.
        link: The end of the chain there.
        state: What it has counted, as JSON has it.
    """

    position: int
    link: str
    state: dict[str, Any]


@final
class Marks:
    """The marks of one ledger in an open transaction."""

    def __init__(self, connection: sa.Connection, life: str) -> None:
        self._connection = connection
        self._life = life

    def of(self, account: str) -> Reached | None:
        """Return where the last replay of an account stood; None if no mark holds."""
        row = self._connection.execute(_READ, {"of_account": account}).one_or_none()
        if row is None:
            return None
        try:
            kept = json.loads(row.state)
            reached = Reached(int(row.position), str(kept["link"]), dict(kept["state"]))
        except (TypeError, KeyError, ValueError):  # edited
            return None
        holds = isinstance(row.mark, str) and hmac.compare_digest(
            row.mark.encode(errors="replace"), self._mark(account, reached).encode()
        )
        return reached if holds else None

    def keep(self, account: str, reached: Reached) -> None:
        """Write where a replay without a finding stands."""
        values = {
            "position": reached.position,
            "state": canonical({"link": reached.link, "state": reached.state}),
            "mark": self._mark(account, reached),
        }
        known = self._connection.execute(_READ, {"of_account": account}).one_or_none()
        if known is None:
            change(self._connection, checked.insert(), {"account": account, **values})
        else:
            change(self._connection, _CHANGE, {"of_account": account, **values})

    def forget(self) -> None:
        """Drop all marks."""
        self._connection.execute(checked.delete())

    def _mark(self, account: str, reached: Reached) -> str:
        content = [self._life, account, reached.position, reached.link, reached.state]
        key = ledger_key(self._connection)
        marked = b"checked " + canonical({"mark": content}).encode()
        return hmac.new(key, marked, hashlib.sha256).hexdigest()
