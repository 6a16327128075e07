"""The replay of sealed runs: whether events, prices, secrets and closing fit together."""

import heapq
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from torch_holdout.errors import HoldoutError
from torch_holdout.ledger.challenges import ReplayedChallenges
from torch_holdout.ledger.registration import UNREADABLE, StoredRegistration
from torch_holdout.ledger.replay import Chain, Problem, StoredRow, raise_first, stored_rows
from torch_holdout.ledger.run_events import LIVE, Event, State, StoredRun, part_names
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
    registered = _registered(account)
    mechanism = None if registered is None else _mechanism(registered)
    replayed = _Replay() if mechanism is None else _SealedReplay(account["budget"], mechanism)
    for row in rows:
        yield from _numbered((row["position"], text) for text in replayed.add(Event.of_row(row)))
    stored = [replace(run, label=None, weights=None) for run in read_runs(connection, own)]
    if stored != replayed.runs:
        yield None, "its runs do not stand as their events say"
    if (end.closed_at is not None) != replayed.is_closed:
        yield None, "whether it is closed does not agree with its events"
    yield from _sum_problems(connection, own, replayed, registered)


def require_runs_fit(connection: sa.Connection, row: Any, address: str) -> None:
    """Raise ``LedgerError`` if an account's sealed runs and closing do not fit together."""
    raise_first(run_problems(connection, row._mapping), row.name, address)


def _numbered(problems: Iterable[Problem]) -> Iterator[Problem]:
    for position, text in problems:
        yield None, text if position is None else f"event {position} of its runs: {text}"


def _registered(account: StoredRow) -> StoredRegistration | None:
    try:
        registered = StoredRegistration.parse(account["registration"])
        _ = registered.quotients
    except UNREADABLE:
        return None
    return registered


def _mechanism(registered: StoredRegistration) -> Sealed | None:
    try:
        mechanism = registered.mechanism()
    except (HoldoutError, *UNREADABLE):  # an account without one, or of another library
        return None
    return mechanism if isinstance(mechanism, Sealed) else None


class _Replay:
    """An account as its events make it; one that is not sealed can only be closed."""

    def __init__(self) -> None:
        self.runs: list[StoredRun] = []
        self.sums: dict[int, set[tuple[int, str]]] = {}  # evaluations and statistics, by run
        self.is_closed = False
        self.closing: dict[str, Any] = {}

    def add(self, event: Event) -> Iterator[str]:
        """Take one event; yield what is wrong with it."""
        if self.is_closed:
            yield "it comes after closing"
        if event.kind == "close":
            self.is_closed, self.closing = True, event.content
        else:
            yield from self._take(event)

    def _take(self, event: Event) -> Iterator[str]:
        yield "a run of a holdout that is not sealed"


