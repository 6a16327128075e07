"""The finalists of a closed board: exact values, intervals, and who is certainly better."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from torch_holdout.accounting.picos import from_picos
from torch_holdout.bounds.assumptions import assumptions_about
from torch_holdout.bounds.challenges import gain_low, sign_test_keeps, smallest_keep
from torch_holdout.bounds.closing import closing_interval
from torch_holdout.bounds.codes import board_bracket
from torch_holdout.bounds.shares import share
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.holdout.board_levels import Part
from torch_holdout.holdout.board_registration import BoardRegistration
from torch_holdout.holdout.board_results import BoardResults, Finalist, Result
from torch_holdout.ledger.board_events import BoardTerms, Said, StoredEvent
from torch_holdout.ledger.registration import StoredStatistic
from torch_holdout.ledger.run_events import Sums

_EXACT = 2**53  # sums up to it are exact in double precision


class Entry(NamedTuple):
    """One content among the finalists: its earliest submission, and all whose finalist it is."""

    query: str
    events: tuple[StoredEvent, ...]

    @property
    def earliest(self) -> StoredEvent:
        """The event that pays least: the same content asked later is the same query."""
        return self.events[0]


@final
@dataclass(frozen=True, repr=False)
class Judged:
    """The finalists' sums by statistic, and the levels of the first one. Raw until written."""

    entries: Sequence[Entry]
    sums: Sequence[Mapping[str, Sums]]
    levels: Tensor  # [finalists, units] of the statistic that decides

    def content(self, part: Part) -> dict[str, Any]:
        """Return what the ledger keeps: a board is judged once."""
        rows = [
            [
                entry.query,
                sorted({str(event.event.analyst) for event in entry.events}),
                {name: [own.total, own.squares] for name, own in sums.items()},
            ]
            for entry, sums in zip(self.entries, self.sums, strict=True)
        ]
        return {"rows": part.size, "finalists": rows}


def measured(part: Part, finalists: Mapping[str, Any], entries: Sequence[Entry]) -> Judged:
    """Read the finalists' values, one at a time."""
    sums, levels, first = [], [], next(iter(part.statistics))
    for entry in entries:
        own = part.levels(finalists[entry.query])
        sums.append({name: part.sums(each) for name, each in own.items()})
        levels.append(own[first].to(torch.int32))
    return Judged(entries, sums, torch.stack(levels))


@final
@dataclass(frozen=True, repr=False)
class Verdicts:
    """What the finalists of a closed board are worth; all of it is public now.

    A vault's rows, and those of a sealed board, were never asked about: F finalists are F queries
    that do not depend on them. Without a vault each finalist pays what was told before it.
    """

    registration: BoardRegistration
    terms: BoardTerms
    judged: Judged
    submissions: int

    def results(self, *, closed_at: str, chain: str) -> BoardResults:
        """Return the results, best value first."""
        entries = self.judged.entries
        better = self._better()
        ahead = Counter(other for others in better for other in others)
        finalists = [
            self._finalist(place, event, better[place], ahead[place])
            for place in sorted(range(len(entries)), key=self._sorting)
            for event in entries[place].events
        ]
        part = self.registration.final_part
        return BoardResults(
            finalists=tuple(finalists),
            rows=part.size,
            vault=self.registration.vault_size > 0,
            bracket=max(map(self._bracket, entries)),
            ordering_bracket=self._widest_ordering(),
            failure=self.registration.failure,
            closed_at=closed_at,
            chain=chain,
            assumptions=assumptions_about({}, len(part.statistics)),
        )

    @property
    def _untold(self) -> bool:
        """Whether nothing was ever told about the rows that are judged."""
        return self.registration.vault_size > 0 or self.terms.feedback.mode == "sealed"

    @property
    def _queries(self) -> int:
        """How many queries the vault, or a sealed board, is asked at closing."""
        count = len(self.judged.entries)
        return count if self.registration.vault_size else max(count, self.submissions)

    def _bracket(self, entry: Entry) -> float:
        """Return c of a finalist's intervals."""
        failure, several = self.registration.failure, len(self.registration.statistics)
        if self._untold:
            return math.log(2 * several * self._queries / failure)
        event = entry.earliest.event
        return board_bracket(
            position=event.number or 1,
            planned=self.registration.submissions,
            said=from_picos(event.said or 0),
            failure=failure,
            statistics=several,
        )

    def _ordering_bracket(self, one: Entry, other: Entry) -> float:
        """Return c of an ordered pair; a pair is fixed when the later of the two is."""
        if self._untold:
            count = len(self.judged.entries)
            return math.log(max(1, count * (count - 1)) / self.registration.failure)
        events = (one.earliest.event, other.earliest.event)
        planned = self.registration.submissions
        shares = sum(math.log(share(event.number or 1, planned)) for event in events)
        said = from_picos(max(event.said or 0 for event in events))
        return said - shares - math.log(self.registration.failure)

    def _widest_ordering(self) -> float:
        """Return the largest c of a pair: the latest finalist has heard most, at most its share."""
        latest = max(self.judged.entries, key=lambda entry: entry.earliest.position)
        others = [entry for entry in self.judged.entries if entry is not latest] or [latest]
        return max(self._ordering_bracket(latest, other) for other in others)

    def _finalist(
        self, place: int, event: StoredEvent, worse: Sequence[int], ahead: int
    ) -> Finalist:
        entries, first = self.judged.entries, self.registration.first
        index = Said.of_event(event.event).grid.get(first)
        return Finalist(
            submission=entries[place].query,
            analyst=str(event.event.analyst),
            rank=(1 + ahead, len(entries) - len(worse)),
            results={name: self._result(place, name) for name in self.registration.statistics},
            told=None if index is None else self.terms.first.value_at(index),
            better_than=tuple(entries[other].query for other in worse),
        )

    def _result(self, place: int, name: str) -> Result:
        statistic, part = self.registration.statistics[name], self.registration.final_part
        sums, units = self.judged.sums[place][name], part.units(name)
        low, high = closing_interval(
            kind=StoredStatistic(statistic.identity()).interval_kind,
            total=sums.total,
            squares=sums.squares,
            units=units,
            resolution=part.resolution,
            bracket=self._bracket(self.judged.entries[place]),
        )
        width = statistic.high - statistic.low
        value = statistic.to_user(sums.total / (units * part.resolution))
        return Result(value, (statistic.low + width * low, statistic.low + width * high))

    def _sorting(self, place: int) -> tuple[int, int]:
        total = self.judged.sums[place][self.registration.first].total
        sign = 1 if self.registration.statistics[self.registration.first].mode == "min" else -1
        return sign * total, self.judged.entries[place].earliest.position

    def _better(self) -> list[list[int]]:
        """Return for each finalist the others that it is certified to be better than."""
        part, first = self.registration.final_part, self.registration.first
        mode = part.statistics[first].mode
        kind = StoredStatistic(part.statistics[first].identity()).interval_kind
        products = _products(self.judged.levels, part.resolution)
        totals = [own[first].total for own in self.judged.sums]
        pairs = _Pairs(products, totals, part.units(first), part.resolution, mode, kind)
        entries = self.judged.entries
        return [
            [
                other
                for other in range(len(entries))
                if pairs.gains(place, other)
                and pairs.certain(
                    place, other, self._ordering_bracket(entries[place], entries[other])
                )
            ]
            for place in range(len(entries))
        ]


