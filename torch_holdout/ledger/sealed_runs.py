"""Sealed runs of one account: public events in a chain, sums and references in secret tables."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, final

import sqlalchemy as sa

from torch_holdout._noise.streams import fresh_secret
from torch_holdout.errors import LedgerError
from torch_holdout.ledger.backend import library_version, now
from torch_holdout.ledger.chains import canonical, chained, first_link
from torch_holdout.ledger.run_events import (
    LIVE,
    Event,
    StoredRun,
    Sums,
    part_names,
    run_mark,
)
from torch_holdout.ledger.schema import (
    closed_sums,
    run_ends,
    run_events,
    sealed_runs,
    secret_runs,
    secret_sums,
)
from torch_holdout.ledger.statements import change
from torch_holdout.ledger.symbols import KINDS, Said, Symbol, SymbolKind
from torch_holdout.mechanisms import Sealed

_SILENT = canonical({"stop": None})[:-1]  # how the rule of a run without a patience begins
_WIDTH = 256
_DIGITS = 40  # of a sum of squares, so that its length tells nothing


@final
class SealedRuns:
    """The runs of one account inside an open, exclusive transaction."""

    def __init__(self, connection: sa.Connection, row: Any) -> None:
        self._connection = connection
        self._row = row
        self._own = {"holdout_id": row.id}

    @property
    def closed_at(self) -> str | None:
        """When the account was closed; None while it is open."""
        end = self._end()
        return None if end is None else end.closed_at

    def all(self) -> list[StoredRun]:
        """Return all runs, in the order they were begun."""
        return read_runs(self._connection, self._row.id)

    def find(self, mark: str, number: int | None = None) -> StoredRun | None:
        """Return the run of a public id; its ``number``, if it is known, saves the search."""
        account = self._row.account
        if number is None or run_mark(account, number) != mark:
            numbers = self._scalars(sa.select(sealed_runs.c.run).where(self._of(sealed_runs)))
            number = next((n for n in numbers if run_mark(account, n) == mark), None)
        found = [] if number is None else read_runs(self._connection, self._row.id, number)
        return found[0] if found else None

    def begin(self, rule: dict[str, Any], label: str | None, *, seeded: bool) -> StoredRun | None:
        """Begin a run with the lowest free share; None if the budget has none left."""
        shares = self._scalars(sa.select(sealed_runs.c.share).where(self._of(sealed_runs)))
        share = lowest_free(shares, self._row.budget)
        if share is None:
            return None
        begun = StoredRun(len(shares) + 1, share, label, rule, "open", 0, 0, None)
        row = self._own | asdict(begun) | {"rule": canonical(rule)}
        change(self._connection, sealed_runs.insert(), row)
        self.add(Event(begun.run, "begin", detail=canonical(rule), seeded=seeded))
        return begun

    def add(self, event: Event, *, closed: bool = False) -> None:
        """Write an event at the end of the chain; with ``closed``, the account's last."""
        end = self._end()
        events, link = (0, first_link(f"{self._row.name}/runs"))
        if end is not None:
            events, link = end.events, end.chain
            if end.closed_at is not None:
                raise LedgerError("An event after closing was stopped; nothing was recorded.")
        position, at = events + 1, now()
        row = asdict(event) | {"asked_at": at, "version": library_version()}
        chain = chained(link, position, row)
        own = self._own | {"position": position}
        change(self._connection, run_events.insert(), own | row | {"chain": chain})
        ends = {"events": position, "chain": chain, "closed_at": at if closed else None}
        if end is None:
            change(self._connection, run_ends.insert(), self._own | ends)
        else:
            change(self._connection, run_ends.update().where(self._of(run_ends)).values(**ends))

    def update(self, run: int, **columns: Any) -> None:
        """Change how a run stands."""
        which = self._of(sealed_runs, run)
        change(self._connection, sealed_runs.update().where(which).values(**columns))

    def evaluations_of(self, run: int, query: str) -> list[Event]:
        """Return the evaluations of some weights in a run, oldest first."""
        which = sa.select(run_events).where(
            self._of(run_events, run), run_events.c.kind == "evaluate", run_events.c.query == query
        )
        rows = self._connection.execute(which.order_by(run_events.c.position)).mappings()
        return [Event.of_row(row) for row in rows]

    def said_at_first(self, run: int) -> float | None:
        """Return what others had said at the first evaluation of a run, if it has one."""
        which = sa.select(run_events.c.nats).where(
            self._of(run_events, run), run_events.c.kind == "evaluate"
        )
        return self._connection.execute(which.order_by(run_events.c.position)).scalars().first()

    def said_by_others(self, run: int, mechanism: Sealed) -> float:
        """Return what an evaluation of a run pays now, in nats; silent runs are not read."""
        speaking = read_runs(self._connection, self._row.id, speaking=True)
        return Said(speaking, self.symbols_said(), mechanism).by_others(run)

    def symbols(self, kind: SymbolKind | None = None) -> list[Symbol]:
        """Return what the account has said on request, of one kind or all, oldest first."""
        return read_symbols(self._connection, self._row.id, KINDS if kind is None else (kind,))

    def symbols_said(self) -> float:
        """Return the prices of all symbols so far."""
        latest = self._latest(KINDS)
        return 0.0 if latest is None else latest.said

    def say(
        self,
        kind: SymbolKind,
        *,
        run: int,
        value: int,
        choices: int,
        detail: Mapping[str, Any] | None = None,
        seeded: bool,
    ) -> Symbol:
        """Write a symbol with its price by the registered law; show it after the commit only.

        Args:
            kind: ``"record"``, ``"winner"`` or ``"challenge"``.
            run: The run it is about.
            value: The bit, or the winner's number.
            choices: Among how many runs; 1 if the value is certain, which costs nothing.
            detail: More of it, public too.
            seeded: Whether noise comes from a test seed.
        """
        symbol = Symbol.following(
            self._latest((kind,)),
            self.symbols_said(),
            kind=kind,
            run=run,
            value=value,
            choices=choices,
            detail=detail or {},
        )
        self.add(symbol.event(seeded=seeded))
        return symbol

    def sums(self, run: int, evaluation: int) -> dict[str, Sums]:
        """Return the sums of one evaluation, by statistic and by part of one. Raw."""
        columns = (secret_sums.c.statistic, secret_sums.c.total, secret_sums.c.squares)
        which = sa.select(*columns).where(
            self._of(secret_sums, run), secret_sums.c.evaluation == evaluation
        )
        return {s: _sums(total, sq) for s, total, sq in self._connection.execute(which)}

    def totals(self, run: int, statistic: str) -> list[int]:
        """Return the sums of a run's passes whose sums are kept, oldest first. Raw."""
        of = (secret_sums.c.holdout_id == run_events.c.holdout_id) & (
            secret_sums.c.run == run_events.c.run
        )
        same = of & (secret_sums.c.evaluation == run_events.c.evaluation)
        chosen = (
            sa.select(secret_sums.c.total, run_events.c.detail)
            .join(run_events, same)
            .where(self._of(run_events, run), secret_sums.c.statistic == statistic)
            .where(run_events.c.kind == "evaluate")
            .order_by(run_events.c.position)
        )
        rows = self._connection.execute(chosen)
        return [int(total) for total, detail in rows if json.loads(detail)["pass"] is not None]

    def ended(self) -> list[int]:
        """Return the runs that patience has stopped or their analyst has ended, in that order."""
        which = sa.select(run_events.c.run).where(
            self._of(run_events), run_events.c.kind.in_(("stop", "end"))
        )
        return self._scalars(which.order_by(run_events.c.position))

    def bests(self, statistic: str, *, higher: bool) -> dict[int, tuple[int, int]]:
        """Return each run's best sum, higher for the better, and how many it has. Raw."""
        best = sa.func.max(secret_sums.c.total if higher else -secret_sums.c.total)
        chosen = (
            sa.select(secret_sums.c.run, best, sa.func.count())
            .where(self._of(secret_sums), secret_sums.c.statistic == statistic)
            .group_by(secret_sums.c.run)
        )
        rows = self._connection.execute(chosen)
        return {run: (int(total), int(count)) for run, total, count in rows}

    def keep_sums(self, run: int, evaluation: int, sums: Mapping[str, Sums]) -> None:
        """Keep the sums of an evaluation until closing."""
        parts = {
            name: part
            for statistic, own in sums.items()
            for name, part in zip(part_names(statistic), own.parts, strict=False)
        }
        for statistic, own in {**sums, **parts}.items():
            squares = None if own.squares is None else f"{own.squares:0{_DIGITS}d}"
            row = {"statistic": statistic, "total": own.total, "squares": squares}
            keys = self._own | {"run": run, "evaluation": evaluation}
            change(self._connection, secret_sums.insert(), keys | row)

    def erase_sums(self, run: int) -> None:
        """Erase the sums of a run that was given up before it could have said anything."""
        self._connection.execute(secret_sums.delete().where(self._of(secret_sums, run)))

    def secret(self, run: int) -> dict[str, Any] | None:
        """Return what the rule of an open run compares with. Raw."""
        which = sa.select(secret_runs.c.state).where(self._of(secret_runs, run))
        kept = self._connection.execute(which).scalar_one_or_none()
        return None if kept is None else dict(json.loads(kept)["state"])

    def keep_secret(self, run: int, state: Mapping[str, Any], *, first: bool) -> None:
        """Write what the rule compares with: in every pass, whether or not it has changed."""
        if first:
            new = self._own | {"run": run, "state": _padded(state)}
            change(self._connection, secret_runs.insert(), new)
        else:
            which = secret_runs.update().where(self._of(secret_runs, run))
            change(self._connection, which.values(state=_padded(state)))

    def erase_secret(self, run: int) -> None:
        """Erase what the rule of an ended run compared with."""
        self._connection.execute(secret_runs.delete().where(self._of(secret_runs, run)))

    def close(self, *, exact: bool, seeded: bool) -> None:
        """Publish the sums, or erase them, and end the account: no event follows."""
        published: list[dict[str, Any]] = []
        if exact:
            rows = self._connection.execute(
                sa.select(secret_sums)
                .where(self._of(secret_sums))
                .order_by(*secret_sums.primary_key.columns)
            )
            published = [dict(row) for row in rows.mappings()]
            names = [column.name for column in secret_sums.columns]
            own = sa.select(secret_sums).where(self._of(secret_sums))
            copied = closed_sums.insert().from_select(names, own)
            change(self._connection, copied, rows=len(published))
        for table in (secret_sums, secret_runs):
            self._connection.execute(table.delete().where(self._of(table)))
        detail = canonical({"exact": exact, "sums": sums_digest(published)})
        self.add(Event(LIVE, "close", detail=detail, seeded=seeded), closed=True)

    def _latest(self, kinds: Iterable[SymbolKind]) -> Symbol | None:
        newest = _symbol_rows(self._row.id, kinds).order_by(run_events.c.position.desc())
        row = self._connection.execute(newest.limit(1)).mappings().one_or_none()
        return None if row is None else Symbol.of_event(Event.of_row(row))

    def _scalars(self, chosen: sa.Select[Any]) -> list[Any]:
        return list(self._connection.execute(chosen).scalars())

    def _end(self) -> Any:
        return self._connection.execute(sa.select(run_ends).where(self._of(run_ends))).one_or_none()

    def _of(self, table: sa.Table, run: int | None = None) -> Any:
        own = table.c.holdout_id == self._row.id
        return own if run is None else own & (table.c.run == run)


