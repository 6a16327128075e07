"""Sealed runs of an account, as anyone may read them."""

import json

import sqlalchemy as sa

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

    def compared(self, account: str) -> dict[str, int]:
        """Return how many ended runs have values of each statistic."""
        with self._transaction(reads_only=True) as connection:
            if self._version < schema.WITH_SEALED:
                return {}
            own, event = schema.sealed_runs.c, schema.run_events.c
            of = (event.holdout_id == own.holdout_id) & (event.run == own.run)
            ended = own.state.in_(("stopped", "ended")) & (event.kind == "evaluate")
            row = self._row(connection, statements.HOLDOUT, account)
            told = sa.select(event.run, event.detail).where(of, ended, own.holdout_id == row.id)
            # Not of the sums themselves: nothing secret is read.
            runs: dict[str, set[int]] = {}
            for run, detail in connection.execute(told):
                for statistic in json.loads(detail)["sums"]:
                    runs.setdefault(statistic, set()).add(run)
            return {statistic: len(numbers) for statistic, numbers in runs.items()}

    def closing(self, account: str) -> StoredClosing | None:
        """Return what closing has published; None while the account is open."""
        with self._transaction(reads_only=True) as connection:
            if self._version < schema.WITH_SEALED:
                return None
            row = self._row(connection, statements.HOLDOUT, account)
            return read_closing(connection, row.id)
