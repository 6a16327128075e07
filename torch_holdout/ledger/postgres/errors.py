"""What a PostgreSQL failure means, in a sentence that says what to do."""

from torch_holdout.ledger.backend import WAIT_SECONDS
from torch_holdout.ledger.postgres.schema import SCHEMA

STATEMENT_SECONDS = 2 * WAIT_SECONDS
_BUSY_STATES = ("57P03", "53300")  # starting up or shutting down; too many clients
_BUSY_TEXTS = ("starting up", "shutting down", "too many clients", "recovery mode", "not yet")


def said(cause: BaseException | None) -> str:
    """Return what the server or the driver said, in one line and without a row's content."""
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
    """Say what a failure means and what to do about it; neither has a password in it."""
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
        "so none was made. Restore them from a backup"
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
