"""The replay of sealed runs: whether events, prices, secrets and closing fit together."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from torch_holdout.errors import HoldoutError
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration
from torch_holdout.ledger.replay import Chain, Problem, StoredRow, raise_first, stored_rows
from torch_holdout.ledger.run_events import LIVE, Event, State, StoredRun
from torch_holdout.ledger.schema import (
    closed_sums,
    run_ends,
    run_events,
    sealed_runs,
    secret_runs,
    secret_sums,
)
from torch_holdout.ledger.sealed_runs import read_runs, sums_digest
from torch_holdout.ledger.symbols import KINDS, Said, Symbol
from torch_holdout.mechanisms.sealed import Sealed

_ENDS: dict[str, State] = {"stop": "stopped", "end": "ended", "give_up": "given_up"}
_EXACT_NATS = 1e-9
_TRACES = sa.union_all(
    *(
        sa.select(table.c.holdout_id).where(table.c.holdout_id == sa.bindparam("holdout"))
        for table in (run_events, sealed_runs, secret_runs, closed_sums)
    ),
    sa.select(secret_sums.c.holdout_id).where(
        secret_sums.c.holdout_id == sa.bindparam("holdout"), secret_sums.c.run != LIVE
    ),
)


def run_problems(connection: sa.Connection, account: StoredRow) -> Iterator[Problem]:
    """Yield what does not fit among an account's sealed runs, their secrets and its closing."""
    own = account["id"]
    end = connection.execute(sa.select(run_ends).where(run_ends.c.holdout_id == own)).one_or_none()
    if end is None:  # no run was ever begun: only sums behind live answers may be there
        if connection.execute(_TRACES, {"holdout": own}).first() is not None:
            yield None, "there are runs or sums, but no event that ends their chain"
        return
    rows = list(stored_rows(connection, run_events, own))
    chain = Chain(f"{account['name']}/runs", Event)
    for row in rows:
        yield from _numbered(chain.problems(row))
    yield from _numbered(chain.end_problems(end.chain))
    if end.events != len(rows):
        yield None, "the number of events does not agree with the rows"
    replayed = _Replay(account["budget"], _mechanism(account))
    for row in rows:
        yield from _numbered((row["position"], text) for text in replayed.add(Event.of_row(row)))
    stored = [replace(run, label=None, weights=None) for run in read_runs(connection, own)]
    if stored != replayed.runs:
        yield None, "its runs do not stand as their events say"
    if (end.closed_at is not None) != replayed.is_closed:
        yield None, "whether it is closed does not agree with its events"
    yield from _sum_problems(connection, own, replayed)


def require_runs_fit(connection: sa.Connection, row: Any, address: str) -> None:
    """Raise ``LedgerError`` if an account's sealed runs and closing do not fit together."""
    raise_first(run_problems(connection, row._mapping), row.name, address)


def _numbered(problems: Iterable[Problem]) -> Iterator[Problem]:
    for position, text in problems:
        yield None, text if position is None else f"event {position} of its runs: {text}"


def _mechanism(account: StoredRow) -> Sealed | None:
    try:
        mechanism = StoredRegistration.parse(account["registration"]).mechanism()
    except (HoldoutError, *UNREADABLE):  # an account without one, or of another library
        return None
    return mechanism if isinstance(mechanism, Sealed) else None