def lowest_free(shares: Iterable[int | None], budget: int) -> int | None:
    """Return the lowest share of the budget that no run has; None if all are taken.

    Example:
        >>> lowest_free([1, None, 3], 3), lowest_free([1, 2], 2)
        (2, None)
    """
    taken = set(shares)
    return next((share for share in range(1, budget + 1) if share not in taken), None)


def read_runs(
    connection: sa.Connection,
    holdout_id: int,
    number: int | None = None,
    *,
    speaking: bool = False,
) -> list[StoredRun]:
    """Read the runs of an account, in the order they were begun.

    Only the one of a ``number``, or with ``speaking`` those that a patience stops: the others say
    nothing.
    """
    own = sa.select(sealed_runs).where(sealed_runs.c.holdout_id == holdout_id)
    if number is not None:
        own = own.where(sealed_runs.c.run == number)
    if speaking:
        own = own.where(sealed_runs.c.rule.not_like(f"{_SILENT}%"))
    rows = connection.execute(own.order_by(sealed_runs.c.run)).mappings()
    return [StoredRun.of_row(row) for row in rows]


def read_symbols(
    connection: sa.Connection, holdout_id: int, kinds: Iterable[SymbolKind] = KINDS
) -> list[Symbol]:
    """Read what an account has said on request, oldest first."""
    rows = _symbol_rows(holdout_id, kinds).order_by(run_events.c.position)
    events = map(Event.of_row, connection.execute(rows).mappings())
    return [Symbol.of_event(event) for event in events]


