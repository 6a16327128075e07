"""The statements of one charge, built once: building them takes longer than running them."""

from typing import Any

import sqlalchemy as sa

from torch_holdout._shared.text import counted
from torch_holdout.errors import LedgerError
from torch_holdout.ledger.schema import (
    charges,
    holdouts,
    queries,
    records,
    refusals,
    run_ends,
    runs,
    thresholds,
)

_OF_HOLDOUT = queries.c.holdout_id == sa.bindparam("holdout")
_ANSWER = sa.select(
    queries.c.position, queries.c.kind, queries.c.value, queries.c.grid_index
).where(_OF_HOLDOUT, queries.c.statistic == sa.bindparam("statistic"))
_OF_ROUND = (
    thresholds.c.holdout_id == sa.bindparam("holdout"),
    thresholds.c.units == sa.bindparam("of_units"),
)


def _account(*columns: sa.Column[Any]) -> sa.Select[Any]:
    return sa.select(*columns).where(columns[0].table.c.account == sa.bindparam("which"))


def _locked(table: sa.Table) -> sa.Select[Any]:
    # Without the registration, which may be long and is not needed to answer.
    return _account(*(c for c in table.c if c.name != "registration")).with_for_update()


HOLDOUT, RECORDS, RELEASES = (
    _account(*holdouts.c),
    _account(*records.c),
    _account(holdouts.c.releases),
)
LOCK_HOLDOUT, LOCK_RECORDS = _locked(holdouts), _locked(records)
FIND = _ANSWER.where(queries.c.query == sa.bindparam("query"), queries.c.attempt == 0)
LAST_RELEASE = (
    _ANSWER.where(queries.c.kind == "release").order_by(queries.c.position.desc()).limit(1)
)
THRESHOLDS = sa.select(thresholds.c.units, thresholds.c.threshold).where(
    thresholds.c.holdout_id == sa.bindparam("holdout")
)
# What a query needs to know, read at once: a stored answer, the last release, secrets, closing.
_FIRST, _LAST, _SECRETS = FIND.subquery(), LAST_RELEASE.subquery(), THRESHOLDS.subquery()
LOOK = sa.union_all(
    sa.select(sa.literal_column("'find'"), *_FIRST.c),
    sa.select(sa.literal_column("'last'"), *_LAST.c),
    sa.select(
        sa.literal_column("'secret'"),
        _SECRETS.c.units,
        sa.literal_column("''"),
        sa.cast(sa.literal_column("0"), sa.Double),
        _SECRETS.c.threshold,
    ),
    sa.select(
        sa.literal_column("'closed'"),
        run_ends.c.events,
        sa.literal_column("''"),
        sa.cast(sa.literal_column("0"), sa.Double),
        sa.cast(sa.null(), sa.BigInteger),
    ).where(run_ends.c.holdout_id == sa.bindparam("holdout"), run_ends.c.closed_at.is_not(None)),
)
ATTEMPTS = sa.select(sa.func.count()).where(
    _OF_HOLDOUT,
    queries.c.statistic == sa.bindparam("statistic"),
    queries.c.query == sa.bindparam("query"),
)
# One answer, found by its position, and the releases before it: both by an index.
ANSWER_AT = sa.select(
    queries.c.position, queries.c.statistic, queries.c.kind, queries.c.value, queries.c.asked_at
).where(_OF_HOLDOUT, queries.c.position == sa.bindparam("position"))
RELEASES_BEFORE = sa.select(sa.func.count()).where(
    _OF_HOLDOUT,
    queries.c.statistic.in_(sa.bindparam("statistics", expanding=True)),
    queries.c.kind == "release",
    queries.c.position < sa.bindparam("position"),
)
_COUNTERS = ("queries", "releases", "rounds", "last_release", "spent", "chain")
_INSERT_QUERY = queries.insert()
_UPDATE_HOLDOUT = holdouts.update().where(holdouts.c.id == sa.bindparam("which"))


def _bound(prefix: str, column: sa.Column[Any]) -> sa.BindParameter[Any]:
    return sa.bindparam(f"{prefix}{column.name}", type_=column.type)


# The same two in one message to a server: the counters change only if the answer was inserted.
_INSERTED = (
    queries.insert()
    .values({column.name: _bound("new_", column) for column in queries.c})
    .returning(queries.c.position)
    .cte("inserted")
)
_INSERT_AND_UPDATE = (
    holdouts.update()
    .where(
        holdouts.c.id == sa.bindparam("which"),
        sa.select(sa.func.count()).select_from(_INSERTED).scalar_subquery() == 1,
    )
    .values({name: _bound("next_", holdouts.c[name]) for name in _COUNTERS})
)
INSERT_RUN = runs.insert()
INSERT_REFUSAL = refusals.insert()
UPDATE_REFUSAL = (
    refusals.update()
    .where(
        refusals.c.holdout_id == sa.bindparam("holdout"),
        refusals.c.statistic == sa.bindparam("of_statistic"),
        refusals.c.run == sa.bindparam("of_run"),
    )
    .values(count=refusals.c.count + 1, last_at=sa.bindparam("at"))
)
INSERT_THRESHOLD = thresholds.insert()
DELETE_THRESHOLD = thresholds.delete().where(*_OF_ROUND)
DELETE_THRESHOLDS = thresholds.delete().where(_OF_ROUND[0])
INSERT_CHARGE = charges.insert()
UPDATE_RECORDS = records.update().where(records.c.id == sa.bindparam("which"))


def change(
    connection: sa.Connection, statement: sa.Executable, values: Any = None, rows: int = 1
) -> None:
    """Insert, update or delete exactly ``rows`` rows; raise otherwise, to undo the transaction.

    A database may do less without a word, for a rule or a trigger that someone has added.
    """
    changed = connection.execute(statement, values).rowcount
    if changed != rows:
        raise LedgerError(
            f"Expected the database to change {counted(rows, 'row')} of the ledger, but it changed "
            f"{changed}: its tables have rules or triggers, or were edited meanwhile. Nothing was "
            f"released or charged. torch-holdout verify may say what is wrong."
        )


def write_answer(connection: sa.Connection, row: dict[str, Any], counters: dict[str, Any]) -> None:
    """Insert an answer and update the counters of its account."""
    which = {"which": row["holdout_id"]}
    if connection.dialect.name == "postgresql":
        new = {f"new_{name}": value for name, value in row.items()}
        later = {f"next_{name}": value for name, value in counters.items()}
        change(connection, _INSERT_AND_UPDATE, which | new | later)
    else:
        change(connection, _INSERT_QUERY, row)
        change(connection, _UPDATE_HOLDOUT, which | counters)
