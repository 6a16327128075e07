"""Prices: what the next run would say, and what it and the closing would be worth."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, final

from torch_holdout._shared.text import confidence_text, counted, up

_NAMED = 3  # statistics in a line
_OPEN = 10  # open runs in a table


@final
@dataclass(frozen=True, kw_only=True)
class HalfWidths:
    """How far values can be from the population's.

    Attributes:
        by_statistic: In each statistic's own units.
        ratio: The largest, in half-widths of one query that is asked once of a fresh holdout of
            the same size.
    """

    by_statistic: dict[str, float]
    ratio: float

    def __str__(self) -> str:
        return f"{half_widths_text(self.by_statistic)} ({up(self.ratio)}x fresh)"


@final
@dataclass(frozen=True, kw_only=True)
class NextEvaluation:
    """What the next evaluation of an open run would pay, and be worth.

    Attributes:
        run: The run's number.
        evaluation: The evaluation's number in the run.
        pays: What others have said by now, in nats.
        worth: How far its value can be from the population's.
    """

    run: int
    evaluation: int
    pays: float
    worth: HalfWidths

    def __str__(self) -> str:
        number = f"open run {self.run}, evaluation {self.evaluation:,}"
        return f"{number}: pays {up(self.pays)} nats, {self.worth}"


@final
@dataclass(frozen=True, kw_only=True)
class Price:
    """What one choice costs: what the next run shows, and all runs after it.

    Attributes:
        shows: ``"nothing"``, ``"record"`` or ``"no record"`` (the outcomes of ``run.record()``),
            ``"winner"`` (``holdout.winner()`` after the run), or, of a run with ``stop=``,
            ``"stopped"``, ``"ended"`` or ``"given up"``; ``"kept"`` or ``"reverted"`` for one more
            challenge; ``"release"`` for a holdout that answers with values.
        nats: What that says; whatever is evaluated later pays for it. None for a release, which
            certificates count.
        exact: Whether it is what will be charged; else at most that is.
        passes: For a run with ``stop=``, the pass at which it ends.
        last: What the planned evaluations of the last run of the budget are worth if every run
            until then shows the same; after a bit, whatever the later ones are.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=10_000, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=200), budget=20)
        >>> price = holdout.prices(evaluations=41).choices["stopped"]
        >>> isinstance(price, Price), round(price.nats, 3), price.passes
        (True, 6.084, 41)
    """

    shows: str
    nats: float | None
    exact: bool = True
    passes: int | None = None
    last: HalfWidths

    @property
    def words(self) -> str:
        """What is shown, for people."""
        return _WORDS[self.shows].format(self.passes)

    @property
    def nats_text(self) -> str:
        """The price, rounded up."""
        if self.nats is None:
            return ""
        return up(self.nats) if self.exact or not self.nats else f"at most {up(self.nats)}"

    @property
    def is_bound(self) -> bool:
        """Whether ``last`` is the widest it can be: later bits may cost less."""
        return self.shows in ("record", "no record", "kept", "reverted") or not self.exact


_WORDS = {
    "nothing": "nothing (a run without stop=)",
    "record": "run.record(), and it is one",
    "no record": "run.record(), and it is not one",
    "winner": "holdout.winner() after it",
    "stopped": "stop=: stopped by patience at pass {:,}",
    "ended": "stop=: ended by hand at pass {:,}, with its best",
    "given up": "stop=: given up after pass {:,}",
    "kept": "one more challenge, and it is kept",
    "reverted": "one more challenge, and it is reverted",
    "release": "a released value",
}


@final
@dataclass(frozen=True, kw_only=True)
class Prices:
    """What the next run would say and be worth, for each choice of what it shows.

    Everything follows from public facts: how many runs and evaluations there were, and what has
    been said. A run's own evaluations pay for what was said before them and not for what the run
    itself shows, so ``next`` is the same for every choice. Record bits and winners are priced for
    runs that evaluate the statistic they are compared by. ``str(prices)`` is a table for people.

    Attributes:
        name: The holdout.
        size: Its number of examples.
        failure: The probability that a half-width does not hold.
        unit: What the budget counts, ``"run"`` or ``"release"``.
        budget: How many there are in all.
        left: How many are left.
        closed: Whether the holdout was closed: then nothing has a price.
        evaluations: How many evaluations the next run is taken to make; of a holdout that answers
            with values, 1.
        said: What has been said so far, in nats; every evaluation of a new run pays for it.
        cost: What a run or a release costs in privacy; infinite without noise.
        currency: Of ``cost``: ``"epsilon"`` or ``"rho"``.
        fresh: The half-widths of one query, asked once of a fresh holdout of this size.
        next: What the evaluations of the next run are worth; None if none can begin.
        choices: The price of each choice, by what is shown; empty if no run can begin.
        open_runs: What the next evaluation of each open run would pay now.

    Example:
        >>> import torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=10_000, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Sealed(evaluations=200), budget=20)
        >>> prices = holdout.prices()
        >>> isinstance(prices, Prices), prices.said, round(prices.next.ratio, 2)
        (True, 0.0, 1.76)
        >>> round(prices.choices["nothing"].last.ratio, 2)
        1.82
        >>> round(prices.choices["stopped"].last.ratio, 2)
        5.89
    """

    name: str
    size: int
    failure: float
    unit: Literal["release", "run"]
    budget: int
    left: int
    closed: bool
    evaluations: int
    said: float
    cost: float
    currency: Literal["epsilon", "rho"]
    fresh: dict[str, float]
    next: HalfWidths | None
    choices: dict[str, Price] = field(repr=False)
    open_runs: tuple[NextEvaluation, ...] = field(default=(), repr=False)

    @property
    def line(self) -> str:
        """The shortest summary; empty where no run can begin."""
        if self.next is None:
            return ""
        silent = self.choices["nothing"].last
        last = f"; the last of {self.left:,}, if nothing is shown: {silent}"
        return f"next run: {self.next}{last if self.left > 1 else ''}"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.closed:
            yield (
                f"holdout {self.name!r} is closed, for good: nothing more can be asked, so nothing "
                f"has a price. holdout.close() shows its values."
            )
            return
        said = f"; {up(self.said)} nats said so far" if self.unit == "run" else ""
        yield (
            f"holdout {self.name!r}: {self.left:,} of {counted(self.budget, self.unit)} left{said}"
        )
        yield f"  half-widths hold at once with {confidence_text(self.failure)} confidence"
        yield f"  one query asked once of a fresh holdout: {half_widths_text(self.fresh)}"
        if self.next is None:
            yield f"  {self._spent()}"
        else:
            yield f"  {self._next()}: {self.next}"
        for evaluation in self.open_runs[:_OPEN]:
            yield f"  {evaluation}"
        if len(self.open_runs) > _OPEN:
            yield f"  and {counted(len(self.open_runs) - _OPEN, 'more open run')}"
        if self.next is not None:
            yield from self._table()
        if not math.isinf(self.cost):
            yield f"  a {self.unit} costs at most {self.currency} {up(self.cost, digits=4)}"

    def _spent(self) -> str:
        if self.open_runs:
            return "the budget is spent, so no run can begin; open ones can go on:"
        ways = "Close the holdout to see its values" if self.unit == "run" else "Its answers stay"
        return f"the budget is spent, so nothing has a price. {ways}, or bring a fresh one."

    def _next(self) -> str:
        if self.unit == "release":
            return "the next value, if it is released"
        return f"next run, {counted(self.evaluations, 'evaluation')}, whatever it shows"

    def _table(self) -> Iterator[str]:
        alone = self.left == 1  # what comes next is the last, too
        if self.unit == "release":
            end = self.choices["release"].last
            if not alone:
                yield f"  the last of {counted(self.left, self.unit)}, at the earliest: {end}"
            return
        whole = "" if alone else f"then the last of {counted(self.left, 'run')}, all like it"
        rows = [("what the next run shows", "nats", whole)]
        for own in self.choices.values():
            last = f"{'at most ' if own.is_bound else ''}{own.last}"
            rows.append((own.words, own.nats_text, "" if alone else last))
        first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
        for shows, nats, last in rows:
            yield f"  {shows:<{first}}  {nats:<{second}}  {last}".rstrip()


def half_widths_text(by_statistic: dict[str, float]) -> str:
    """Format half-widths by statistic, rounded up.

    Example:
        >>> half_widths_text({"val_loss": 0.1319, "val_acc": 0.02638})
        'val_loss +-0.132, val_acc +-0.0264'
        >>> half_widths_text(dict.fromkeys("abcde", 0.5))
        'a +-0.5, b +-0.5, c +-0.5, 2 more'
    """
    shown = [f"{name} +-{up(width)}" for name, width in list(by_statistic.items())[:_NAMED]]
    more = len(by_statistic) - len(shown)
    return ", ".join([*shown, f"{more} more"] if more else shown)