def _symbol_rows(holdout_id: int, kinds: Iterable[SymbolKind]) -> sa.Select[Any]:
    of = (run_events.c.holdout_id == holdout_id) & (run_events.c.run == LIVE)
    return sa.select(run_events).where(of, run_events.c.kind.in_(list(kinds)))


@final
@dataclass(frozen=True)
class StoredClosing:
    """What closing has published: all of it is public.

    Attributes:
        closed_at: When.
        exact: Whether the sums were published, or erased.
        runs: The sealed runs.
        evaluations: Their evaluations, with what others had said by then.
        sums: By run (0: live answers), evaluation (or position) and statistic.
    """

    closed_at: str
    exact: bool
    runs: list[StoredRun]
    evaluations: list[Event]
    sums: dict[tuple[int, int, str], Sums]


def has_events(connection: sa.Connection, holdout_id: int) -> bool:
    """Return whether an account has begun a run, or was closed."""
    end = sa.select(run_ends.c.events).where(run_ends.c.holdout_id == holdout_id)
    return connection.execute(end).scalar_one_or_none() is not None


def how_closed(connection: sa.Connection, holdout_id: int) -> Literal["open", "exact", "private"]:
    """Return whether an account was closed, and whether its sums were published or erased."""
    of = (run_events.c.holdout_id == holdout_id) & (run_events.c.run == LIVE)
    of &= run_events.c.kind == "close"
    detail = connection.execute(sa.select(run_events.c.detail).where(of)).scalar_one_or_none()
    if detail is None:
        return "open"
    return "exact" if json.loads(detail)["exact"] else "private"


