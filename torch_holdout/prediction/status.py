"""Public summaries of a prediction budget: before the first query, and after some."""

import math
from dataclasses import dataclass
from typing import final

from torch_holdout._shared.text import counted, up
from torch_holdout.accounting.compose import sampling_delta
from torch_holdout.errors import HoldoutError, LedgerError
from torch_holdout.ledger.records import RecordsSummary
from torch_holdout.ledger.registration import UNREADABLE
from torch_holdout.ledger.schema import ZEPTO


@final
@dataclass(frozen=True, kw_only=True)
class PredictionPlan:
    """The number of queries that a budget buys with a mechanism.

    Attributes:
        queries: How many queries the whole budget buys.
        queries_left: How many are left of them.
        epsilon: Cap over everything, at ``delta``; covers adaptive queries and stopping early.
        epsilon_per_query: Pure epsilon of one query; infinite for Gaussian noise.
        relation: Who is protected.
        source: What answers are made from; empty for the parts.

    Example:
        >>> plan = PredictionPlan(
        ...     mechanism="SoftMajority", queries=42, queries_left=40, epsilon=2.0, delta=1e-5,
        ...     epsilon_per_query=0.2, relation="replacing one record", num_parts=50, num_outputs=3)
        >>> print(str(plan).splitlines()[1])
          epsilon 2 at delta 1e-05, replacing one record, buys 42 queries; 40 left
    """

    mechanism: str
    queries: int
    queries_left: int
    epsilon: float
    delta: float | None
    epsilon_per_query: float
    relation: str
    num_parts: int
    num_outputs: int
    source: str = ""

    def __str__(self) -> str:
        at = "" if self.delta is None else f" at delta {self.delta:g}"
        pure = f"pure epsilon {up(self.epsilon_per_query, digits=4)}"
        each = "no pure epsilon" if math.isinf(self.epsilon_per_query) else pure
        lines = [
            f"{self.mechanism} over {self.source or counted(self.num_parts, 'part')}, "
            f"{counted(self.num_outputs, 'output')}",
            f"  epsilon {self.epsilon:g}{at}, {self.relation}, buys "
            f"{counted(self.queries, 'query')}; {self.queries_left:,} left",
            f"  one query: {each}",
        ]
        if self.queries_left < 1:
            lines.append("  Nothing can be asked: take more epsilon, or more noise, or ask less.")
        elif self.queries < 1000:
            lines.append(
                "  Few: label a public set once (distill) for a model that may be asked without "
                "limit, or take for_budget(queries=...)."
            )
        return "\n".join(lines)


@final
@dataclass(frozen=True, kw_only=True)
class PredictionStatus:
    """The public state of the training records' account.

    Attributes:
        queries: Queries charged so far, by every predictor on these records.
        queries_left: How many more this predictor's mechanism may answer; None without one.
        epsilon: Cap over the whole budget at ``delta``, constant from creation: the promise.
        epsilon_spent: The sum of pure epsilons; None for a budget with a delta, where no smaller
            number than the cap is a promise.
        share_spent: Charged so far, as a share of the capacity.
        order: The Renyi order that charges are counted at; None for pure epsilon.
        sampler_error: Bound on what inexact sampling adds to delta, over all queries so far.
        renaming_detected: Whether the account knows the records' fingerprint.
        seeded: Whether the noise comes from a test seed: then nothing is private.

    Example:
        >>> status = PredictionStatus(
        ...     name="records", ledger="memory://", queries=2, queries_left=40, epsilon=2.0,
        ...     delta=1e-5, epsilon_spent=None, share_spent=0.05, order=8.0, sampler_error=0.0,
        ...     relation="replacing one record", renaming_detected=True, seeded=False)
        >>> print(str(status).splitlines()[0])
        records 'records': 2 queries answered, 40 left
    """

    name: str
    ledger: str
    queries: int
    queries_left: int | None
    epsilon: float
    delta: float | None
    epsilon_spent: float | None
    share_spent: float
    order: float | None
    relation: str
    sampler_error: float
    renaming_detected: bool
    seeded: bool

    def __str__(self) -> str:
        at = "pure" if self.delta is None else f"delta {self.delta:g}"
        left = "" if self.queries_left is None else f", {self.queries_left:,} left"
        lines = [
            f"records {self.name!r}: {counted(self.queries, 'query')} answered{left}",
            f"  epsilon at most {self.epsilon:g} over the whole budget ({at}, {self.relation}); "
            f"{self.share_spent:.1%} of it charged",
        ]
        if self.sampler_error:
            lines.append(
                f"  inexact sampling has added at most {up(self.sampler_error, digits=1)} to delta"
            )
        if not self.renaming_detected:
            lines.append("  renaming is not detected: pass fingerprint=th.fingerprint(train_set)")
        if self.seeded:
            lines.append("  SEEDED noise: for tests only, the privacy figures do not apply")
        return "\n".join(lines)


def records_status(
    summary: RecordsSummary, address: str, *, queries_left: int | None = None
) -> PredictionStatus:
    """Return the state of an account from its counters; raise if its parameters are unreadable."""
    try:
        return _status(summary, address, queries_left)
    except HoldoutError:
        raise
    except UNREADABLE:
        raise LedgerError(
            f"Expected readable parameters of training records {summary.name!r} in {address}, but "
            f"they were edited or damaged. Nothing was repaired. Restore the ledger from a backup."
        ) from None


def _status(summary: RecordsSummary, address: str, queries_left: int | None) -> PredictionStatus:
    registered = summary.registration
    share = summary.spent / max(1, summary.capacity)
    pure = registered["delta"] is None
    verb = "replacing" if registered["relation"] == "replace-one" else "adding or removing"
    return PredictionStatus(
        name=summary.name,
        ledger=address,
        queries=summary.queries,
        queries_left=queries_left,
        epsilon=registered["epsilon"],
        delta=registered["delta"],
        epsilon_spent=share * registered["epsilon"] if pure else None,
        share_spent=share,
        order=registered["derived"]["order"],
        relation=f"{verb} one {registered['unit']}",
        sampler_error=sampling_delta(registered["epsilon"], summary.variation / ZEPTO),
        renaming_detected=summary.fingerprinted,
        seeded=registered["seeded"],
    )
