"""The public events of sealed runs, and what they have said, written once more from the formulas.

Nothing here is taken from the package's prices: this is what they are checked against.
"""

import json
import math
from collections import defaultdict

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


class SaidOnRequest:
    """Record bits, winners and keeps, followed event by event: what they have said, in nats."""

    def __init__(self):
        self.winners, self.ranks, self.bits, self.keeps = 0.0, 1.0, [], []

    def add(self, event):
        value, choices = event["detail"]["value"], event["detail"]["choices"]
        if event["kind"] == "winner":
            self.winners += math.log(choices)
        elif event["kind"] == "challenge" and choices > 1:
            self.keeps.append(value)
        elif event["kind"] == "record" and choices > 1:
            self.bits.append(value)
            self.ranks *= 1 / choices if value else 1 - 1 / choices

    @property
    def nats(self):
        mixture = (self.ranks + kt(self.bits)) / 2
        return self.winners - math.log(mixture) - math.log(kt(self.keeps))


def kt(bits):
    """The probability of some bits, each by how many ones came before it."""
    chance = 1.0
    for before, bit in enumerate(bits):
        one = (sum(bits[:before]) + 0.5) / (before + 1)
        chance *= one if bit else 1 - one
    return chance


def said_before(events, evaluations, *, symbols=True, **law):
    """For each evaluation, the event and what all but its own run had said before it."""
    runs, found, requested = {}, [], SaidOnRequest()
    for event in events:
        if event["kind"] == "begin":
            runs[event["run"]] = Said(event["detail"], evaluations, **law)
        elif event["kind"] in ("record", "winner", "challenge"):
            requested.add(event)
        elif event["kind"] != "close":
            if event["kind"] == "evaluate":
                others = [run.nats for number, run in runs.items() if number != event["run"]]
                found.append((event, math.fsum([*others, requested.nats if symbols else 0.0])))
            runs[event["run"]].add(event)
    return found


def symbols_before(events, position):
    """What was public before a position: who evaluated, in which pass, how runs ended, symbols."""
    return tuple(
        (
            *(event["run"], event["kind"], event["evaluation"]),
            *(event["detail"].get(name) for name in ("pass", "run", "value")),
        )
        for event in events
        if event["position"] < position
    )


def sums_of_prefixes(histories, nats):
    """By run and evaluation: the sum of exp(-nats) over the prefixes at which it can happen."""
    found = defaultdict(dict)
    for events in histories:
        for event, said in nats(events):
            prefix = symbols_before(events, event["position"])
            known = found[event["run"], event["evaluation"]].setdefault(prefix, said)
            assert known == said  # it depends on what is public, and on nothing else
    return {key: sum(math.exp(-said) for said in each.values()) for key, each in found.items()}


def recorded(events):
    """For each evaluation, the event and what it records as said before it."""
    return [(event, event["nats"]) for event in events if event["kind"] == "evaluate"]
