"""Accounts of holdouts: what is recorded, what is read, and one inside a transaction."""

import hmac
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, final

import sqlalchemy as sa

from torch_holdout.accounting.picos import from_picos
from torch_holdout.errors import BudgetExhaustedError, LedgerError
from torch_holdout.ledger import statements
from torch_holdout.ledger.backend import library_version, now
from torch_holdout.ledger.chains import chained, public_mark
from torch_holdout.ledger.chains import first_link as first_link  # its path in 0.1.0
from torch_holdout.ledger.records import Debit, RecordsAccount
from torch_holdout.ledger.registration import StoredRegistration
from torch_holdout.ledger.run_events import LIVE, StoredRun, Sums
from torch_holdout.ledger.same_data import ledger_key
from torch_holdout.ledger.sealed_runs import SealedRuns
from torch_holdout.ledger.statements import change
from torch_holdout.ledger.symbols import Symbol

Kind = Literal["release", "guess"]


@final
@dataclass(frozen=True, kw_only=True)
class Entry:
    """A query and its answer, to be recorded; ``charge`` in picos of epsilon.

    Until it is committed the answer must not be seen, not even in a traceback with locals.

    Example:
        >>> Entry(statistic="val_acc", query="epoch 1", attempt=1, kind="release", grid_index=3,
        ...       value=0.75, compared=False, opened=False, units=4, charge=10, seeded=False)
        Entry(statistic='val_acc', query='epoch 1', attempt=1, kind='release', compared=False,
              opened=False, units=4, charge=10, seeded=False)
    """

    statistic: str
    query: str
    attempt: int
    kind: Kind
    grid_index: int | None = field(repr=False)
    value: float = field(repr=False)
    compared: bool
    opened: bool
    units: int
    charge: int | None
    seeded: bool


@final
@dataclass(frozen=True)
class Stored:
    """An answer given earlier.

    Example:
        >>> Stored(position=1, kind="release", value=0.75, grid_index=3).value
        0.75
    """

    position: int
    kind: Kind
    value: float
    grid_index: int | None


