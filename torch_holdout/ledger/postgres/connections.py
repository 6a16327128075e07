"""Connections to PostgreSQL: URLs, a pool that is never carried over a fork, and failures."""

import os
import time
from typing import Any
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.engine import URL

from torch_holdout.errors import LedgerError
from torch_holdout.ledger.backend import WAIT_SECONDS, quiet_engine
from torch_holdout.ledger.postgres.schema import SCHEMA

_DRIVER = "postgresql+psycopg"
_PORT = 5432
# What may be asked of the connection. Everything else could hide a password, point to another
# server or switch off a setting that a budget depends on.
_OPTIONS = frozenset(
    ("host", "sslmode", "sslrootcert", "sslcert", "sslkey", "passfile", "application_name")
)
STATEMENT_SECONDS = 2 * WAIT_SECONDS
_BUSY_STATES = ("57P03", "53300")  # starting up or shutting down; too many clients
_BUSY_TEXTS = ("starting up", "shutting down", "too many clients", "recovery mode", "not yet")
_CONNECT_SECONDS = 10
_IDLE_SECONDS = 30  # unused for longer: given up; the server ends it after twice that


def connection_parameters(url: URL) -> dict[str, Any]:
    """Return the parameters of a URL; raise if one is missing, unknown or ambiguous."""
    options = dict(url.query)
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise LedgerError(
            f"Expected only the options {sorted(_OPTIONS)} in a PostgreSQL ledger URL, but got "
            f"{unknown}. A password belongs into PGPASSWORD or a pgpass file."
        )
    host = options.pop("host", None) if url.host is None else url.host
    whole = url.drivername == _DRIVER and url.username and url.database and "host" not in options
    repeated = [name for name, value in url.query.items() if not isinstance(value, str)]
    odd = set(",@ ;=") & set(f"{host}{url.database}")
    if not whole or repeated or odd or not isinstance(host, str) or not host:
        # Not shown: what is in the wrong place may be a password.
        raise LedgerError(
            f"Expected a PostgreSQL ledger like {_DRIVER}://user@host:5432/database, or "
            f"{_DRIVER}://user@/database?host=/folder/of/its/socket, with one user, one host and "
            f"one database, but got another URL."
        )
    return {
        "user": url.username,
        "host": host if host.startswith("/") else host.lower(),
        "port": url.port or _PORT,
        "dbname": url.database,
        **options,
    }


def canonical_address(parameters: dict[str, Any]) -> str:
    """Return one address for a ledger, whatever its URL left out."""
    rest = {k: v for k, v in parameters.items() if k not in ("user", "host", "port", "dbname")}
    host = parameters["host"]
    socket = host.startswith("/")
    return URL.create(
        _DRIVER,
        username=parameters["user"],
        host=None if socket else host,
        port=None if socket else parameters["port"],
        database=parameters["dbname"],
        query=dict(sorted((rest | ({"host": host} if socket else {})).items())),
    ).render_as_string()


def load_driver() -> Any:
    """Import psycopg, or name the extra that brings it."""
    try:
        import psycopg
    except ImportError:
        raise LedgerError(
            "Expected psycopg to be installed for a PostgreSQL ledger: "
            "pip install 'torch-holdout[postgres]'"
        ) from None
    return psycopg


def pooled_engine(driver: Any, parameters: dict[str, Any]) -> sa.Engine:
    """Return an engine that keeps one connection between transactions, never across a fork."""

    def connect() -> Any:
        # Transactions are begun and committed by hand, so the driver must not begin its own.
        return driver.connect(
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
            tcp_user_timeout=1000 * WAIT_SECONDS,
            **({"application_name": "torch_holdout"} | parameters),
        )

    engine = quiet_engine(
        "postgresql+psycopg://",
        creator=connect,
        pool_size=1,
        max_overflow=63,
        pool_timeout=WAIT_SECONDS,
        pool_reset_on_return=None,
        use_native_hstore=False,
    )
    _install_events(engine, driver)
    _engines.add(engine)
    return engine