@dataclass
class _Replay:
    """The runs as their events make them."""

    budget: int
    mechanism: Sealed | None

    def __post_init__(self) -> None:
        self.runs: list[StoredRun] = []
        self.sums: set[tuple[int, int, str]] = set()
        self.queries: dict[tuple[int, int], str | None] = {}
        self.first: dict[int, float | None] = {}  # what others had said at a run's beginning
        self.symbols: dict[str, Symbol] = {}  # the latest of each kind
        self.symbols_said = 0.0
        self.recorded: set[int] = set()  # runs whose record bit was said
        self.ended: list[int] = []  # in the order they ended
        self.values: dict[tuple[int, str], int] = {}  # sums by run and statistic
        self.is_closed = False
        self.closing: dict[str, Any] = {}

    def add(self, event: Event) -> Iterator[str]:
        """Take one event; yield what is wrong with it."""
        if self.is_closed:
            yield "it comes after closing"
        if event.kind == "close":
            self.is_closed, self.closing = True, event.content
        elif self.mechanism is None:
            yield "a run of a holdout that is not sealed"
        elif event.kind in KINDS:
            yield from self._say(event, self.mechanism)
        else:
            yield from self._of_run(event, self.mechanism)

    def _of_run(self, event: Event, mechanism: Sealed) -> Iterator[str]:
        if event.kind == "begin":
            yield from self._begin(event)
        elif not 1 <= event.run <= len(self.runs) or not self._takes(event):
            yield "its run is not open"
        elif event.kind == "evaluate":
            yield from self._evaluate(event, mechanism)
        elif event.kind in _ENDS:
            yield from self._end(event, mechanism)
        else:
            yield "an event of an unknown kind"

    def _takes(self, event: Event) -> bool:
        """Whether a run is open; an ended one takes other statistics of known evaluations."""
        run = self.runs[event.run - 1]
        if run.state == "open":
            return True
        known = (run.run, event.evaluation or 0) in self.queries
        own = event.kind != "evaluate" or event.passes is not None
        return known and not own and run.share is not None

    def _begin(self, event: Event) -> Iterator[str]:
        taken = {run.share for run in self.runs}
        share = next((s for s in range(1, self.budget + 1) if s not in taken), None)
        if share is None:
            yield "a run beyond the budget"
        if event.run != len(self.runs) + 1:
            yield "runs are not numbered in order"
        rule = json.loads(event.detail or "")
        self.runs.append(StoredRun(len(self.runs) + 1, share, None, rule, "open", 0, 0, None))

    def _evaluate(self, event: Event, mechanism: Sealed) -> Iterator[str]:
        run, number, content = self.runs[event.run - 1], event.evaluation or 0, event.content
        known = self.queries.setdefault((run.run, number), event.query)
        if not 1 <= number <= run.evaluations + 1 or known != event.query:
            yield "evaluations are not numbered in order"
        if content["pass"] not in (None, run.passes + 1):
            yield "passes are not numbered in order"
        if event.nats is None or not _same(event.nats, self._others(run, mechanism)):
            yield "what others had said is not what it records"
        self.first.setdefault(run.run, event.nats)
        for name in content["sums"]:
            self.sums.add((run.run, number, name))
            self.values[run.run, name] = self.values.get((run.run, name), 0) + 1
        self.runs[event.run - 1] = replace(
            run,
            evaluations=max(number, run.evaluations),
            passes=run.passes + (content["pass"] is not None),
        )

    def _end(self, event: Event, mechanism: Sealed) -> Iterator[str]:
        run = self.runs[event.run - 1]
        ended = replace(
            run,
            state=_ENDS[event.kind],
            best=event.evaluation,
            best_pass=event.content.get("best_pass"),
        )
        silent = run.patience is None or run.passes < run.patience.earliest_stop
        free = silent and self.first.get(run.run) in (None, self._others(run, mechanism))
        if event.kind == "stop" and silent:
            yield "it stopped before its patience could"
        if event.nats is None or not _same(event.nats, ended.said(mechanism)):
            yield "its price is not what the registered law gives"
        if event.kind != "give_up":
            self.ended.append(run.run)
        if event.kind == "give_up" and free:
            ended = replace(ended, share=None)
            self.sums = {known for known in self.sums if known[0] != run.run}
        self.runs[event.run - 1] = ended

    def _others(self, run: StoredRun, mechanism: Sealed) -> float:
        return Said(self.runs, self.symbols_said, mechanism).by_others(run.run)

    def _say(self, event: Event, mechanism: Sealed) -> Iterator[str]:
        """Take a symbol: its run has ended, and its price is that of the registered law."""
        said = Symbol.of_event(event)
        if event.run != LIVE or said.run not in self.ended or mechanism.epsilon is not None:
            yield "it is not about an ended run of an account without noise"
            return
        expected = Symbol.following(
            self.symbols.get(said.kind),
            self.symbols_said,
            kind=said.kind,
            run=said.run,
            value=said.value,
            choices=said.choices,
            detail=said.detail,
        )
        if not (_same(said.nats, expected.nats) and _same(said.said, expected.said)):
            yield "its price is not what the registered law gives"
        if not all(map(_same, said.tally, expected.tally)):
            yield "what was said before is not what it records"
        if said.kind != "challenge" and not self._compared(said):
            yield "the runs it compares are not those that had ended"
        if said.kind == "record" and said.run in self.recorded:
            yield "whether this run is a record was said before"
        if said.kind == "record":
            self.recorded.add(said.run)
        self.symbols[said.kind], self.symbols_said = said, said.said

    def _compared(self, said: Symbol) -> bool:
        """Whether a symbol is about as many runs and sums as there were."""
        statistic, ended = said.detail["statistic"], self.ended
        if said.kind == "record":
            ended = ended[: ended.index(said.run) + 1]
        counts = {n: self.values[n, statistic] for n in ended if (n, statistic) in self.values}
        known = said.run in counts and said.choices == len(counts)
        if said.kind == "record":
            return known and said.value in ((1,) if said.choices == 1 else (0, 1))
        return known and said.value == said.run and said.detail["values"] == sum(counts.values())


def _same(nats: float, expected: float) -> bool:
    return abs(nats - expected) <= _EXACT_NATS


def _sum_problems(connection: sa.Connection, own: int, replayed: _Replay) -> Iterator[Problem]:
    """Yield lost and superfluous sums; secret ones are not read."""
    kept, published = _keys(connection, secret_sums, own), _keys(connection, closed_sums, own)
    if not replayed.is_closed:
        if {key for key in kept if key[0] != LIVE} != replayed.sums:
            yield None, "the secret sums are not those of its evaluations"
        if published:
            yield None, "there are published sums, but it is not closed"
    else:
        if kept:
            yield None, "there are secret sums, but it is closed"
        exact = bool(replayed.closing["exact"])
        if {key for key in published if key[0] != LIVE} != (replayed.sums if exact else set()):
            yield None, "the published sums are not those of its evaluations"
        of = sa.select(closed_sums).where(closed_sums.c.holdout_id == own)
        rows = connection.execute(of.order_by(*closed_sums.primary_key.columns)).mappings()
        if sums_digest([dict(row) for row in rows]) != replayed.closing["sums"]:
            yield None, "the published sums were edited: closing says otherwise"
    still_open = {run.run for run in replayed.runs if run.state == "open" and run.passes}
    secrets = sa.select(secret_runs.c.run).where(secret_runs.c.holdout_id == own)
    expected = set() if replayed.is_closed else still_open
    if set(connection.execute(secrets).scalars()) != expected:
        yield None, "an open run has lost its secret state, or an ended one has kept it"


def _keys(connection: sa.Connection, table: sa.Table, own: int) -> set[tuple[int, int, str]]:
    columns = (table.c.run, table.c.evaluation, table.c.statistic)
    rows = connection.execute(sa.select(*columns).where(table.c.holdout_id == own))
    return {(run, evaluation, statistic) for run, evaluation, statistic in rows}
