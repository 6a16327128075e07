"""The public events of sealed runs, and what they have said, written once more from the formulas.

Nothing here is taken from the package's prices: this is what they are checked against.
"""

import json
import math

import sqlalchemy as sa
from torch_holdout.ledger import schema


def events_of(holdout):
    """All public events of an account, oldest first, as dictionaries."""
    table = schema.run_events
    with holdout._ledger._transaction(reads_only=True) as connection:
        row = connection.execute(
            sa.select(schema.holdouts.c.id).where(schema.holdouts.c.account == holdout._attached())
        ).one()
        chosen = sa.select(table).where(table.c.holdout_id == row.id).order_by(table.c.position)
        rows = [dict(event) for event in connection.execute(chosen).mappings()]
    for event in rows:
        event["detail"] = json.loads(event["detail"] or "{}")
    return rows


def share(position, planned):
    """.9/m for planned positions, and .1/(k(k+1)) for all."""
    return (0.9 / planned if position <= planned else 0.0) + 0.1 / (position * (position + 1))


class Said:
    """One run, followed event by event: what it has said so far, in nats."""

    def __init__(self, rule, evaluations, *, silence=True):
        self.stop, self.evaluations, self.silence = rule["stop"], evaluations, silence
        self.passes, self.end, self.best = 0, None, None

    def add(self, event):
        if event["kind"] == "evaluate":
            self.passes = event["detail"]["pass"] or self.passes
        else:
            self.end, self.best = event["kind"], event["evaluation"]

    @property
    def nats(self):
        if self.stop is None:
            return 0.0
        patience, after = self.stop["patience"], self.stop["after"]
        if self.end == "stop":
            return math.log(2) - math.log(share(self.passes, self.evaluations))
        if self.end == "end" and self.best is not None:
            return math.log(2) + math.log(min(self.passes - after, patience))
        if not self.silence:
            return 0.0
        stops = range(after + patience + 1, self.passes + 1)
        return -math.log(1 - sum(share(t, self.evaluations) for t in stops) / 2)


def said_before(events, evaluations, **law):
    """For each evaluation, the event and what all other runs had said before it."""
    runs, found = {}, []
    for event in events:
        if event["kind"] == "begin":
            runs[event["run"]] = Said(event["detail"], evaluations, **law)
        elif event["kind"] != "close":
            if event["kind"] == "evaluate":
                others = [run.nats for number, run in runs.items() if number != event["run"]]
                found.append((event, math.fsum(others)))
            runs[event["run"]].add(event)
    return found


def symbols_before(events, position):
    """What was public before a position: who evaluated, in which pass, and how runs ended."""
    return tuple(
        (event["run"], event["kind"], event["evaluation"], event["detail"].get("pass"))
        for event in events
        if event["position"] < position
    )
