"""What a sealed account has said: symbols on request, each with its price, and runs that stopped.

Every evaluation pays for all symbols said before it, and for what all runs but its own have said by
then; this is computed here, for the door, the replay and whatever is shown.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast, final, get_args

from torch_holdout.bounds.symbols import kt_price, rank_price, record_mixture, winner_price
from torch_holdout.ledger.chains import canonical
from torch_holdout.ledger.run_events import LIVE, Event, StoredRun
from torch_holdout.mechanisms.sealed import Sealed

SymbolKind = Literal["record", "winner", "challenge"]
KINDS: tuple[SymbolKind, ...] = get_args(SymbolKind)
_OWN = ("run", "value", "choices", "said", "tally")


class Tally(NamedTuple):
    """The coded symbols of one kind so far, as far as the law of the next one looks at them.

    ``rank`` is the price of record bits by the 1/r law.
    """

    ones: int = 0
    zeros: int = 0
    rank: float = 0.0

    def after(self, kind: SymbolKind, value: int, choices: int) -> "Tally":
        """Return the tally after one more symbol; what is certain is not coded."""
        if kind == "winner" or choices == 1:
            return self
        bit = bool(value)
        rank = rank_price([bit], [choices]) if kind == "record" else 0.0
        return Tally(self.ones + bit, self.zeros + (not bit), self.rank + rank)

    def price(self, kind: SymbolKind) -> float:
        """Return the price of all of them."""
        if kind == "record":
            return record_mixture(self.rank, self.ones, self.zeros)
        return kt_price(self.ones, self.zeros)


@final
@dataclass(frozen=True)
class Symbol:
    """One symbol that an account has said on request. All of it is public.

    Attributes:
        kind: ``"record"``, ``"winner"`` or ``"challenge"``.
        run: The run it is about.
        value: A bit, or the number of the winner.
        choices: Among how many runs: compared for a record, or to choose from. With 1 the value is
            certain: it costs nothing, and is not coded.
        nats: Its price, which every later evaluation pays.
        said: The prices of all symbols of the account up to this one.
        tally: The symbols of its kind up to this one.
        detail: More of it.
    """

    kind: SymbolKind
    run: int
    value: int
    choices: int
    nats: float
    said: float
    tally: Tally = field(repr=False)
    detail: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def following(
        cls,
        same: "Symbol | None",
        said: float,
        *,
        kind: SymbolKind,
        run: int,
        value: int,
        choices: int,
        detail: Mapping[str, Any],
    ) -> "Symbol":
        """Return the next symbol, with its price by the registered law.

        Args:
            same: The latest one of its kind.
            said: The prices of all symbols so far.
            kind: ``"record"``, ``"winner"`` or ``"challenge"``.
            run: The run it is about.
            value: A bit, or a run's number.
            choices: Among how many runs.
            detail: More of it.
        """
        before = Tally() if same is None else same.tally
        after = before.after(kind, value, choices)
        if kind == "winner":
            nats = winner_price(choices)
        else:  # rounding may not make it negative
            nats = max(0.0, after.price(kind) - before.price(kind))
        return cls(kind, run, int(value), choices, nats, said + nats, after, dict(detail))

    @classmethod
    def of_event(cls, event: Event) -> "Symbol":
        """Read the event of a symbol."""
        content = event.content
        run, value, choices, said, tally = (content.pop(name) for name in _OWN)
        kind = cast(SymbolKind, event.kind)
        nats = float(event.nats or 0.0)
        return cls(kind, run, value, choices, nats, float(said), Tally(*tally), content)

    def event(self, *, seeded: bool) -> Event:
        """Return it as an event of the account."""
        own = {name: getattr(self, name) for name in _OWN}
        return Event(
            LIVE, self.kind, nats=self.nats, detail=canonical(own | self.detail), seeded=seeded
        )


@final
class Said:
    """What runs and symbols of an account have said so far, in nats.

    The sum is exact until it is rounded, once: what is paid does not depend on the order in which
    it was added up.
    """

    def __init__(self, runs: Iterable[StoredRun], symbols: float, mechanism: Sealed) -> None:
        self._mechanism = mechanism
        self._runs: dict[int, float] = {}
        self._parts: list[float] = []  # floats whose sum is exactly that of all runs
        self.symbols = symbols
        for run in runs:
            self.take(run)

    def take(self, run: StoredRun) -> None:
        """Take what a run has said by now, in place of what it had said before."""
        before, nats = self._runs.get(run.run, 0.0), run.said(self._mechanism)
        if nats != before:
            _add_exactly(self._parts, -before)
            _add_exactly(self._parts, nats)
            self._runs[run.run] = nats

    def by_others(self, run: int | None) -> float:
        """Return what an evaluation of a run pays now: all but what its own run has said."""
        own = 0.0 if run is None else self._runs.get(run, 0.0)
        return math.fsum([*self._parts, self.symbols, -own])


def _add_exactly(parts: list[float], number: float) -> None:
    """Add a number to non-overlapping floats without rounding (Shewchuk 1997)."""
    kept = []
    for part in parts:
        large, small = (number, part) if abs(number) >= abs(part) else (part, number)
        number = large + small
        rest = small - (number - large)
        if rest:
            kept.append(rest)
    parts[:] = [*kept, number]


def symbols_said(symbols: Iterable[Symbol]) -> float:
    """Return the prices of all symbols, given in order."""
    said = 0.0
    for symbol in symbols:
        said = symbol.said
    return said


def records_said(symbols: Iterable[Symbol]) -> dict[int, bool]:
    """Return the record bits that were said, by run."""
    return {symbol.run: bool(symbol.value) for symbol in symbols if symbol.kind == "record"}