def _install_events(engine: sa.Engine, driver: Any) -> None:
    sa.event.listen(engine, "connect", _connected)
    sa.event.listen(engine, "checkout", _checked_out)
    sa.event.listen(engine, "reset", _returned)

    @sa.event.listens_for(engine, "commit")
    def commit(connection: sa.Connection) -> None:
        # By hand: a server answers COMMIT of a failed transaction with a quiet ROLLBACK.
        held: Any = connection.connection
        try:
            if held.info["process"] != os.getpid():
                raise driver.OperationalError("a transaction was carried over a fork")
            held.info["warned"] = False
            done = held.driver_connection.execute("COMMIT", prepare=False).statusmessage
            if done != "COMMIT":
                raise driver.OperationalError("the transaction was lost before it was committed")
            if held.info["warned"]:  # e.g. a wait for a replica was cancelled
                raise driver.OperationalError("the server warned that the commit is not safe")
        except driver.Error as error:
            connection.invalidate(error)
            raise


def _connected(connection: Any, record: Any) -> None:
    if connection.info.server_version >= 14_00_00:
        connection.execute(f"SET idle_session_timeout = '{2 * _IDLE_SECONDS}s'")
    record.info["process"], record.info["used"] = os.getpid(), time.monotonic()
    connection.add_notice_handler(lambda notice: record.info.update(warned=True))


def _checked_out(connection: Any, record: Any, _: Any) -> None:
    if connection.closed or time.monotonic() - record.info["used"] > _IDLE_SECONDS:
        raise sa.exc.DisconnectionError


def _returned(connection: Any, record: Any, _: Any) -> None:
    record.info["used"] = time.monotonic()
    if not connection.closed and record.info["process"] == os.getpid():
        connection.rollback()


def _forget_connections() -> None:
    """Leave the parent's connections alone in a forked child: they are neither used nor closed."""
    for engine in _engines:
        _inherited.append(engine.pool)
        engine.dispose(close=False)


def end(engine: sa.Engine, process: int) -> None:
    """Close the connections that this process has opened itself."""
    if os.getpid() == process:
        engine.dispose()


_engines: "WeakSet[sa.Engine]" = WeakSet()
_inherited: list[Any] = []
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_forget_connections)


def said(cause: BaseException | None) -> str:
    """Return the server's or driver's message, in one line and without a row's content."""
    primary = getattr(getattr(cause, "diag", None), "message_primary", None)
    if primary:  # what follows it may quote the row
        return str(primary)[:300]
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    text = next((line for line in lines if "failed:" in line), lines[0] if lines else "")
    return text.removeprefix("- ")[:300] or type(cause).__name__


def is_busy(cause: BaseException) -> bool:
    """Whether the server is there and will take clients later."""
    state = getattr(cause, "sqlstate", None)
    return state in _BUSY_STATES or any(text in str(cause) for text in _BUSY_TEXTS)


def is_final(cause: BaseException) -> bool:
    """Whether the server has answered with a no that another try will not change."""
    return any(
        word in str(cause) for word in ("authentication failed", "does not exist", "no pg_hba")
    )


def sentence(cause: BaseException | None, address: str) -> str:
    """Return the meaning of a failure and what to do, without a password."""
    text = said(cause)
    state = getattr(cause, "sqlstate", None)
    for words, meaning in _SENTENCES.items():
        if any(word in text or word == state for word in words):
            return f"{meaning} ({address}: {text})."
    return f"The ledger {address} could not be used ({text})."


_SENTENCES = {
    ("28P01", "password authentication failed", "no password supplied"): (
        "Expected the right password in PGPASSWORD or a pgpass file, but the server refused it"
    ),
    ("3D000", 'database "'): "Expected an existing database; create it with createdb",
    ("28000", "no pg_hba", 'role "'): "Expected a user that the server knows and lets in",
    ("42501", "permission denied"): (
        f"Expected the right to use or create the schema {SCHEMA}; let its owner grant it, or an "
        f"administrator run CREATE SCHEMA {SCHEMA} AUTHORIZATION <user>"
    ),
    ("42P01", "3F000"): (
        "Expected the ledger's tables, but they were dropped; a new ledger would be a new budget, "
        "so none was created. Restore them from a backup"
    ),
    ("55P03",): (
        f"Another process held the account for more than {WAIT_SECONDS} seconds; try again"
    ),
    ("57014",): f"The server stopped a statement after {STATEMENT_SECONDS} seconds; try again",
    ("53300", "too many clients"): "The server has too many clients; raise max_connections",
    ("Connection refused", "timeout expired", "timed out", "could not translate", "resolve"): (
        "Expected a PostgreSQL server that can be reached; check host and port"
    ),
    ("No such file or directory",): "Expected a PostgreSQL server's socket in that folder",
}