def read_closing(connection: sa.Connection, holdout_id: int) -> StoredClosing | None:
    """Read what closing has published of an account; None while it is open."""
    end = sa.select(run_ends.c.closed_at).where(run_ends.c.holdout_id == holdout_id)
    closed_at = connection.execute(end).scalar_one_or_none()
    if closed_at is None:
        return None
    of = run_events.c.holdout_id == holdout_id
    chosen = sa.select(run_events).where(of).order_by(run_events.c.position)
    events = [Event.of_row(row) for row in connection.execute(chosen).mappings()]
    published = sa.select(closed_sums).where(closed_sums.c.holdout_id == holdout_id)
    rows = connection.execute(published.order_by(*closed_sums.primary_key.columns)).mappings()
    return StoredClosing(
        closed_at=str(closed_at),
        exact=bool(events[-1].content["exact"]),
        runs=read_runs(connection, holdout_id),
        evaluations=[event for event in events if event.kind == "evaluate"],
        sums={
            (row["run"], row["evaluation"], row["statistic"]): _sums(row["total"], row["squares"])
            for row in rows
        },
    )


def sums_digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a digest of published sums; unkeyed, so never of secret ones."""
    keys = ("run", "evaluation", "statistic", "total", "squares")
    content = [[row[key] for key in keys] for row in rows]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def _padded(state: Mapping[str, Any]) -> str:
    """Write a secret so that its length tells nothing, nor whether it has changed.

    SQLite does not write a page whose bytes are the same as before, and its log is shorter then.
    """
    return canonical({"salt": fresh_secret(8).hex(), "state": dict(state)}).ljust(_WIDTH)


def _sums(total: int, squares: str | None) -> Sums:
    return Sums(int(total), None if squares is None else int(squares))
