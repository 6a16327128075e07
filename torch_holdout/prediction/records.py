"""The account of the records that models were trained on."""

import math
from functools import lru_cache
from typing import Any, final

from torch_holdout._fingerprints.data import DataFingerprint
from torch_holdout._shared.checks import require_instance, require_text
from torch_holdout.accounting import Charge
from torch_holdout.accounting.filters import best_order, capacity_in_picos, charge_in_picos
from torch_holdout.errors import InvalidArgumentError, SealedValueError
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.chains import damaged
from torch_holdout.ledger.records import ChargeEntry, ChargePurpose, Debit, RecordsSummary
from torch_holdout.ledger.schema import ZEPTO
from torch_holdout.prediction.budget import PrivacyBudget
from torch_holdout.prediction.neighbours import Neighbours

_LAST_DIGITS = 16  # picos by which two machines' logarithms may differ


@lru_cache(maxsize=1024)
def price(charge: Charge, order: float) -> int:
    """Return a charge in picos of the Renyi divergence at an order (infinite: of pure epsilon).

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> price(Pure(0.1, count=3), math.inf)
        300000000000
    """
    each = charge_in_picos(charge, order)
    if each is None:
        raise InvalidArgumentError(
            "Expected a mechanism with a pure epsilon, because these records' account is kept in "
            "pure epsilon. Gaussian noise needs a budget with a delta that was made for it: "
            "PrivacyBudget(epsilon=2.0, delta=1e-5)."
        )
    return charge.count * each


@final
class TrainingRecords:
    """A handle to the account of the records that models were trained on.

    It belongs to the records, not to a model: every predictor on them, retrained or not, in any
    process, is charged to the same account. Copies and pickles are handles to it; nothing refunds.
    The currency is fixed when the account is made, from the first mechanism that is charged.

    With ``changing`` records are added and removed under the account's name. Then a fingerprint is
    compared with those of other names, when the account is made, and not with its own later.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> records = TrainingRecords(
        ...     "memory://", name="records-2026", budget=PrivacyBudget(epsilon=1.0),
        ...     neighbours=Neighbours(relation="replace-one", unit="record"))
        >>> records.pay(Pure(0.25), 3, purpose="prediction", detail="{}")
        0
        >>> records.left(Pure(0.25))
        1
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        budget: PrivacyBudget,
        neighbours: Neighbours,
        fingerprint: DataFingerprint | None = None,
        changing: bool = False,
        seeded: bool = False,
    ) -> None:
        require_text("name", name)
        require_instance("budget", budget, PrivacyBudget)
        require_instance("neighbours", neighbours, Neighbours)
        if fingerprint is not None:
            require_instance("fingerprint", fingerprint, DataFingerprint)
        self.name = name
        self.budget = budget
        self.neighbours = neighbours
        self.seeded = seeded
        self.changing = changing
        self._fingerprint = fingerprint
        self._ledger = Ledger(url)
        self._account: str | None = None  # the account's id, once attached
        self._order = math.inf  # its currency
        self._copied_from: str | None = None

    @property
    def address(self) -> str:
        """Where the ledger is."""
        return self._ledger.address

    def attach(self, charge: Charge) -> str:
        """Make the account, in the currency that suits a charge, or attach to it; return its id."""
        if self._account is not None:
            return self._account
        return self._attach(best_order(charge, self.budget.epsilon, self.budget.delta))

    def find(self) -> str | None:
        """Return the account's id if there is an account; makes none."""
        copied = self._account or self._copied_from
        if copied is None and self._ledger.find_records(self.name) is not None:
            self._attach(math.inf)  # refused here if it is another account of that name
        return self._account or self._copied_from

    def mark(self, account: str, content: bytes) -> str:
        """Return a mark of the account and some content that only this ledger can make."""
        return self._ledger.records_mark(account, content)

    def pay(
        self,
        charge: Charge,
        queries: int,
        *,
        purpose: ChargePurpose,
        detail: str,
        variation: float = 0.0,
    ) -> int | None:
        """Charge some queries, all or none; committed when it returns.

        ``variation`` is how far one query's sampler may be from its law.

        Returns:
            How many queries the account had answered before, or None if the budget is too small:
            then nothing was charged.
        """
        account = self.attach(charge)
        entry = ChargeEntry(
            purpose=purpose,
            detail=detail,
            queries=queries,
            charge=queries * price(charge, self._order),
            variation=math.ceil(queries * variation * ZEPTO),
            seeded=self.seeded,
        )
        with self._ledger.records(account) as opened:
            if entry.charge > opened.left:
                return None
            before = opened.queries
            opened.charge(entry)
        return before

    def left(self, charge: Charge) -> int:
        """Return how many more queries of a charge may be asked; makes no account."""
        account = self.summary(charge)
        return (account.capacity - account.spent) // price(charge, order_of(account))

    def debit(self, charge: Charge, detail: str, *, most: int) -> Debit:
        """Return the debit of this account for an answer of a holdout in the same ledger."""
        return Debit(
            address=self.address,
            account=self.attach(charge),
            each=price(charge, self._order),
            most=most,
            detail=detail,
            seeded=self.seeded,
        )

    def summary(self, charge: Charge) -> RecordsSummary:
        """Return the account's counters, or those it would start with for a charge."""
        account = self.find()
        if account is None:
            order = best_order(charge, self.budget.epsilon, self.budget.delta)
            registration, capacity = self._registration(order), self._capacity(order)
            known = self._fingerprint is not None
            return RecordsSummary(self.name, registration, known, capacity, 0, 0, 0, 0)
        return self._ledger.records_summary(account)

    def __copy__(self) -> "TrainingRecords":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "TrainingRecords":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        account = self._account or self._copied_from
        if account is None and self._fingerprint is not None:
            raise SealedValueError(
                "Expected the records' account to exist before a handle is copied elsewhere: the "
                "data's fingerprint stays in this process. Call attach(charge) first."
            )
        names = ("name", "budget", "neighbours", "changing", "seeded")
        return _handle, (self.address, {name: getattr(self, name) for name in names}, account)

    def __repr__(self) -> str:
        return f"TrainingRecords({self.address!r}, name={self.name!r}, budget={self.budget})"

    def _attach(self, order: float) -> str:
        """Create the account with an order, or attach to it: then its own order stands."""
        known = self.changing and self._ledger.find_records(self.name) is not None
        account = self._ledger.register_records(
            self.name,
            self._registration(order),
            capacity=self._capacity(order),
            fingerprint=None if known else self._fingerprint,
            account=self._copied_from,
        )
        stored = self._ledger.records_summary(account)
        order = order_of(stored)
        if abs(stored.capacity - self._capacity(order)) > _LAST_DIGITS:
            raise damaged(self.name, self.address)
        # The account last: a thread that sees it charges in its currency.
        self._order, self._account = order, account
        return account

    def _capacity(self, order: float) -> int:
        return capacity_in_picos(self.budget.epsilon, self.budget.delta, order)

    def _registration(self, order: float) -> dict[str, Any]:
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "relation": self.neighbours.relation,
            "unit": self.neighbours.unit,
            "seeded": self.seeded,
            "derived": {"order": None if math.isinf(order) else order},
        }


def order_of(summary: RecordsSummary) -> float:
    """Return the Renyi order that an account is kept at; infinite for pure epsilon."""
    order = summary.registration["derived"]["order"]
    return math.inf if order is None else float(order)


def _handle(url: str, arguments: dict[str, Any], account: str | None) -> TrainingRecords:
    records = TrainingRecords(url, **arguments)
    records._copied_from = account
    return records
