"""Accounts of training records: the cost of predictions and validations.

The currency is fixed when an account is made: pure epsilon, or the Renyi divergence at one order.
Both add up whatever is asked next, so it is enough to check that the sum is within the capacity.

Example:
    >>> from typing import get_args
    >>> get_args(ChargePurpose)
    ('prediction', 'distillation', 'validation')
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, final

import sqlalchemy as sa

from torch_holdout.errors import LedgerError
from torch_holdout.ledger.backend import library_version, now
from torch_holdout.ledger.chains import chained, parsed
from torch_holdout.ledger.statements import INSERT_CHARGE, UPDATE_RECORDS, change

ChargePurpose = Literal["prediction", "distillation", "validation"]
Purpose = ChargePurpose  # its name in version 0.1.0


@final
@dataclass(frozen=True, kw_only=True)
class ChargeEntry:
    """Some queries and what they cost together.

    Attributes:
        purpose: What was asked for.
        detail: The mechanism, as JSON.
        queries: How many.
        charge: In picos of the account's currency.
        variation: Between the sampler and its law, in zeptos.
        seeded: Whether the noise is a test seed's.

    Example:
        >>> ChargeEntry(
        ...     purpose="prediction", detail="{}", queries=10, charge=5, variation=0, seeded=False
        ... ).queries
        10
    """

    purpose: ChargePurpose
    detail: str
    queries: int
    charge: int
    variation: int
    seeded: bool


@final
@dataclass(frozen=True)
class RecordsSummary:
    """The counters of a records account; all of them are public.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> ledger = Ledger("memory://")
        >>> mark = ledger.register_records("data", {"derived": {}}, capacity=9, fingerprint=None)
        >>> summary = ledger.records_summary(mark)
        >>> isinstance(summary, RecordsSummary), summary.capacity, summary.spent
        (True, 9, 0)
    """

    name: str
    registration: dict[str, Any]
    fingerprinted: bool
    capacity: int
    spent: int
    queries: int
    charges: int
    variation: int

    @classmethod
    def of_row(cls, row: Any, address: str) -> "RecordsSummary":
        """Read a row of the records' table."""
        counters = (row.capacity, row.spent, row.queries, row.charges, row.variation)
        return cls(row.name, parsed(row, address), row.fingerprint is not None, *counters)


@final
@dataclass(frozen=True)
class Charged:
    """The recorded cost of some queries, in picos of the account's currency.

    Example:
        >>> Charged(position=1, purpose="prediction", detail="{}", queries=10, charge=5,
        ...         asked_at="2026-01-01T00:00:00+00:00").queries
        10
    """

    position: int
    purpose: ChargePurpose
    detail: str
    queries: int
    charge: int
    asked_at: str


@final
class RecordsAccount:
    """The training records' account inside an open, exclusive transaction.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> ledger = Ledger("memory://")
        >>> mark = ledger.register_records("data", {"derived": {}}, capacity=9, fingerprint=None)
        >>> entry = ChargeEntry(
        ...     purpose="prediction", detail="{}", queries=1, charge=5, variation=0, seeded=False)
        >>> with ledger.records(mark) as account:
        ...     account.charge(entry)
        ...     isinstance(account, RecordsAccount), account.left
        (True, 4)
    """

    def __init__(self, connection: sa.Connection, row: Any) -> None:
        self._connection = connection
        self._row = row
        self._charged = False
        self.capacity: int = row.capacity
        self.spent: int = row.spent
        self.queries: int = row.queries

    @property
    def left(self) -> int:
        """The picos that may still be charged."""
        return self.capacity - self.spent

    def charge(self, entry: ChargeEntry) -> None:
        """Write a charge; one beyond the capacity is stopped and nothing is recorded."""
        if not 0 <= entry.charge <= self.left or min(entry.queries, entry.variation) < 0:
            raise LedgerError("A charge beyond the budget was stopped; nothing was recorded.")
        if self._charged:
            raise LedgerError("A second charge in one transaction was stopped.")
        self._charged = True
        position = self._row.charges + 1
        row = asdict(entry) | {"asked_at": now(), "version": library_version()}
        chain = chained(self._row.chain, position, row)
        own = {"records_id": self._row.id, "position": position, "chain": chain}
        change(self._connection, INSERT_CHARGE, own | row)
        self.spent += entry.charge
        self.queries += entry.queries
        change(
            self._connection,
            UPDATE_RECORDS,
            {
                "which": self._row.id,
                "spent": self.spent,
                "queries": self.queries,
                "charges": position,
                "variation": self._row.variation + entry.variation,
                "chain": chain,
            },
        )


@final
@dataclass(frozen=True, kw_only=True)
class Debit:
    """The cost of a holdout's answer to the training records, in the same transaction.

    Attributes:
        address: The ledger; it must be the holdout's own.
        account: The records' account.
        each: Picos for a comparison, and again for an answer.
        most: How many steps one answer can take: two where the holdout compares, else one.
        detail: What is charged, for the ledger.
        seeded: Whether the noise is a test seed's.

    Example:
        >>> debit = Debit(
        ...     address="memory://", account="data", each=5, most=2, detail="{}", seeded=False)
        >>> debit.each * debit.most  # the largest charge of one answer
        10
    """

    address: str
    account: str = field(repr=False)
    each: int
    most: int
    detail: str
    seeded: bool

    def pay(self, opened: RecordsAccount, steps: int) -> None:
        """Charge the steps that were taken."""
        opened.charge(
            ChargeEntry(
                purpose="validation",
                detail=self.detail,
                queries=1,
                charge=steps * self.each,
                variation=0,  # the holdout's sampler errs by less than one zepto
                seeded=self.seeded,
            )
        )
