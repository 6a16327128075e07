"""What a call did, as far as it can be watched: statements, writes, and texts of its errors."""

import sqlite3
import traceback
from contextlib import contextmanager

import sqlalchemy as sa


@contextmanager
def watched_work(holdout, path):
    """Yield a function that makes a call on an open SQLite ledger, and returns what it did.

    For each call: its statements, and by how much the write-ahead log grew.
    """
    statements = []

    def note(connection, cursor, statement, parameters, context, many):
        statements.append(statement)

    sa.event.listen(holdout._ledger._connected, "before_cursor_execute", note)
    # While another reader is at it, the write-ahead log stays and shows what was written.
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM th_holdouts").fetchone()
    log = path.with_name(f"{path.name}-wal")

    def work(call):
        statements.clear()
        before = log.stat().st_size if log.exists() else 0
        call()
        return list(statements), log.stat().st_size - before

    yield work
    reader.close()


def taken_along(error):
    """All texts of an error: its messages, and what the package's frames hold."""
    texts = []
    while error is not None:
        texts += [str(error), repr(error.args)]
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if "torch_holdout" in frame.f_code.co_filename:
                texts += [repr(local) for local in frame.f_locals.values()]
        error = error.__cause__ or error.__context__
    return texts
