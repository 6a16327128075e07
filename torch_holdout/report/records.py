"""The data of a report about training records, read from a ledger."""

from dataclasses import dataclass
from itertools import accumulate
from typing import final

from torch_holdout.ledger import Ledger
from torch_holdout.ledger.records import Charged
from torch_holdout.prediction.status import PredictionStatus, records_status
from torch_holdout.report.thinning import DRAWN, thinned
from torch_holdout.report.wording import charged_text


@final
@dataclass(frozen=True, kw_only=True)
class Use:
    """The charges to training records for one purpose and mechanism."""

    purpose: str
    mechanism: str
    queries: int
    charges: int
    share: float
    first_at: str
    last_at: str


@final
@dataclass(frozen=True, kw_only=True)
class RecordsReport:
    """An account of training records; ``steps`` are the share spent after some of its charges."""

    status: PredictionStatus
    charges: int
    uses: tuple[Use, ...]
    steps: tuple[tuple[int, float], ...]
    first_at: str | None
    last_at: str | None


def records_report(ledger: Ledger, account: str) -> RecordsReport:
    """Read the charges of training records, and check their rows."""
    summary = ledger.records_summary(account, check=True)
    charges = [c for c in ledger.charges(account) if c.position <= summary.charges]
    capacity = max(1, summary.capacity)
    groups: dict[tuple[str, str], list[Charged]] = {}
    for charge in charges:
        groups.setdefault((charge.purpose, charge.detail), []).append(charge)
    spent = accumulate(c.charge for c in charges)
    steps = [(c.position, so_far / capacity) for c, so_far in zip(charges, spent, strict=True)]
    return RecordsReport(
        status=records_status(summary, ledger.address),
        charges=len(charges),
        uses=tuple(
            Use(
                purpose=purpose,
                mechanism=charged_text(detail),
                queries=sum(c.queries for c in own),
                charges=len(own),
                share=sum(c.charge for c in own) / capacity,
                first_at=own[0].asked_at,
                last_at=own[-1].asked_at,
            )
            for (purpose, detail), own in groups.items()
        ),
        steps=tuple(thinned(steps, DRAWN)),
        first_at=charges[0].asked_at if charges else None,
        last_at=charges[-1].asked_at if charges else None,
    )
