"""Headers: what each account was made for, in one chain over the whole ledger.

The chain of an account's rows does not cover its name, parameters, fingerprint, sketch and cut,
nor that there is such an account at all: this one does.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from torch_holdout.ledger.chains import canonical, chained, damaged, first_link
from torch_holdout.ledger.schema import (
    WITH_BOARDS,
    WITH_SEALED,
    boards,
    cuts,
    header_end,
    headers,
    holdouts,
    ledger,
    records,
    sketches,
)
from torch_holdout.ledger.statements import change

_FIXED = ("account", "name", "registration", "budget", "capacity", "created_at")


@contextlib.contextmanager
def covered(
    connection: sa.Connection, table: sa.Table, account: str, address: str
) -> Iterator[None]:
    """Write a header after the block that makes or changes an account or what it knows of its data.

    An account that does not fit its last header is refused first: a header would cover the edit.
    Nothing else may be locked after the block, so that no two processes wait for each other.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> ledger = Ledger("memory://")
        >>> account = ledger.register(
        ...     "val", {"statistics": {}, "budget": 3}, budget=3, private=True, fingerprint=None)
        >>> with ledger._transaction() as connection:
        ...     with covered(connection, holdouts, account, ledger.address):
        ...         _ = connection.execute(holdouts.update().values(fingerprint="f"))
        ...     list(header_problems(connection, holdouts, account))
        []
    """
    if next(header_problems(connection, table, account), None) not in (None, _NO_HEADER):
        raise damaged(_row(connection, table, account)["name"], address)
    yield
    if next(header_problems(connection, table, account), None) is None:
        return  # nothing has changed
    end = connection.execute(sa.select(header_end).with_for_update()).one()
    own = _content(connection, table, account)
    position = end.position + 1
    chain = chained(end.chain, position, own)
    change(connection, headers.insert().values(position=position, chain=chain, **own))
    change(connection, header_end.update().values(position=position, chain=chain))


def start(connection: sa.Connection) -> None:
    """Begin the chain of an empty ledger."""
    change(connection, header_end.insert().values(position=0, chain=first_link("")))


def cover_all(connection: sa.Connection, address: str) -> None:
    """Begin the chain of a ledger of an older version: every account gets its header."""
    start(connection)
    for table in (holdouts, records):
        for account in connection.execute(
            sa.select(table.c.account).order_by(table.c.id)
        ).scalars():
            with covered(connection, table, account, address):
                pass


def has_header(connection: sa.Connection, account: str) -> bool:
    """Whether an account has one: a process of an older version, still running, writes none."""
    return _last(connection, account) is not None


def header_problems(connection: sa.Connection, table: sa.Table, account: str) -> Iterator[str]:
    """Yield what of an account does not fit its last header."""
    if _row(connection, table, account) is None:
        return  # it is about to be made
    last = _last(connection, account)
    if last is None:
        yield _NO_HEADER
        return
    own = _content(connection, table, account)
    if last.parameters != own["parameters"]:
        yield "its name, parameters or time of creation were edited: its header says otherwise"
    if last.data != own["data"]:
        yield "its fingerprint, sketch or cut was edited: its header says otherwise"


def chain_problems(connection: sa.Connection) -> Iterator[str]:
    """Yield gaps and edits in the chain of headers, and the accounts that are gone."""
    tables = (holdouts, records, *((boards,) if _version(connection) >= WITH_BOARDS else ()))
    known = sa.union(*(sa.select(table.c.account) for table in tables))
    accounts = set(connection.execute(known).scalars())
    link, before, gone = first_link(""), 0, {}
    for row in connection.execute(sa.select(headers).order_by(headers.c.position)):
        own = {key: row._mapping[key] for key in ("account", "name", "parameters", "data")}
        if row.position != before + 1 or row.chain != chained(link, row.position, _plain(own)):
            yield f"header {row.position} does not follow the one before: one was edited or deleted"
        link, before = row.chain, row.position
        if row.account not in accounts:
            gone[row.account] = row.name
    if connection.execute(sa.select(header_end)).all() != [(before, link)]:
        yield "the last header is not the one the ledger ends with: headers at the end changed"
    for name in gone.values():
        yield f"the account {name!r} was deleted: its header is still there"
    lost = sa.select(sa.func.count()).where(sketches.c.account.not_in(known))
    if connection.execute(lost).scalar_one():
        yield "a sketch without an account"
    lost = sa.select(sa.func.count()).where(cuts.c.account.not_in(known))
    if _with_cuts(connection) and connection.execute(lost).scalar_one():
        yield "a cut without an account"


_NO_HEADER = (
    "it has no header: it was made by hand, or by an older version that was still running when the "
    "ledger was upgraded"
)


def _last(connection: sa.Connection, account: str) -> Any:
    own = sa.select(headers).where(headers.c.account == account)
    return connection.execute(own.order_by(headers.c.position.desc()).limit(1)).one_or_none()


def _row(connection: sa.Connection, table: sa.Table, account: str) -> Any:
    own = sa.select(table).where(table.c.account == account)
    return connection.execute(own).mappings().one_or_none()


def _content(connection: sa.Connection, table: sa.Table, account: str) -> dict[str, Any]:
    row = _row(connection, table, account)
    sketch = _row(connection, sketches, account)
    fixed = {key: row[key] for key in _FIXED if key in row} | {"table": table.name}
    data = {"fingerprint": row["fingerprint"], "sketch": None if sketch is None else dict(sketch)}
    cut = _row(connection, cuts, account) if _with_cuts(connection) else None
    if cut is not None:  # headers of accounts without one stay as they were
        data["cut"] = dict(cut)
    known = {"account": account, "name": row["name"]}
    return _plain(known | {"parameters": _digest(fixed), "data": _digest(data)})


def _with_cuts(connection: sa.Connection) -> bool:
    """Whether the ledger has the table of cuts: one of an older version is only read."""
    return _version(connection) >= WITH_SEALED


def _version(connection: sa.Connection) -> int:
    return connection.execute(sa.select(ledger.c.schema_version)).scalars().first() or 0


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(_plain(content)).encode()).hexdigest()


def _plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """Write bytes, and what damage has left, as text: an old ledger must upgrade all the same."""
    kept = (str, int, type(None))
    return {k: v if isinstance(v, kept) else _text(v) for k, v in content.items()}


def _text(value: Any) -> str:
    return canonical(_plain(value)) if isinstance(value, Mapping) else ascii(value)