@final
@dataclass(frozen=True)
class Summary:
    """The counters of an account; all of them follow from the transcript.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> ledger = Ledger("memory://")
        >>> mark = ledger.register(
        ...     "val", {"statistics": {}}, budget=3, private=True, fingerprint=None)
        >>> summary = ledger.summary(mark)
        >>> isinstance(summary, Summary), summary.budget, summary.releases
        (True, 3, 0)
    """

    name: str
    registered: StoredRegistration
    fingerprinted: bool
    budget: int
    queries: int
    releases: int
    rounds: int
    spent: float | None
    last_release: int
    account: str
    sketched: bool = False
    runs: tuple[StoredRun, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    closed: Literal["open", "exact", "private"] = "open"

    @property
    def registration(self) -> dict[str, Any]:
        """The fixed parameters, as they are stored."""
        return self.registered.content

    @classmethod
    def of_row(cls, row: Any, address: str, *, sketched: bool = False) -> "Summary":
        """Read a row of the holdouts' table; ``sketched``: whether it has a sketch of its data."""
        registered = StoredRegistration.of_account(row, address)
        counters = (row.budget, row.queries, row.releases, row.rounds)
        spent = None if row.spent is None else from_picos(row.spent)
        known = (row.name, registered, row.fingerprint is not None)
        marks = (row.last_release, public_mark(row.account), sketched)
        return cls(*known, *counters, spent, *marks)


@final
@dataclass(frozen=True)
class Recorded:
    """An answer as it was published, when, and by which run it was asked for.

    Example:
        >>> Recorded(position=1, statistic="val_acc", kind="release", value=0.75).kind
        'release'
    """

    position: int
    statistic: str
    kind: Kind
    value: float
    asked_at: str = ""
    run: str | None = None


@final
@dataclass(frozen=True)
class Refusal:
    """Queries that came after the budget was gone, and got no answer.

    Example:
        >>> at = "2026-01-01T00:00:00+00:00"
        >>> Refusal(statistic="val_acc", run="seed 3", count=2, first_at=at, last_at=at).count
        2
    """

    statistic: str
    run: str | None
    count: int
    first_at: str
    last_at: str

    @staticmethod
    def fits(row: Any) -> bool:
        """Whether a row counts late queries: statistic, run, count and times have their types."""
        statistic, run, count, first_at, last_at = row
        texts = all(isinstance(text, str) for text in (statistic, run, first_at, last_at))
        return texts and isinstance(count, int) and count > 0


@final
class Account:
    """One holdout inside an open, exclusive transaction.

    Example:
        >>> from torch_holdout.ledger import Ledger
        >>> ledger = Ledger("memory://")
        >>> mark = ledger.register(
        ...     "val", {"statistics": {}}, budget=3, private=True, fingerprint=None)
        >>> with ledger.account(mark) as account:
        ...     isinstance(account, Account), account.budget_left, account.find("val_acc", "e1")
        (True, 3, None)
    """

    def __init__(self, connection: sa.Connection, row: Any) -> None:
        self._connection = connection
        self._row = row
        self._recorded = False
        self.closed = False  # known once a query was looked for
        self._last: dict[str, Stored | None] = {}
        self._secrets: dict[int, int] | None = None
        self.budget: int = row.budget
        self.releases: int = row.releases
        self.queries: int = row.queries
        self.runs = SealedRuns(connection, row)

    @property
    def budget_left(self) -> int:
        """How many releases may still be made."""
        return self.budget - self.releases

    def keyed(self, content: bytes) -> bytes:
        """Return a digest under the ledger's secret and the account's id, which tells nothing."""
        marked = b"holdout " + str(self._row.account).encode() + b" " + content
        return hmac.digest(ledger_key(self._connection), marked, "sha256")

    def find(self, statistic: str, query: str) -> Stored | None:
        """Return the first answer to a query, if it was asked before.

        The last release, the secrets and whether the account was closed, which are usually asked
        next, are read with it.
        """
        asked = {"holdout": self._row.id, "statistic": statistic, "query": query}
        answers: dict[str, Stored] = {}
        self._secrets = {}
        self.closed = False
        for what, *row in self._connection.execute(statements.LOOK, asked):
            if what == "closed":
                self.closed = True
            elif what == "secret":
                self._secrets[int(row[0])] = int(row[3])
            else:
                answers[what] = Stored(*row)
        self._last = {statistic: answers.get("last")}
        return answers.get("find")

    def attempts(self, statistic: str, query: str) -> int:
        """Count how often a query has been answered."""
        asked = {"holdout": self._row.id, "statistic": statistic, "query": query}
        return int(self._connection.execute(statements.ATTEMPTS, asked).scalar_one())

    def last_release(self, statistic: str) -> Stored | None:
        """Return the latest release of a statistic."""
        if statistic not in self._last:
            asked = {"holdout": self._row.id, "statistic": statistic}
            row = self._connection.execute(statements.LAST_RELEASE, asked).one_or_none()
            self._last[statistic] = None if row is None else Stored(*row)
        return self._last[statistic]

    def threshold(self, units: int) -> int | None:
        """Return the open round's secret threshold."""
        return self._kept_secrets().get(units)

    def record(
        self,
        entry: Entry,
        threshold: int | None,
        run: str | None = None,
        sums: Sums | None = None,
    ) -> int:
        """Write an answer, its charge and the next secret; return the budget that is left.

        ``sums`` are kept, secret, until the account is closed.

        The name of the run is only for people: the chain does not cover it. After the last release
        every secret is erased: no round is open.
        """
        released = entry.kind == "release"
        if released and self.budget_left < 1:
            raise LedgerError("A release beyond the budget was stopped; nothing was recorded.")
        if self._recorded:
            raise LedgerError("A second answer in one transaction was stopped; nothing recorded.")
        self._recorded = True
        self.queries += 1
        self.releases += released
        row = asdict(entry) | {"asked_at": now(), "version": library_version()}
        chain = chained(self._row.chain, self.queries, row)
        own = {"holdout_id": self._row.id, "position": self.queries}
        spent = None
        if self._row.spent is not None and entry.charge is not None:
            spent = self._row.spent + entry.charge
        counters = {
            "queries": self.queries,
            "releases": self.releases,
            "rounds": self._row.rounds + entry.opened,
            "last_release": self.queries if released else self._row.last_release,
            "spent": spent,
            "chain": chain,
        }
        statements.write_answer(self._connection, own | row | {"chain": chain}, counters)
        if run is not None:
            change(self._connection, statements.INSERT_RUN, own | {"run": run})
        if sums is not None:
            self.runs.keep_sums(LIVE, self.queries, {entry.statistic: sums})
        self._keep_secret(entry.units, threshold)
        return self.budget_left

    def refuse(self, statistic: str, run: str | None) -> None:
        """Count a query that came after the budget was gone; it is given no answer."""
        at, run = now(), run or ""
        asked = {"holdout": self._row.id, "of_statistic": statistic, "of_run": run, "at": at}
        if not self._connection.execute(statements.UPDATE_REFUSAL, asked).rowcount:
            first = {"statistic": statistic, "run": run, "count": 1, "first_at": at, "last_at": at}
            change(
                self._connection, statements.INSERT_REFUSAL, first | {"holdout_id": self._row.id}
            )

    def records(self, debit: Debit) -> RecordsAccount:
        """Open the account that a debit is for in the same transaction.

        It is refused here, before anything is decided, if the worst case is not covered: a refusal
        must not depend on the outcome.
        """
        row = self._connection.execute(
            statements.LOCK_RECORDS, {"which": debit.account}
        ).one_or_none()
        if row is None:
            raise LedgerError(
                "Expected the training records' account in the holdout's ledger, but it is gone. "
                "Nothing was released or charged."
            )
        opened = RecordsAccount(self._connection, row)
        if opened.left < debit.most * debit.each:
            raise BudgetExhaustedError(
                "Expected the training records' budget to cover a comparison and an answer, but it "
                "does not. Nothing was released or charged; predictor.status() shows what is left."
            )
        return opened

    def _kept_secrets(self) -> dict[int, int]:
        if self._secrets is None:
            kept = self._connection.execute(statements.THRESHOLDS, {"holdout": self._row.id})
            self._secrets = {int(of): int(secret) for of, secret in kept}
        return self._secrets

    def _keep_secret(self, units: int, threshold: int | None) -> None:
        secrets = self._kept_secrets()
        stored = secrets.get(units)
        if not self.budget_left:
            own = {"holdout": self._row.id}
            change(self._connection, statements.DELETE_THRESHOLDS, own, rows=len(secrets))
        elif stored != threshold:
            if stored is not None:
                where = {"holdout": self._row.id, "of_units": units}
                change(self._connection, statements.DELETE_THRESHOLD, where)
            if threshold is not None:
                new = {"holdout_id": self._row.id, "units": units, "threshold": threshold}
                change(self._connection, statements.INSERT_THRESHOLD, new)
        self._secrets, self._last = None, {}  # read before this answer
