"""The door: the only place where a raw holdout value becomes an answer."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, final

import torch
from torch import Tensor

from torch_holdout._fingerprints.data import DataFingerprint
from torch_holdout._fingerprints.weights import LANES, WeightsFingerprint
from torch_holdout._noise.streams import NoiseSource, SeededNoise, SystemNoise
from torch_holdout._shared.checks import require_choice, require_instance, require_whole
from torch_holdout._shared.distributed import gathered, gathered_rows, on_first_rank
from torch_holdout._shared.tracebacks import without_trace
from torch_holdout.accounting.picos import steps_in_picos
from torch_holdout.bounds.certificate import Certificate, Interval
from torch_holdout.errors import HoldoutError, InvalidArgumentError, LedgerError
from torch_holdout.holdout.checks import (
    checked_fingerprint,
    require_current_sets,
    require_sums,
    require_usable_guess,
    require_whole_pass,
)
from torch_holdout.holdout.reading import AccountReading, Intervals
from torch_holdout.holdout.registration import Registration
from torch_holdout.holdout.results import Answer, Status
from torch_holdout.holdout.runs import current_run
from torch_holdout.ledger import Entry, Ledger
from torch_holdout.ledger.chains import public_mark
from torch_holdout.ledger.holdouts import Account, Stored
from torch_holdout.ledger.records import Debit
from torch_holdout.mechanisms import Mechanism, Query, Release
from torch_holdout.mechanisms.rounds import to_levels
from torch_holdout.planning.plan import Plan, planned_arguments
from torch_holdout.statistics.bounded_mean import SealedSums, Statistic

Role = Literal["holdout", "guess"]
_PER_NAME = 6  # total, kept and seen, of the holdout and of the guess


@final
class ReusableHoldout:
    """A holdout that answers only through a mechanism, within a budget, on a ledger.

    The constructor validates; the ledger is opened on first use and the account is created, or
    attached to if it exists with the same parameters. Copies, deep copies and pickles are handles
    to the same account: nothing refunds.

    Args:
        url: Where the ledger is: ``sqlite:///holdout.db``, for many machines
            ``postgresql+psycopg://user@host/db``, or ``memory://`` for a throw-away.
        name: The holdout's name in that ledger.
        size: How many examples it has; every evaluation must see each of them once.
        statistics: What may be asked, by name.
        mechanism: How it is answered, e.g. ``Thresholdout``.
        budget: How many answers may read the holdout.
        plan: ``th.plan(...)``, in place of size, mechanism and budget.
        delta: At which delta ``status().epsilon`` is stated; None for pure epsilon.
        grid: Number of answer intervals; None: the power of two from ``4 * sqrt(units)`` up.
        resolution: Integer levels of one example's value; None: 65536.
        fingerprint: ``th.fingerprint(dataset)``, so that renaming cannot refill.
        seed: Makes the noise reproducible, for tests and experiments only: it is marked in the
            ledger and wherever the account is shown.

    Example:
        >>> import torch_holdout as th
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
        self._registration = Registration(
            name=name,
            statistics=dict(statistics) if isinstance(statistics, Mapping) else statistics,
            resolution=resolution,
            seed=seed,
            **planned_arguments(
                plan, size=size, mechanism=mechanism, budget=budget, delta=delta, grid=grid
            ),
        )
        self._noise: NoiseSource = SystemNoise() if seed is None else SeededNoise(seed)
        self._fingerprint = checked_fingerprint(fingerprint, self.size)
        self._first_guesses = self._registration.first_guesses()
        self._ledger = Ledger(url)
        self._account: str | None = None  # the account's id, once attached
        self._copied_from: str | None = None

    @classmethod
    def open(cls, url: str, **arguments: Any) -> "ReusableHoldout":
        """Make a holdout and connect at once; the same arguments as the constructor."""
        holdout = cls(url, **arguments)
        holdout._attached()
        return holdout

    @property
    def name(self) -> str:
        """The holdout's name in its ledger."""
        return self._registration.name

    @property
    def size(self) -> int:
        """How many examples a pass must see."""
        return self._registration.size

    @property
    def budget(self) -> int:
        """How many releases are allowed in all."""
        return self._registration.budget

    @property
    def mechanism(self) -> Mechanism:
        """How queries are answered."""
        return self._registration.mechanism

    @property
    def statistics(self) -> dict[str, Statistic]:
        """What may be asked, by name."""
        return dict(self._registration.statistics)

    @property
    def address(self) -> str:
        """Where the ledger is, as it may be shown: without a password."""
        return self._ledger.address

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
        """How many releases may still be made."""
        return self.budget - self._ledger.releases(self._attached())

    def accumulator(
        self, name: str, *, role: Role = "holdout", rank: int = 0, world: int = 1
    ) -> SealedSums:
        """Return an empty sealed sum for one statistic.

        Args:
            name: The statistic.
            role: ``"holdout"``, or ``"guess"`` for training examples. A guess is published as it
                is, so the door takes neither in the place of the other.
            rank: This process's rank when the evaluation is sharded over ``world`` ranks.
            world: Number of ranks; their samplers may pad, each example is counted once.
        """
        require_choice("role", role, ("holdout", "guess"))
        require_whole("world", world, 1, 2**20)
        require_whole("rank", rank, 0, world - 1)
        sets = role == "guess" and self.mechanism.estimation_sets is not None
        part = (str(self.estimation_set()),) if sets else ()
        return SealedSums(
            self._registration.statistic(name),
            self._registration.levels,
            owner=self._owner(name, role) + part,
            size=self.size,
            rank=rank,
            world=world,
        )

    def estimation_set(self) -> int:
        """Return which estimation set guesses come from, counted from 0: releases discard them."""
        sets = self.mechanism.estimation_sets
        return 0 if sets is None else min(self.budget - self.budget_left, sets - 1)

    def release(
        self,
        name: str,
        sums: SealedSums,
        *,
        query: str | WeightsFingerprint,
        guess: float | SealedSums | None = None,
        fresh: bool = False,
        debit: Debit | None = None,
    ) -> Answer:
        """Answer one query: repeat, guess, release or exhausted; committed before it returns.

        Args:
            name: The statistic.
            sums: Its sealed sum over the whole holdout.
            query: What identifies the query: text, or the weights' fingerprint. The same query is
                the same answer, free.
            guess: For a mechanism that compares with the caller's value: the training value in user
                units, or the training examples' sealed sum.
            fresh: Ask again although the answer is known: a forced release. It removes the bias of
                having picked the luckiest noise, not the overfitting to the holdout.
            debit: What the answer costs another account, in the same transaction.
        """
        guesses = {} if guess is None else {name: guess}
        asked = {name: sums}
        return self.release_all(asked, query=query, guesses=guesses, fresh=fresh, debit=debit)[name]

    def release_all(
        self,
        sums: Mapping[str, SealedSums],
        *,
        query: str | WeightsFingerprint,
        guesses: Mapping[str, float | SealedSums] | None = None,
        fresh: bool = False,
        debit: Debit | None = None,
    ) -> dict[str, Answer]:
        """Answer one query for several statistics, with a single host read; see ``release``.

        They are asked in registered order, each in its own transaction, so the budget may run out
        between them.
        """
        # Nothing that goes wrong inside may carry a raw value or an uncommitted answer out.
        return without_trace(lambda: self._release_all(sums, query, guesses or {}, fresh, debit))

    def recall(self, name: str, query: str | WeightsFingerprint) -> Answer | None:
        """Return what a query was answered before, free; None, and no charge, if it was not."""
        text = query if isinstance(query, str) else query.query(query.lanes.tolist())
        with self._ledger.account(self._attached(), budget=self.budget) as account:
            key = _query_key(self._registration.statistic(name), text)
            return _repeated(account, account.find(name, key))

    def status(self) -> Status:
        """Return budget, counts and privacy: all of it public."""
        return self._reading().status

    def certificate(self, failure: float = 0.05) -> Certificate:
        """Say how far the published values can be from the population, with the theorem."""
        return self._reading().certificate(failure)

    def intervals(self, failure: float = 0.05) -> list[Interval]:
        """Say of each answer so far where the population value lies, in ledger order.

        All intervals of releases hold at once with probability ``1 - failure``, and so do all those
        of guesses.
        """
        return self._intervals(failure).all()

    def interval(self, answer: Answer, failure: float = 0.05) -> Interval:
        """Say of one answer where the population value lies; exhausted and stale ones have none."""
        require_instance("answer", answer, Answer)
        return self._intervals(failure).of_answer(answer)

    def __copy__(self) -> "ReusableHoldout":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "ReusableHoldout":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # The account must exist before a copy can point at it; the data's hash stays here.
        account = self._attached()
        return _handle, (self._ledger.address, dict(vars(self._registration)), account)

    def __repr__(self) -> str:
        return (
            f"ReusableHoldout({self._ledger.address!r}, name={self.name!r}, size={self.size}, "
            f"statistics={list(self.statistics)}, mechanism={self.mechanism!r}, "
            f"budget={self.budget})"
        )

    def _attached(self) -> str:
        """Create the account or attach to it, once; return its id."""
        if self._account is None:
            self._account = self._ledger.register(
                self.name,
                self._registration.identity(),
                budget=self.budget,
                private=self.mechanism.is_private(),
                fingerprint=self._fingerprint,
                account=self._copied_from,
            )
        return self._account

    def _reading(self) -> AccountReading:
        summary = self._ledger.summary(self._attached())
        return AccountReading(summary, self._ledger.address, self.mechanism)

    def _intervals(self, failure: float) -> Intervals:
        reading = self._reading()
        return reading.intervals(self._ledger.answers(self._attached()), failure)

    def _owner(self, name: str, role: Role) -> tuple[str, ...]:
        """Name what sums belong to; no other sums are taken for them."""
        return (self._ledger.address, self.name, name, role)

    def _release_all(
        self,
        sums: Mapping[str, SealedSums],
        query: str | WeightsFingerprint,
        guesses: Mapping[str, float | SealedSums],
        fresh: bool,
        debit: Debit | None,
    ) -> dict[str, Answer]:
        sealed = [own for own in sums.values() if isinstance(own, SealedSums)]
        world = max((own.world for own in sealed), default=1)
        problem = self._problem(sums, query, guesses)
        if problem is not None and world == 1:
            raise problem
        asked = [name for name in self._registration.statistics if name in sums]
        rows = gathered(_packed(asked, sums, query, guesses, problem is not None), world)
        if problem is not None:
            raise problem
        if any(row[-1] for row in rows):
            raise HoldoutError("Another rank could not ask; nothing was released or charged.")
        readings = self._readings(asked, rows, query, guesses)
        for reading in readings.values():
            require_whole_pass(
                self._registration, reading.seen, complete=reading.complete, steady=reading.steady
            )
        # All ranks take part in gathering rows; the first computes, where its errors reach all.
        blocks = {name: self._gathered_rows(sums[name], guesses.get(name), world) for name in asked}

        def answers() -> dict[str, Answer]:
            if self.mechanism.estimation_sets is not None:
                require_current_sets(guesses, self.estimation_set())
            whole = {name: self._of_blocks(readings[name], name, blocks[name]) for name in asked}
            return {name: self._answer(name, whole[name], fresh, debit) for name in asked}

        return on_first_rank(world, answers)

    def _gathered_rows(
        self, sums: SealedSums, guess: float | SealedSums | None, world: int
    ) -> tuple[tuple[Tensor, ...], ...]:
        """Return all ranks' rows of a statistic by blocks, and of its guess; nothing for others."""
        if not sums.statistic.buffers:
            return ()
        # Whether or not this rank has rows of the guess, the others may.
        return _columns(sums, world), _columns(guess, world) if self.mechanism.wants_guess() else ()

    def _of_blocks(
        self, reading: "_Reading", name: str, rows: tuple[tuple[Tensor, ...], ...]
    ) -> "_Reading":
        """Complete a reading with the metric of every block, if there are."""
        if not rows:
            return reading
        statistic, levels = self._registration.statistic(name), self._registration.levels
        largest = statistic.units(self.size) * levels
        guess = Fraction(statistic.total(rows[1], levels), largest) if rows[1] else reading.guess
        return replace(reading, total=statistic.total(rows[0], levels), guess=guess)

    def _problem(
        self,
        sums: Mapping[str, SealedSums],
        query: str | WeightsFingerprint,
        guesses: Mapping[str, float | SealedSums],
    ) -> HoldoutError | None:
        """Check the arguments. A rank with a problem must still tell the others."""
        try:
            for name, own in sums.items():
                require_sums(self._registration, self._owner(name, "holdout"), own)
                if name in guesses:
                    owner = self._owner(name, "guess")
                    require_usable_guess(self._registration, owner, guesses[name])
            if not isinstance(query, WeightsFingerprint | str):
                raise InvalidArgumentError(
                    f"Expected `query` to be text or a weights fingerprint, but got "
                    f"{type(query).__name__}."
                )
        except HoldoutError as error:
            return error
        return None

    def _answer(self, name: str, reading: "_Reading", fresh: bool, debit: Debit | None) -> Answer:
        if self.mechanism.wants_guess() and reading.guess is None:
            raise InvalidArgumentError(
                "Expected a guess with every query, because the mechanism compares with the "
                "training value. Pass guess= (or call metric.update_train)."
            )
        if fresh and not self.mechanism.allows_fresh():
            raise InvalidArgumentError(
                "Expected fresh=False: this mechanism publishes only improvements, so it cannot "
                "answer a query again. Nothing was charged."
            )
        key = _query_key(self._registration.statistic(name), reading.query)
        with self._ledger.account(self._attached(), budget=self.budget) as account:
            repeated = None if fresh else _repeated(account, account.find(name, key))
            if repeated is not None:
                return repeated
            if account.budget_left < 1:
                account.refuse(name, current_run())
                return Answer(math.nan, "exhausted", 0, None)
            records = None if debit is None else account.records(debit)
            entry, secret = self._decide(account, name, key, reading, fresh)
            if records is not None and debit is not None:
                debit.pay(records, steps=entry.compared + (entry.kind == "release"))
            left = account.record(entry, secret, current_run())
            position = account.queries
        # Only here, after the commit, does anything leave.
        return Answer(entry.value, entry.kind, left, entry.kind, position)

    def _decide(
        self, account: Account, name: str, key: str, reading: "_Reading", fresh: bool
    ) -> tuple[Entry, int | None]:
        units, grid = self._registration.units(name), self._registration.grid_of(name)
        last = account.last_release(name)
        released = (
            None if last is None or last.grid_index is None else Release(last.grid_index, grid)
        )
        given = self._first_guesses.get(name) if reading.guess is None else reading.guess
        guess = self.mechanism.guess_for(name, released, given)
        if guess is not None and self.mechanism.grid_guess:
            guess = Fraction(to_levels(guess, grid), grid)
        decision = self.mechanism.decide(
            Query(
                total=reading.total,
                units=units,
                resolution=self._registration.levels,
                grid=grid,
                guess=guess,
                threshold=account.threshold(units),
                forced=fresh or guess is None,
                mode=self._registration.statistic(name).mode,
                noise=self._noise.stream(self.name, account.queries + 1),
            )
        )
        value = guess if decision.index is None else Fraction(decision.index, grid)
        if value is None:
            raise LedgerError("The mechanism returned a guess where there is none; nothing left.")
        steps = (decision.index is not None) + decision.opened
        entry = Entry(
            statistic=name,
            query=key,
            attempt=account.attempts(name, key) if fresh else 0,
            kind="guess" if decision.index is None else "release",
            grid_index=decision.index,
            value=self._registration.statistic(name).to_user(float(value)),
            compared=decision.compared,
            opened=decision.opened,
            units=units,
            charge=steps_in_picos(self.mechanism.charge_per_step(units), steps),
            seeded=self._noise.seeded,
        )
        return entry, decision.threshold

    def _readings(
        self,
        names: list[str],
        rows: list[list[int]],
        query: str | WeightsFingerprint,
        guesses: Mapping[str, float | SealedSums],
    ) -> dict[str, "_Reading"]:
        """Add up what the ranks have sent."""
        lanes = [row[_PER_NAME * len(names) : -1] for row in rows]
        text = query if isinstance(query, str) else query.query(lanes[0][:LANES])
        steady = all(
            row[:LANES] == row[LANES : 2 * LANES] and row == lanes[0] for row in lanes
        ) and (isinstance(query, str) or bool(query.structure))
        found = {}
        for position, name in enumerate(names):
            start = _PER_NAME * position
            own = [row[start : start + 3] for row in rows]
            training = [row[start + 3 : start + 6] for row in rows]
            found[name] = _Reading(
                total=sum(row[0] for row in own),
                seen=sum(row[2] for row in own),
                guess=self._given(name, guesses.get(name), training),
                query=text,
                complete=self._complete(own),
                steady=steady,
            )
        return found

    def _complete(self, rows: list[list[int]]) -> bool:
        """Whether each rank had its share, padded or not, and every example was kept once."""
        world = len(rows)
        padded = -(-self.size // world)
        shares = [max(0, -(-(self.size - rank) // world)) for rank in range(world)]
        if world == 1:
            return rows[0][1] == self.size
        return all(
            kept == share and seen <= padded
            for (_, kept, seen), share in zip(rows, shares, strict=True)
        )

    def _given(
        self, name: str, guess: float | SealedSums | None, rows: list[list[int]]
    ) -> Fraction | None:
        examples = sum(kept for _, kept, _ in rows) * self._registration.levels
        if examples:
            return Fraction(sum(row[0] for row in rows), examples)
        if guess is None or isinstance(guess, SealedSums):
            return None
        normalised = self._registration.statistic(name).to_normalised(float(guess))
        return Fraction(min(max(normalised, 0.0), 1.0))


@dataclass(frozen=True)
class _Reading:
    """Raw: lives only between the host read and the decision, and shows nothing."""

    total: int
    seen: int
    guess: Fraction | None
    query: str
    complete: bool
    steady: bool

    def __repr__(self) -> str:
        return "<sealed reading>"


def _handle(address: str, arguments: dict[str, Any], account: str) -> ReusableHoldout:
    planned = arguments.pop("planned")
    holdout = ReusableHoldout(address, **arguments)
    holdout._registration = replace(holdout._registration, planned=planned)
    holdout._copied_from = account
    return holdout


def _packed(
    names: list[str],
    sums: Mapping[str, SealedSums],
    query: str | WeightsFingerprint,
    guesses: Mapping[str, float | SealedSums],
    failed: bool,
) -> Tensor:
    """Lay everything out in one tensor, of the same length on every rank whatever it has."""
    parts = []
    for name in names:
        guess = guesses.get(name)
        parts += [_column(sums[name]), _column(guess if isinstance(guess, SealedSums) else None)]
    if isinstance(query, WeightsFingerprint):
        again = query.lanes if query.confirm is None else query.confirm
        mark = int(query.structure[:15] or "0", 16)
        parts += [query.lanes, again, torch.tensor([mark])]
    else:
        parts.append(torch.zeros(2 * LANES + 1, dtype=torch.int64))
    parts.append(torch.tensor([int(failed)]))
    device = next((part.device for part in parts if part.device.type != "cpu"), None)
    return torch.cat([part.to(device) for part in parts])


def _column(sums: SealedSums | None) -> Tensor:
    if not isinstance(sums, SealedSums):
        return torch.zeros(3, dtype=torch.int64)
    if sums._sealed is None:  # nothing yet, or rows that are added up after the pass
        return torch.tensor([0, sums.kept, sums.seen])
    counts = sums._sealed.new_tensor([sums.kept, sums.seen])
    return torch.cat([sums._sealed.view(1), counts])


def _columns(sums: object, world: int) -> tuple[Tensor, ...]:
    parts = sums._rows if isinstance(sums, SealedSums) else []
    return gathered_rows(tuple(torch.cat(column) for column in zip(*parts, strict=True)), world)


def _repeated(account: Account, stored: Stored | None) -> Answer | None:
    if stored is None:
        return None
    return Answer(stored.value, "repeat", account.budget_left, stored.kind, stored.position)


def _query_key(statistic: Statistic, query: str) -> str:
    identity = f"{sorted(statistic.identity().items())}|{statistic.source()}|{query}"
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()
