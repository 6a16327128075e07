"""Whether the tables in a PostgreSQL schema are a ledger's, read from the catalogue."""

from typing import Any

import sqlalchemy as sa

from torch_holdout.ledger.backend import key_problems, stored_version, tables_of
from torch_holdout.ledger.schema import metadata, secret_runs, secret_sums, thresholds

SCHEMA = "torch_holdout"
FIRST_VERSION = 2  # none was released with version 1

LEDGER_TABLE = """
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = '{schema}' AND c.relname = 'th_ledger'"""
SIZE = """
    SELECT count(c.oid) FROM pg_namespace n LEFT JOIN pg_class c ON n.oid = c.relnamespace
    WHERE n.nspname = '{schema}' GROUP BY n.oid"""
USABLE = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = '{schema}'"
_RELATIONS = """
    SELECT c.relname, c.relkind::text, c.relpersistence::text, c.relrowsecurity,
           pg_get_userbyid(c.relowner)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = '{schema}' AND c.relkind NOT IN ('i', 'S', 't', 'c')"""
_COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = '{schema}' AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped"""
_CONSTRAINTS = """
    SELECT c.relname, k.contype::text, k.convalidated, pg_get_constraintdef(k.oid),
           ARRAY(SELECT a.attname::text FROM unnest(k.conkey) AS u(number)
                 JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.number
                 ORDER BY a.attname)
    FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = '{schema}' AND k.contype <> 'n'"""
_INDEXES = """
    SELECT t.relname, i.relname, x.indisvalid AND x.indisready
    FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
    JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE n.nspname = '{schema}' AND t.relkind = 'r'
      AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = x.indexrelid
                      AND k.contype IN ('p', 'u', 'x'))"""
_PROGRAMS = """
    SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = '{schema}' AND NOT t.tgisinternal
    UNION ALL
    SELECT c.relname, r.rulename FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{schema}'"""
_DISABLED = """
    SELECT c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = '{schema}' AND t.tgisinternal AND t.tgenabled <> 'O'"""


_CHANGED = (
    *("th_ledger", "th_holdouts", "th_records", "th_refusals"),
    *("th_header_end", "th_run_ends", "th_sealed_runs", "th_secret_runs"),
    *("th_boards", "th_analysts", "th_checked"),
)
_ERASED = (thresholds.name, secret_sums.name, secret_runs.name)


def schema_problems(connection: sa.Connection, address: str) -> list[str]:
    """Return where the tables differ from those of a ledger."""
    relations = catalogue(connection, _RELATIONS)
    if not any(row[0] == "th_ledger" for row in relations):
        return ["the table th_ledger is missing"]
    tables = tables_of(stored_version(connection, address, FIRST_VERSION))
    columns = {
        (table.name, column.name, _type_name(column), not column.nullable)
        for table in tables
        for column in table.columns
    }
    indexes = {(table.name, str(index.name), True) for table in tables for index in table.indexes}
    constraints = {
        (table, kind, _plain(text) if kind == "c" else tuple(names), valid)
        for table, kind, valid, text, names in catalogue(connection, _CONSTRAINTS)
    }
    problems = [
        *_relation_problems(relations, {table.name for table in tables}),
        *_differences("column", set(catalogue(connection, _COLUMNS)), columns),
        *_differences("constraint", constraints, _expected_constraints(tables)),
        *_differences("index", set(catalogue(connection, _INDEXES)), indexes),
        *(f"{name} has a trigger or rule" for name, _ in catalogue(connection, _PROGRAMS)),
        *(f"the foreign keys of {row[0]} are off" for row in catalogue(connection, _DISABLED)),
    ]
    return sorted(set(problems)) or key_problems(connection)


def catalogue(connection: sa.Connection, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query of the catalogue about the ledger's schema."""
    return list(map(tuple, connection.execute(sa.text(statement.format(schema=SCHEMA)))))


def missing_privileges(connection: sa.Connection) -> list[tuple[str, str, str]]:
    """Return (table, owner, privilege) for every privilege that this role lacks."""
    missing = []
    for name, *_, owner in sorted(catalogue(connection, _RELATIONS)):
        for privilege in _needed(name):
            allowed = connection.execute(
                sa.select(sa.func.has_table_privilege(f"{SCHEMA}.{name}", privilege))
            ).scalar_one()
            if not allowed:
                missing.append((name, str(owner), privilege))
    return missing


def _needed(name: str) -> tuple[str, ...]:
    if name not in metadata.tables:
        return ()
    changed = ("UPDATE",) if name in _CHANGED else ()
    erased = ("DELETE",) if name in _ERASED else ()
    return ("SELECT", "INSERT", *changed, *erased)


def _relation_problems(relations: list[Any], expected: set[str]) -> list[str]:
    problems = [f"{name} is missing" for name in expected - {row[0] for row in relations}]
    for name, kind, persistence, secured, _ in relations:
        if name not in expected:
            problems.append(f"{name} does not belong to a ledger")
        elif kind != "r":
            problems.append(f"{name} is not a table")
        elif persistence != "p":
            problems.append(f"{name} is unlogged and would be emptied by a crash")
        elif secured:
            problems.append(f"{name} hides rows (row-level security)")
    return problems


def _differences(what: str, actual: set[Any], expected: set[Any]) -> list[str]:
    lacking = [f"a {what} of {item[0]} is missing or changed" for item in expected - actual]
    return lacking + [f"{item[0]} has another {what}" for item in actual - expected]


def _type_name(column: sa.Column[Any]) -> str:
    name = str(
        column.type.compile(dialect=sa.make_url("postgresql+psycopg://").get_dialect()())
    ).lower()
    return name.replace("varchar", "character varying")


def _expected_constraints(tables: list[sa.Table]) -> set[Any]:
    expected: set[Any] = set()
    for table in tables:
        for constraint in table.constraints:
            if isinstance(constraint, sa.CheckConstraint):
                expected.add((table.name, "c", _plain(str(constraint.sqltext)), True))
            elif isinstance(constraint, sa.schema.ColumnCollectionConstraint):
                columns = tuple(sorted(column.name for column in constraint.columns))
                expected.add((table.name, _KINDS[type(constraint)], columns, True))
    return expected


def _plain(condition: str) -> str:
    text = "".join(condition.lower().split()).removeprefix("check")
    return text.replace("(", "").replace(")", "")


_KINDS: dict[type, str] = {
    sa.PrimaryKeyConstraint: "p",
    sa.UniqueConstraint: "u",
    sa.ForeignKeyConstraint: "f",
}
