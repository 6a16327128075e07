"""The cut that an account's data is a part of: one for each dataset and ledger.

Cutting a dataset again after its display was watched would put watched examples into the part that
a certificate counts on. Compared inside the ledger only, under its secret.
"""

from typing import Any

import sqlalchemy as sa

from torch_holdout._fingerprints.data import KeyedCut
from torch_holdout.errors import HoldoutMismatchError
from torch_holdout.ledger.schema import cuts, holdouts, records
from torch_holdout.ledger.statements import change

_BEFORE_RECORDS = "; "


def store_cut(connection: sa.Connection, account: str, cut: KeyedCut) -> None:
    """Write the cut of an account's data."""
    change(connection, cuts.insert().values(account=account, whole=cut.whole, cut=_stored(cut)))


def require_same_cut(connection: sa.Connection, name: str, given: KeyedCut | None) -> None:
    """Raise if an account's data is a part of the same dataset under another cut."""
    if given is None:
        return
    for account, stored in connection.execute(
        sa.select(cuts.c.account, cuts.c.cut).where(cuts.c.whole == given.whole)
    ):
        if _records(stored) != given.records:
            raise HoldoutMismatchError(
                f"Expected a part of the cut that {_name(connection, account)!r} was created with "
                f"({_text(stored)}), but got one of another cut of the same data for {name!r} "
                f"({given.text}{_hint(stored, given)}): it may hold examples that were watched. "
                f"Cut the dataset as before. Nothing was charged."
            )


def cut_difference(connection: sa.Connection, account: str, given: KeyedCut | None) -> str | None:
    """Return how a cut differs from the one an account was created with; None if it does not."""
    if given is None:
        return None
    chosen = sa.select(cuts.c.whole, cuts.c.cut).where(cuts.c.account == account)
    row = connection.execute(chosen).one_or_none()
    if row is None:
        return "cut: it was created without one"
    whole, stored = row
    if whole != given.whole:
        return f"cut: stored {_text(stored)}, given {given.text} of another dataset"
    if _records(stored) == given.records and _part(_text(stored)) == _part(given.text):
        return None
    return f"cut: stored {_text(stored)}, given {given.text}{_hint(stored, given)}"


def _stored(cut: KeyedCut) -> str:
    return f"{cut.text}{_BEFORE_RECORDS}{cut.records}"


def _text(stored: Any) -> str:
    return str(stored).rpartition(_BEFORE_RECORDS)[0]


def _records(stored: Any) -> str:
    return str(stored).rpartition(_BEFORE_RECORDS)[2]


def _part(text: str) -> str:
    return text.rpartition(", ")[2]


def _hint(stored: Any, given: KeyedCut) -> str:
    """Say what else can differ if seed and shares do not."""
    how, parts = _text(stored).rpartition(", ")[0], _records(stored)
    alike = how == given.text.rpartition(", ")[0] and parts != given.records
    return ", with other groups or in another order" if alike else ""


def _name(connection: sa.Connection, account: str) -> Any:
    named = (sa.select(t.c.name).where(t.c.account == account) for t in (holdouts, records))
    return connection.execute(sa.union_all(*named)).scalars().first()
