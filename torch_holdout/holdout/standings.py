"""Ended runs compared on request: is one a record, which one is best. Each answer is a symbol.

The comparison reads sealed sums of ended runs only; what it says is written with its price in the
same transaction, and every later evaluation pays for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, final

from torch_holdout._shared.tracebacks import without_trace
from torch_holdout.errors import HoldoutError, InvalidArgumentError
from torch_holdout.holdout.registration import Registration
from torch_holdout.holdout.run_access import RunAccess
from torch_holdout.holdout.run_checks import account_closed, sealed_mechanism
from torch_holdout.ledger.run_events import StoredRun
from torch_holdout.ledger.sealed_runs import SealedRuns

_Answer = TypeVar("_Answer")


@final
@dataclass(frozen=True, repr=False)
class Standings:
    """The ended runs of an account, inside an open and exclusive transaction."""

    runs: SealedRuns
    registration: Registration
    seeded: bool

    def record(self, run: StoredRun) -> bool:
        """Say whether a run was better than every run that ended before it."""
        for symbol in self.runs.symbols("record"):
            if symbol.run == run.run:
                return bool(symbol.value)
        ended = self.runs.ended()
        if run.run not in ended:
            raise _not_ended(run)
        statistic = run.statistic
        bests = self._bests(statistic)
        if run.run not in bests:
            raise _never_evaluated(statistic)
        before = [bests[n][0] for n in ended[: ended.index(run.run)] if n in bests]
        # Strictly better; the first one is a record for certain.
        record = not before or bests[run.run][0] > max(before)
        self.runs.say(
            "record",
            run=run.run,
            value=record,
            choices=1 + len(before),
            detail={"statistic": statistic},
            seeded=self.seeded,
        )
        return record

    def winner(self, statistic: str | None) -> int:
        """Say which of the ended runs has the best evaluation; the first of equals."""
        ended = self.runs.ended()
        if statistic is None and ended:
            statistic = self.runs.all()[0].statistic
        bests = {} if statistic is None else self._bests(statistic)
        compared = {number: bests[number] for number in sorted(ended) if number in bests}
        if statistic is None or not compared:
            raise _nothing_to_compare(statistic)
        values = sum(count for _, count in compared.values())
        for symbol in reversed(self.runs.symbols("winner")):
            known = symbol.detail
            same = (known["statistic"], known["values"]) == (statistic, values)
            if same and symbol.value in compared:  # not given up since
                return symbol.value
        winner = max(compared, key=lambda number: compared[number][0])
        self.runs.say(
            "winner",
            run=winner,
            value=winner,
            choices=len(compared),
            detail={"statistic": statistic, "values": values},
            seeded=self.seeded,
        )
        return winner

    def _bests(self, statistic: str) -> dict[int, tuple[int, int]]:
        """Return each run's best sum, as a number that is higher the better, and of how many."""
        higher = self.registration.statistic(statistic).mode == "max"
        return self.runs.bests(statistic, higher=higher)


def ask(access: RunAccess, action: Callable[[Standings], _Answer]) -> _Answer:
    """Ask about ended runs in one transaction; nothing leaves before its commit."""
    registration = access.registration
    if sealed_mechanism(registration).epsilon is not None:
        raise _is_private(registration.name)

    def transaction() -> _Answer:
        with access.ledger.account(access.account, budget=registration.budget) as account:
            if account.runs.closed_at is not None:
                raise account_closed(registration.name)
            return action(Standings(account.runs, registration, access.noise.seeded))

    return without_trace(transaction)


def not_begun() -> HoldoutError:
    """Return the error for a comparison of a run without evaluations."""
    return HoldoutError(
        "Expected a run that has ended, but this one was never begun: it has no evaluation. "
        "Nothing was charged."
    )


def _not_ended(run: StoredRun) -> HoldoutError:
    how = "was given up" if run.state == "given_up" else "is open"
    return HoldoutError(
        f"Expected a run that has ended, but this one {how}. End it with run.end(), or by leaving "
        f"its `with` block, and ask then. Nothing was charged."
    )


def _never_evaluated(statistic: str) -> HoldoutError:
    return HoldoutError(
        f"Expected a run with evaluations of {statistic!r}, which decides what is best in it, but "
        f"it has none. Nothing was charged."
    )


def _nothing_to_compare(statistic: str | None) -> HoldoutError:
    of = "" if statistic is None else f" of {statistic!r}"
    return HoldoutError(
        f"Expected at least one ended run with evaluations{of}, but there is none. End a run "
        f"first. Nothing was charged."
    )


def _is_private(name: str) -> HoldoutError:
    return InvalidArgumentError(
        f"Expected a sealed holdout without noise, but {name!r} has epsilon=: comparing its runs "
        f"exactly would reveal what the noise protects. Close it to see what the runs have said. "
        f"Nothing was charged."
    )
