"""Challenges as the ledger keeps them: who challenged whom, what was decided, who is incumbent."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

from torch_holdout.ledger.chains import canonical
from torch_holdout.ledger.symbols import Symbol

Rule = Literal["certified", "margin"]
Test = Literal["sign", "moments"]
RULES: tuple[Rule, ...] = ("certified", "margin")
_TESTS: tuple[Test, ...] = ("sign", "moments")


def query_mark(statistic: str, query: str) -> str:
    """Return the public id of a query of a statistic."""
    named = canonical({"statistic": statistic, "query": query})
    return hashlib.sha256(named.encode()).hexdigest()[:16]


@final
@dataclass(frozen=True, kw_only=True)
class StoredChallenge:
    """One challenge; all of it is public.

    Attributes:
        number: Its number in the account, from 1.
        run: The run that it took.
        statistic: What was compared.
        query: Which weights challenged.
        challenged: Which weights were incumbent; None if there were none.
        lost: Whether the incumbent's values were lost, so that nothing was compared.
        kept: What was said; None if nothing was compared.
        rule: How it was decided.
        margin: By how much it had to be better, under the rule ``"margin"``.
        test: By which test, under the rule ``"certified"``.
        nats: The price of what was said.
    """

    number: int
    run: int
    statistic: str
    query: str
    challenged: str | None
    lost: bool
    kept: bool | None
    rule: Rule
    margin: float
    test: Test
    nats: float

    @property
    def incumbent(self) -> str:
        """Which weights are incumbent after it."""
        return self.challenged if self.kept is False and self.challenged else self.query

    @property
    def dethroned(self) -> str | None:
        """Which weights are not incumbent after it; None if it was the first."""
        return self.query if self.kept is False else self.challenged

    def asks_again(self, statistic: str, query: str) -> bool:
        """Whether this query of this statistic has challenged before."""
        return (self.statistic, self.query) == (statistic, query)

    def detail(self) -> dict[str, Any]:
        """Return what its symbol says beside the bit."""
        known = vars(self)
        return {name: known[name] for name in _DETAIL}

    @classmethod
    def of_symbol(cls, symbol: Symbol, number: int) -> "StoredChallenge":
        """Read the symbol of a challenge."""
        detail = {name: symbol.detail[name] for name in _DETAIL}
        kept = None if symbol.choices == 1 else bool(symbol.value)
        return cls(number=number, run=symbol.run, kept=kept, nats=symbol.nats, **detail)


_DETAIL = ("statistic", "query", "challenged", "lost", "rule", "margin", "test")


def challenges_of(symbols: Iterable[Symbol]) -> list[StoredChallenge]:
    """Return the challenges of an account, oldest first, from their symbols."""
    return [StoredChallenge.of_symbol(symbol, number) for number, symbol in enumerate(symbols, 1)]


def incumbents_after(challenges: Iterable[StoredChallenge]) -> dict[str, StoredChallenge]:
    """Return, for each statistic, the challenge that made its incumbent."""
    asked: dict[tuple[str, str], StoredChallenge] = {}
    incumbents: dict[str, StoredChallenge] = {}
    for challenge in challenges:
        asked[challenge.statistic, challenge.query] = challenge
        made = (challenge.statistic, challenge.incumbent)
        incumbents[challenge.statistic] = asked.get(made, challenge)
    return incumbents


@final
class ReplayedChallenges:
    """The challenges of an account as their symbols come: what does not fit is said."""

    def __init__(self) -> None:
        self._incumbents: dict[str, str] = {}
        self._queries: set[tuple[str, str]] = set()

    def problems(
        self, symbol: Symbol, best: str | None, queries: Mapping[tuple[int, int], str | None]
    ) -> Iterator[str]:
        """Take one symbol; yield what is wrong with it.

        ``best`` is the statistic of its run, ``queries`` are the evaluated ones by run and number.
        """
        known = all(name in symbol.detail for name in _DETAIL)
        if not known or symbol.choices not in (1, 2) or symbol.value not in (0, 1):
            yield "it is not a challenge as they are written"
            return
        stored = StoredChallenge.of_symbol(symbol, 0)
        if stored.rule not in RULES or stored.test not in _TESTS:
            yield "it was decided by an unknown rule"
        if queries.get((symbol.run, 1)) != stored.query or best != stored.statistic:
            yield "its run has not evaluated the challenger"
        if stored.challenged != self._incumbents.get(stored.statistic):
            yield "whom it challenged is not the incumbent"
        untested = stored.challenged is None or stored.lost
        if untested != (stored.kept is None) or (untested and symbol.value):
            yield "a challenger without a test was kept, or a tested one was not decided"
        if (stored.statistic, stored.query) in self._queries:
            yield "its query has challenged before"
        self._queries.add((stored.statistic, stored.query))
        self._incumbents[stored.statistic] = stored.incumbent
