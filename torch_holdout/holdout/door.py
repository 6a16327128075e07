"""The door: the only place where a raw holdout value becomes an answer."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, final

from torch_holdout._fingerprints.data import DataFingerprint
from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._noise.streams import NoiseSource, SeededNoise, SystemNoise
from torch_holdout._shared.checks import (
    require_choice,
    require_failure,
    require_whole,
)
from torch_holdout._shared.configurations import plain
from torch_holdout._shared.distributed import on_first_rank
from torch_holdout._shared.tracebacks import without_trace
from torch_holdout.bounds.certificate import SMALLEST_FAILURE
from torch_holdout.holdout.asking import Asking
from torch_holdout.holdout.checks import (
    Question,
    Role,
    estimation_set_after,
    guesses_for,
    query_key,
    query_text,
    require_allowed,
    require_current_sets,
    require_fingerprint,
    warn_of_fewer_units,
)
from torch_holdout.holdout.closed_values import closed, closing_of
from torch_holdout.holdout.closing import Closing
from torch_holdout.holdout.deciding import decided
from torch_holdout.holdout.filling import empty_sums
from torch_holdout.holdout.gathering import Reading, gather
from torch_holdout.holdout.public_facts import PublicFacts
from torch_holdout.holdout.queries import Named, named_query
from torch_holdout.holdout.registration import Registration
from torch_holdout.holdout.results import Answer
from torch_holdout.holdout.run_checks import account_closed
from torch_holdout.holdout.run_results import shares_taken
from torch_holdout.holdout.runs import current_run
from torch_holdout.holdout.sealed_door import SealedDoor
from torch_holdout.ledger import Ledger
from torch_holdout.ledger.chains import public_mark
from torch_holdout.ledger.holdouts import Account
from torch_holdout.ledger.records import Debit
from torch_holdout.mechanisms import Mechanism
from torch_holdout.mechanisms.sealed import values_are_sealed
from torch_holdout.planning.setting import Plan, planned_arguments
from torch_holdout.statistics import SealedSums, Statistic


@final
class ReusableHoldout(Asking, SealedDoor, PublicFacts):
    """A holdout that answers only through a mechanism, within a budget, on a ledger.

    The constructor validates. On first use the ledger is opened and the account is created, or
    attached to if it exists with the same parameters. Copies and pickles are handles to the same
    account: nothing refunds.

    Args:
        url: Where the ledger is: ``sqlite:///holdout.db``, for many machines
            ``postgresql+psycopg://user@host/db``, or ``memory://`` for a throw-away.
        name: The holdout's name in that ledger.
        size: Number of examples; every evaluation must see each of them once.
        statistics: The statistics that may be asked, by name.
        mechanism: The rule that answers, e.g. ``Thresholdout``.
        budget: Number of answers that may read the holdout (releases).
        plan: ``th.plan(...)``, in place of size, mechanism and budget.
        delta: At which delta ``status().epsilon`` is stated; None for pure epsilon.
        grid: Number of answer intervals; None: the power of two from ``4 * sqrt(units)`` up.
        resolution: Integer levels of one example's value; None: 65536.
        fingerprint: ``th.fingerprint(dataset)``, so that renaming cannot refill.
        seed: Makes the noise reproducible, for tests only; marked wherever the account is shown.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=4, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Thresholdout(threshold=0.1, sigma=0.0, guess="last"), budget=2)
        >>> sums = holdout.accumulator("val_acc")
        >>> sums.update(torch.tensor([True, True, False, True]))
        >>> holdout.release("val_acc", sums, query="weights of epoch 1")
        Answer(value=0.75, kind='release', budget_left=1, source='release')
        >>> holdout.release("val_acc", sums, query="weights of epoch 1").kind
        'repeat'
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        size: int | None = None,
        statistics: Mapping[str, Statistic],
        mechanism: Mechanism | None = None,
        budget: int | None = None,
        plan: Plan | None = None,
        delta: float | None = None,
        grid: int | None = None,
        resolution: int | None = None,
        fingerprint: DataFingerprint | None = None,
        seed: int | None = None,
    ) -> None:
        given = plain(statistics)  # Hydra wraps what is inside of a mapping
        self._registration = Registration(
            name=name,
            statistics=dict(given) if isinstance(given, Mapping) else given,
            resolution=resolution,
            seed=seed,
            **planned_arguments(
                plain(plan),
                size=size,
                mechanism=plain(mechanism),
                budget=budget,
                delta=delta,
                grid=grid,
            ),
        )
        if plan is not None:
            warn_of_fewer_units(self._registration)
        self._noise: NoiseSource = SystemNoise() if seed is None else SeededNoise(seed)
        require_fingerprint(fingerprint, self._registration.size)
        self._fingerprint = fingerprint
        self._first_guesses = self._registration.first_guesses()  # as they are now
        self._ledger = Ledger(url)
        self._account: str | None = None  # the account's id, once attached
        self._copied_from: str | None = None

    @classmethod
    def open(cls, url: str, **arguments: Any) -> "ReusableHoldout":
        """Make a holdout and open its ledger at once; the arguments are the constructor's."""
        holdout = cls(url, **arguments)
        holdout._attached()
        return holdout

    @property
    def address(self) -> str:
        """The ledger's address, without a password."""
        return self._ledger.address

    @property
    def seeded(self) -> bool:
        """Whether the noise comes from a test seed: then nothing is private."""
        return self._noise.seeded

    @property
    def account(self) -> str:
        """A public mark of the account, to tell it from another of the same name."""
        return public_mark(self._attached())

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent."""
        return self.budget_left == 0

    @property
    def budget_left(self) -> int:
        """The number of releases that may still be made; of a sealed holdout, of runs."""
        if not self.mechanism.shows_values:
            return self.budget - shares_taken(self._ledger.runs(self._attached()))
        return self.budget - self._ledger.releases(self._attached())

    def accumulator(
        self, name: str, *, role: Role = "holdout", rank: int = 0, world: int = 1
    ) -> SealedSums:
        """Return an empty sealed sum for one statistic.

        Args:
            name: The statistic.
            role: ``"holdout"``, or ``"guess"`` for training examples. A guess is published as it
                is, so the door takes neither in place of the other.
            rank: This process's rank.
            world: Number of ranks; their samplers may pad, each example is counted once.
        """
        require_choice("role", role, ("holdout", "guess"))
        require_whole("world", world, 1, 2**20)
        require_whole("rank", rank, 0, world - 1)
        sums = empty_sums(self._kept(), self.address, name, role, rank, world)
        if role == "guess" and self.mechanism.estimation_sets is not None:
            sums.owner += (str(self.estimation_set()),)
        return sums

    def estimation_set(self) -> int:
        """Return the number of the current estimation set, from 0; a release discards one."""
        return estimation_set_after(self.budget - self.budget_left, self.mechanism)

    def release(
        self,
        name: str,
        sums: SealedSums,
        *,
        query: str | WeightsFingerprint,
        guess: float | SealedSums | None = None,
        fresh: bool = False,
    ) -> Answer:
        """Answer one query: repeat, guess, release or exhausted; committed before it returns.

        Args:
            name: The statistic.
            sums: Its sealed sum over the whole holdout.
            query: Text, or the weights' fingerprint. The same query is the same answer, free.
            guess: For a mechanism that compares with the caller's value: the training value in user
                units, or the training examples' sealed sum.
            fresh: Ask again although the answer is known: a forced release. It removes the bias of
                having picked the luckiest noise, not the overfitting to the holdout.
        """
        self._registration.statistic(name)
        guesses = {} if guess is None else {name: guess}
        return self.release_all({name: sums}, query=query, guesses=guesses, fresh=fresh)[name]

    def release_all(
        self,
        sums: Mapping[str, SealedSums],
        *,
        query: str | WeightsFingerprint,
        guesses: Mapping[str, float | SealedSums] | None = None,
        fresh: bool = False,
    ) -> dict[str, Answer]:
        """Answer one query for several statistics, with a single host read; see ``release``.

        They are asked in registered order, each in its own transaction, so the budget may run out
        between them.
        """
        if not self.mechanism.shows_values:
            raise values_are_sealed()
        asked = Question(sums, query, guesses_for(sums, guesses), fresh)
        # An error from inside may not carry out a raw value or an uncommitted answer.
        return without_trace(lambda: self._release_all(asked))

    def close(self, *, exact: bool | None = None, failure: float = 0.05) -> Closing:
        """Close the holdout for good, and show every value with its interval.

        Nothing can be asked afterwards, so any function of the holdout may be shown. Closing again
        shows the same. Where noise protects the examples, values stay hidden and their sums are
        erased, unless ``exact=True``: then epsilon is infinite from now on.

        Args:
            exact: None, or True for a sealed account with noise.
            failure: The probability that any of the intervals is wrong.
        """
        require_failure(failure, SMALLEST_FAILURE)
        account = self._attached()
        stored = closed(
            self._ledger,
            account,
            self.mechanism,
            budget=self.budget,
            exact=exact,
            seeded=self.seeded,
        )
        return closing_of(self._reading(), stored, self._recorded(), account, failure)

    def recall(self, name: str, query: Named) -> Answer | None:
        """Return the earlier answer to a query, free; None, and no charge, if there is none."""
        text = query_text(named_query(query))
        with self._ledger.account(self._attached(), budget=self.budget) as account:
            key = query_key(self._registration.statistic(name), text)
            return self._repeated(account, name, key)

    def __copy__(self) -> "ReusableHoldout":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "ReusableHoldout":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # The account must exist before a copy can point at it; the data's hash stays here.
        return _handle, (self.address, dict(vars(self._registration)), self._attached())

    def __repr__(self) -> str:
        return f"ReusableHoldout({self.address!r}, {self._registration.brief()})"

    def _attached(self) -> str:
        if self._account is None:
            own = self._registration
            self._account = self._ledger.register(
                own.name,
                own.identity(),
                budget=own.budget,
                private=own.mechanism.is_private(),
                fingerprint=self._fingerprint,
                account=self._copied_from,
                refusal=own.refusal,
            )
            self._registration = own.kept(self._ledger, self._account)
        return self._account

    def _release_for(self, debit: Debit, name: str, sums: SealedSums, *, query: str) -> Answer:
        """Answer one query; another account pays its ``debit`` in the same transaction."""
        asked = Question({name: sums}, query, {}, False, debit)
        return without_trace(lambda: self._release_all(asked)[name])

    def _release_all(self, asked: Question) -> dict[str, Answer]:
        ranks = gather(self._registration, self.address, asked)

        def answers() -> dict[str, Answer]:
            readings = {n: ranks.reading(n, self._registration, asked) for n in ranks.names}
            for reading in readings.values():  # before anything is charged
                require_allowed(self.mechanism, reading.guess is not None, asked.fresh)
            answered: dict[str, Answer] = {}
            for name, reading in readings.items():
                answered[name] = self._answer(name, reading, asked, answered)
            return answered

        # The first rank computes and asks; its errors reach all.
        return on_first_rank(asked.world, answers)

    def _answer(
        self, name: str, reading: Reading, asked: Question, answered: Mapping[str, Answer]
    ) -> Answer:
        """Answer one statistic in a transaction of its own, after those ``answered`` already."""
        key = query_key(self._registration.statistic(name), reading.query)
        with self._ledger.account(self._attached(), budget=self.budget) as account:
            # The statistics of one call are asked about one pass: its own releases do not count.
            releases = account.releases - sum(a.kind == "release" for a in answered.values())
            require_current_sets(asked.guesses, releases, self.mechanism, answered=len(answered))
            repeated = None if asked.fresh else self._repeated(account, name, key)
            if repeated is not None:
                return repeated
            if account.closed or (asked.fresh and account.runs.closed_at is not None):
                raise account_closed(self.name)
            if account.budget_left < 1:
                account.refuse(name, current_run())
                return Answer(math.nan, "exhausted", 0, None, None, self.account, name)
            records = None if asked.debit is None else account.records(asked.debit)
            if reading.guess is None:
                reading = replace(reading, guess=self._first_guesses.get(name))
            entry, secret = decided(
                account, self._registration, self._noise, name, key, reading, asked.fresh
            )
            if records is not None and asked.debit is not None:
                asked.debit.pay(records, steps=entry.compared + (entry.kind == "release"))
            # For closing; where noise or other records' privacy forbids it, nothing is kept.
            kept = not self.mechanism.is_private() and asked.debit is None
            left = account.record(entry, secret, current_run(), reading.sums if kept else None)
            position = account.queries
        # Only here, after the commit, does anything leave.
        return Answer(entry.value, entry.kind, left, entry.kind, position, self.account, name)

    def _repeated(self, account: Account, name: str, key: str) -> Answer | None:
        stored = account.find(name, key)
        if stored is None:
            return None
        left, given = account.budget_left, (stored.kind, stored.position, self.account, name)
        return Answer(stored.value, "repeat", left, *given)


def _handle(address: str, arguments: dict[str, Any], account: str) -> ReusableHoldout:
    of_plan = {name: arguments.pop(name, None) for name in ("planned", "plan_arguments", "refusal")}
    holdout = ReusableHoldout(address, **arguments)
    holdout._registration = replace(holdout._registration, **of_plan)
    holdout._copied_from = account
    return holdout