class _SealedReplay(_Replay):
    """A sealed account: its runs, and what it has said."""

    def __init__(self, budget: int, mechanism: Sealed) -> None:
        super().__init__()
        self._mechanism = mechanism
        self._said = Said((), 0.0, mechanism)
        self._shares = _Shares(budget)
        self._queries: dict[tuple[int, int], str | None] = {}
        self._first: dict[int, float | None] = {}  # what others had said at a run's beginning
        self._symbols: dict[str, Symbol] = {}  # the latest of each kind
        self._recorded: set[int] = set()  # runs whose record bit was said
        self._challenges = ReplayedChallenges()
        self._ended: dict[int, int] = {}  # in which order they ended
        self._values: dict[tuple[int, str], int] = {}  # sums by run and statistic

    def _take(self, event: Event) -> Iterator[str]:
        if event.kind in KINDS:
            yield from self._say(event)
        elif event.kind == "begin":
            yield from self._begin(event)
        elif not 1 <= event.run <= len(self.runs) or not self._takes(event):
            yield "its run is not open"
        elif event.kind == "evaluate":
            yield from self._evaluate(event)
        elif event.kind in _ENDS:
            yield from self._end(event)
        else:
            yield "an event of an unknown kind"

    def _takes(self, event: Event) -> bool:
        """Whether a run is open; an ended one takes other statistics of known evaluations.

        One that ended without a word can be given up, for free.
        """
        run = self.runs[event.run - 1]
        if run.state == "open" or (event.kind == "give_up" and run.ended_silently):
            return True
        known = (run.run, event.evaluation or 0) in self._queries
        own = event.kind != "evaluate" or event.passes is not None
        return known and not own and run.share is not None

    def _begin(self, event: Event) -> Iterator[str]:
        share = self._shares.take()
        if share is None:
            yield "a run beyond the budget"
        if event.run != len(self.runs) + 1:
            yield "runs are not numbered in order"
        rule = json.loads(event.detail or "")
        self.runs.append(StoredRun(len(self.runs) + 1, share, None, rule, "open", 0, 0, None))

    def _evaluate(self, event: Event) -> Iterator[str]:
        run, number, content = self.runs[event.run - 1], event.evaluation or 0, event.content
        known = self._queries.setdefault((run.run, number), event.query)
        if not 1 <= number <= run.evaluations + 1 or known != event.query:
            yield "evaluations are not numbered in order"
        if content["pass"] not in (None, run.passes + 1):
            yield "passes are not numbered in order"
        if event.nats is None or not _same(event.nats, self._said.by_others(run.run)):
            yield "what others had said is not what it records"
        self._first.setdefault(run.run, event.nats)
        for name in content["sums"]:
            self.sums.setdefault(run.run, set()).add((number, name))
            self._values[run.run, name] = self._values.get((run.run, name), 0) + 1
        self._stands(
            replace(
                run,
                evaluations=max(number, run.evaluations),
                passes=run.passes + (content["pass"] is not None),
            )
        )

    def _end(self, event: Event) -> Iterator[str]:
        run = self.runs[event.run - 1]
        ended = replace(
            run,
            state=_ENDS[event.kind],
            best=event.evaluation,
            best_pass=event.content.get("best_pass"),
        )
        silent = run.patience is None or run.passes < run.patience.earliest_stop
        free = silent and self._first.get(run.run) in (None, self._said.by_others(run.run))
        if event.kind == "stop" and silent:
            yield "it stopped before its patience could"
        if event.nats is None or not _same(event.nats, ended.said(self._mechanism)):
            yield "its price is not what the registered law gives"
        if event.kind != "give_up":
            self._ended[run.run] = len(self._ended)
        elif free:
            self._shares.give_back(run.share)
            ended = replace(ended, share=None)
            for _, name in self.sums.pop(run.run, ()):
                self._values.pop((run.run, name), None)
        elif run.state == "ended":
            yield "it had ended, and giving it up was not free"
        self._stands(ended)

    def _stands(self, run: StoredRun) -> None:
        self.runs[run.run - 1] = run
        self._said.take(run)

    def _say(self, event: Event) -> Iterator[str]:
        """Take a symbol: its run has ended, and its price is that of the registered law."""
        said = Symbol.of_event(event)
        private = self._mechanism.epsilon is not None
        if event.run != LIVE or said.run not in self._ended or private:
            yield "it is not about an ended run of an account without noise"
            return
        expected = Symbol.following(
            self._symbols.get(said.kind),
            self._said.symbols,
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
        if said.kind == "record" and said.run in self._recorded:
            yield "whether this run is a record was said before"
        if said.kind == "record":
            self._recorded.add(said.run)
        if said.kind == "challenge":
            best = self.runs[said.run - 1].statistic
            yield from self._challenges.problems(said, best, self._queries)
        self._symbols[said.kind], self._said.symbols = said, said.said

    def _compared(self, said: Symbol) -> bool:
        """Whether a symbol is about as many runs and sums as there were."""
        statistic, record = said.detail["statistic"], said.kind == "record"
        last = self._ended[said.run] if record else len(self._ended)
        compared = [run for run, order in self._ended.items() if order <= last]
        counts = {n: self._values[n, statistic] for n in compared if (n, statistic) in self._values}
        if said.run not in counts or said.choices != len(counts):
            return False
        if record:
            return said.value in ((1,) if said.choices == 1 else (0, 1))
        return said.value == said.run and said.detail["values"] == sum(counts.values())


class _Shares:
    """The shares of a budget: a run takes the lowest that is free."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._next = 1
        self._returned: list[int] = []  # a heap, all below the next

    def take(self) -> int | None:
        """Take the lowest free share; None if there is none."""
        if self._returned:
            return heapq.heappop(self._returned)
        self._next += 1
        return self._next - 1 if self._next - 1 <= self._budget else None

    def give_back(self, share: int | None) -> None:
        """Give a share back."""
        if share is not None:
            heapq.heappush(self._returned, share)


def _same(nats: float, expected: float) -> bool:
    return abs(nats - expected) <= _EXACT_NATS


def _sum_problems(
    connection: sa.Connection, own: int, replayed: _Replay, registered: StoredRegistration | None
) -> Iterator[Problem]:
    """Yield lost and superfluous sums; secret ones are not read."""
    kept, published = _keys(connection, secret_sums, own), _keys(connection, closed_sums, own)
    made = _made(replayed, registered)
    if not replayed.is_closed:
        if {key for key in kept if key[0] != LIVE} != made:
            yield None, "the secret sums are not those of its evaluations"
        if published:
            yield None, "there are published sums, but it is not closed"
    else:
        if kept:
            yield None, "there are secret sums, but it is closed"
        exact = bool(replayed.closing["exact"])
        if {key for key in published if key[0] != LIVE} != (made if exact else set()):
            yield None, "the published sums are not those of its evaluations"
        yield from _published_problems(connection, own, replayed.closing["sums"], registered)
    still_open = {run.run for run in replayed.runs if run.state == "open" and run.passes}
    secrets = sa.select(secret_runs.c.run).where(secret_runs.c.holdout_id == own)
    expected = set() if replayed.is_closed else still_open
    if set(connection.execute(secrets).scalars()) != expected:
        yield None, "an open run has lost its secret state, or an ended one has kept it"


def _published_problems(
    connection: sa.Connection, own: int, digest: str, registered: StoredRegistration | None
) -> Iterator[Problem]:
    of = sa.select(closed_sums).where(closed_sums.c.holdout_id == own)
    ordered = connection.execute(of.order_by(*closed_sums.primary_key.columns)).mappings()
    rows = [dict(row) for row in ordered]
    if sums_digest(rows) != digest:
        yield None, "the published sums were edited: closing says otherwise"
    elif not _ratios_fit(rows, registered):
        yield None, "a published ratio is not the quotient of its two sums"


def _made(replayed: _Replay, registered: StoredRegistration | None) -> set[tuple[int, int, str]]:
    """Return the keys of the sums that sealed evaluations have made, with the parts of ratios."""
    ratios = {} if registered is None else registered.quotients
    return {
        (run, number, own)
        for run, each in replayed.sums.items()
        for number, name in each
        for own in (name, *(part_names(name) if name in ratios else ()))
    }


def _ratios_fit(rows: Iterable[dict[str, Any]], registered: StoredRegistration | None) -> bool:
    """Whether every published ratio has its two sums, and is their quotient."""
    if registered is None or not registered.quotients:
        return True
    totals = {(row["run"], row["evaluation"], row["statistic"]): row["total"] for row in rows}
    ratios = registered.quotients
    largest = {name: registered.statistics[name].units * registered.resolution for name in ratios}
    for (run, evaluation, name), total in totals.items():
        if name in ratios:
            above, below = (totals.get((run, evaluation, part)) for part in part_names(name))
            if above is None or below is None:
                return False
            if ratios[name].total(above, below, largest[name]) != total:
                return False
    return True


def _keys(connection: sa.Connection, table: sa.Table, own: int) -> set[tuple[int, int, str]]:
    columns = (table.c.run, table.c.evaluation, table.c.statistic)
    rows = connection.execute(sa.select(*columns).where(table.c.holdout_id == own))
    return {(run, evaluation, statistic) for run, evaluation, statistic in rows}
