"""Sealed runs of an account, as anyone may read them."""

from torch_holdout.ledger import schema, statements
from torch_holdout.ledger.run_events import StoredRun
from torch_holdout.ledger.run_times import RunTimes, read_run_times
from torch_holdout.ledger.sealed_runs import StoredClosing, read_closing, read_runs
from torch_holdout.ledger.transactions import OpenLedger


class RunsLedger(OpenLedger):
    """A ledger that can be asked for sealed runs; ledgers before them have none."""

    def runs(self, account: str) -> list[StoredRun]:
        """Return the sealed runs, in the order they were begun."""
        with self._transaction(reads_only=True) as connection:
            if self._version < schema.WITH_SEALED:
                return []
            row = self._row(connection, statements.HOLDOUT, account)
            return read_runs(connection, row.id)

    def run_times(self, account: str) -> dict[int, RunTimes]:
        """Return when the sealed runs took place, by their numbers."""
        with self._transaction(reads_only=True) as connection:
            if self._version < schema.WITH_SEALED:
                return {}
            return read_run_times(connection, self._row(connection, statements.HOLDOUT, account).id)

    def closing(self, account: str) -> StoredClosing | None:
        """Return what closing has published; None while the account is open."""
        with self._transaction(reads_only=True) as connection:
            if self._version < schema.WITH_SEALED:
                return None
            row = self._row(connection, statements.HOLDOUT, account)
            return read_closing(connection, row.id)
