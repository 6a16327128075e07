"""From a PostgreSQL URL to connection parameters and one canonical address without a secret."""

from typing import Any

from sqlalchemy.engine import URL

from torch_holdout.errors import LedgerError

_DRIVER = "postgresql+psycopg"
_PORT = 5432
# What may be asked of the connection. Everything else could hide a password, point to another
# server or switch off a setting that a budget depends on.
_OPTIONS = frozenset(
    ("host", "sslmode", "sslrootcert", "sslcert", "sslkey", "passfile", "application_name")
)


def connection_parameters(url: URL) -> dict[str, Any]:
    """Return what to connect with; refuse what is missing, unknown or ambiguous."""
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
    """Write the same ledger in the same way, whatever was left out."""
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
