"""When sealed runs were begun, evaluated and ended: public, as their events are."""

from dataclasses import dataclass
from typing import final

import sqlalchemy as sa

from torch_holdout.ledger.run_events import LIVE
from torch_holdout.ledger.schema import run_events

_ENDS = ("stop", "end", "give_up")


@final
@dataclass(frozen=True)
class RunTimes:
    """When a run was begun, when it was last evaluated, and when it ended; None while it is open.

    Example:
        >>> RunTimes("2026-11-03T09:05:00.000+00:00", "2026-11-03T10:15:00.000+00:00").ended_at
    """

    begun_at: str
    last_at: str
    ended_at: str | None = None


def read_run_times(connection: sa.Connection, holdout_id: int) -> dict[int, RunTimes]:
    """Read when the runs of an account took place, by their numbers."""
    event = run_events.c

    def last_of(*kinds: str) -> sa.ColumnElement[str | None]:
        return sa.func.max(sa.case((event.kind.in_(kinds), event.asked_at)))

    times = (sa.func.min(event.asked_at), last_of("begin", "evaluate"), last_of(*_ENDS))
    of = (event.holdout_id == holdout_id) & (event.run != LIVE)
    rows = connection.execute(sa.select(event.run, *times).where(of).group_by(event.run))
    return {run: RunTimes(*own) for run, *own in rows}