@final
@dataclass(frozen=True, repr=False)
class _Pairs:
    """Paired differences of finalists, from the products of their levels."""

    products: list[list[int]]
    totals: list[int]
    units: int
    resolution: int
    mode: str
    kind: str

    def gains(self, one: int, other: int) -> bool:
        """Whether one has the better sum; else nothing is certain."""
        gain = self.totals[one] - self.totals[other]
        return gain > 0 if self.mode == "max" else gain < 0

    def certain(self, one: int, other: int, bracket: float) -> bool:
        """Whether the test certifies that one is better in the population."""
        both, gain = self.products[one][other], abs(self.totals[one] - self.totals[other])
        if self.kind == "zero_one":
            square = self.resolution**2
            wins = self.products[one][one] // square - both // square
            losses = self.products[other][other] // square - both // square
            wins, losses = max(wins, losses), min(wins, losses)
            return _sign_test(wins, losses, bracket)
        squares = self.products[one][one] + self.products[other][other] - 2 * both
        return gain_low(gain, squares, self.units, self.resolution, bracket) >= 0


def entries_of(
    finalists: Mapping[str, Any],
    events: Mapping[tuple[str, str], StoredEvent],
    analysts: Mapping[str, str | Sequence[str]],
) -> list[Entry]:
    """Return the finalists with their events; raise if one was never submitted."""
    if not finalists or set(finalists) != set(analysts):
        raise InvalidArgumentError(
            "Expected at least one finalist, and for each of them the analyst who submitted it."
        )
    entries = []
    for query in sorted(finalists):
        named = analysts[query]
        names = [named] if isinstance(named, str) else sorted(set(named))
        if not names or any((name, query) not in events for name in names):
            raise InvalidArgumentError(
                f"Expected finalists that their analysts have submitted, but {query:.12}... was "
                f"not. Nothing was judged."
            )
        own = sorted((events[name, query] for name in names), key=lambda event: event.position)
        entries.append(Entry(query, tuple(own)))
    return entries


def _products(levels: Tensor, resolution: int) -> list[list[int]]:
    """Return the sums over units of products of levels, for all pairs, as exact integers."""
    at_once = max(1, _EXACT // resolution**2)
    count = len(levels)
    total = torch.zeros(count, count, dtype=torch.int64)
    for rows in torch.split(levels, at_once, dim=1):
        exact = rows.to(torch.float64)
        total += (exact @ exact.T).to(torch.int64)
    return [[int(product) for product in row] for row in total.tolist()]


def _sign_test(wins: int, losses: int, bracket: float) -> bool:
    """Return ``sign_test_keeps``; the smallest number of wins is computed once."""
    needed = _smallest(wins + losses, bracket)
    return needed is not None and wins >= needed and sign_test_keeps(wins, losses, bracket)


@lru_cache(maxsize=2**16)
def _smallest(differing: int, bracket: float) -> int | None:
    return smallest_keep(differing, bracket)
