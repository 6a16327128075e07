"""The door: the only place where a raw holdout value becomes an answer."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor

from torch_holdout.accounting import epsilon_cap, sampling_delta
from torch_holdout.bounds.certificate import Certificate, Channel, Transcript, certify_transcript
from torch_holdout.checks import require_instance, require_number, require_whole
from torch_holdout.data_fingerprint import DataFingerprint
from torch_holdout.errors import (
    HoldoutError,
    InvalidArgumentError,
    LedgerError,
    PartialPassError,
    WeightsChangedError,
)
from torch_holdout.ledger import Account, Entry, Ledger
from torch_holdout.ledger.schema import PICO
from torch_holdout.mechanisms import Mechanism, Query, Release
from torch_holdout.noise import NoiseSource, SeededNoise, SystemNoise, sampler_error
from torch_holdout.registration import Registration
from torch_holdout.results import Answer, Status
from torch_holdout.statistics import SealedSums, Statistic
from torch_holdout.traces import without_trace
from torch_holdout.weights import LANES, WeightsFingerprint

_Result = TypeVar("_Result")


@final
class ReusableHoldout:
    """A holdout that answers only through a mechanism, within a budget, on a ledger.

    The constructor validates; the ledger is opened on first use and the account is created, or
    attached to if it exists with the same parameters. Copies, deep copies and pickles are handles
    to the same account: nothing refunds.

    Args:
        url: Where the ledger is: ``sqlite:///holdout.db``, or ``memory://`` for a throw-away.
        name: The holdout's name in that ledger.
        size: How many examples it has; every evaluation must see each of them once.
        statistics: What may be asked, by name.
        mechanism: How it is answered, e.g. ``Thresholdout``.
        budget: How many answers may read the holdout.
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
        size: int,
        statistics: Mapping[str, Statistic],
        mechanism: Mechanism,
        budget: int,
        delta: float | None = None,
        grid: int | None = None,
        resolution: int | None = None,
        fingerprint: DataFingerprint | None = None,
        seed: int | None = None,
    ) -> None:
        self._registration = Registration(
            name=name,
            size=size,
            statistics=dict(statistics) if isinstance(statistics, Mapping) else statistics,
            mechanism=mechanism,
            budget=budget,
            delta=delta,
            grid=grid,
            resolution=resolution,
            seed=seed,
        )
        self._noise: NoiseSource = SystemNoise() if seed is None else SeededNoise(seed)
        self._fingerprint = _checked_fingerprint(fingerprint, size)
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

    def accumulator(self, name: str, *, rank: int = 0, world: int = 1) -> SealedSums:
        """Return an empty sealed sum for one statistic.

        Args:
            name: The statistic.
            rank: This process's rank when the evaluation is sharded over ``world`` ranks.
            world: Number of ranks; their samplers may pad, each example is counted once.
        """
        require_whole("world", world, 1, 2**20)
        require_whole("rank", rank, 0, world - 1)
        return SealedSums(
            self._registration.statistic(name),
            self._registration.levels,
            owner=(self._ledger.address, self.name, name),
            size=self.size,
            rank=rank,
            world=world,
        )

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
            query: What identifies the query: text, or the weights' fingerprint. The same query is
                the same answer, free.
            guess: For a mechanism that compares with the caller's value: the training value in user
                units, or the training examples' sealed sum.
            fresh: Ask again although the answer is known: a forced release. It removes the bias of
                having picked the luckiest noise, not the overfitting to the holdout.
        """
        # Nothing that goes wrong inside may carry a raw value or an uncommitted answer out.
        return without_trace(lambda: self._release(name, sums, query, guess, fresh))

    def status(self) -> Status:
        """Return budget, counts and privacy: all of it public."""
        summary = self._ledger.summary(self._attached())
        registered = summary.registration["statistics"]
        steps = {
            s["units"]: self.mechanism.epsilon_per_step(s["units"]) for s in registered.values()
        }
        delta = self._registration.delta
        epsilon = epsilon_cap(list(steps.values()), summary.budget, delta)
        per_draw = max(sampler_error(4 * self._registration.scale(units)) for units in steps)
        return Status(
            name=self.name,
            size=self.size,
            queries=summary.queries,
            releases=summary.releases,
            guesses=summary.queries - summary.releases,
            budget=summary.budget,
            budget_left=summary.budget - summary.releases,
            exhausted=summary.releases >= summary.budget,
            epsilon=epsilon,
            epsilon_spent=math.inf if summary.spent is None else summary.spent,
            delta=delta,
            sampler_error=sampling_delta(epsilon, 3 * summary.queries * per_draw),
            rounds=summary.rounds,
            seeded=self._noise.seeded,
            renaming_detected=summary.fingerprinted,
            ledger=self._ledger.address,
            cost_per_release={name: 2 * steps[s["units"]] for name, s in registered.items()},
            mechanism=summary.registration["mechanism"],
            statistics=registered,
        )

    def certificate(self, failure: float = 0.05) -> Certificate:
        """Say how far the published values can be from the population, with the theorem."""
        summary = self._ledger.summary(self._attached())
        registered = summary.registration["statistics"]
        mechanism = summary.registration["mechanism"]
        facts = Transcript(
            queries=summary.queries,
            releases=summary.releases,
            last_release=summary.last_release,
            budget=summary.budget,
            rounds=summary.budget + len({s["units"] for s in registered.values()}) - 1,
            answers=1 + max(s["grid"] for s in registered.values()),
        )
        channels = {
            name: Channel(
                units=s["units"],
                resolution=self._registration.levels,
                grid=s["grid"],
                sigma=mechanism["sigma"],
                threshold=mechanism["threshold"],
                width=s["high"] - s["low"],
            )
            for name, s in registered.items()
        }
        return certify_transcript(facts, channels, failure)

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
                private=math.isfinite(self.mechanism.epsilon_per_step(1)),
                fingerprint=self._fingerprint,
                account=self._copied_from,
            )
        return self._account

    def _release(
        self,
        name: str,
        sums: SealedSums,
        query: str | WeightsFingerprint,
        guess: float | SealedSums | None,
        fresh: bool,
    ) -> Answer:
        self._require_sums(name, sums)
        if not isinstance(query, WeightsFingerprint | str):
            raise InvalidArgumentError(
                f"Expected `query` to be text or a weights fingerprint, but got "
                f"{type(query).__name__}."
            )
        self._require_usable_guess(name, sums, guess)
        reading = self._read(name, sums, query, guess)
        if not reading.complete:
            raise PartialPassError(
                f"Expected a pass over all {self.size} examples of holdout {self.name!r}, each "
                f"once, but got {reading.seen}. Nothing was released or charged. Use the whole "
                f"holdout without drop_last, and a new accumulator (or reset()) for every pass."
            )
        if not reading.steady:
            raise WeightsChangedError(
                "Expected the same weights and buffers throughout the pass and on every rank, but "
                "they changed while the holdout was read. Call model.eval() first and do not train "
                "inside the pass. Nothing was released or charged."
            )
        if self.mechanism.wants_guess() and reading.guess is None:
            raise InvalidArgumentError(
                f"Expected a guess with every query of {name!r}, because the mechanism compares "
                f"with the training value. Pass guess= (or call metric.update_train)."
            )
        return _on_first_rank(sums.world, lambda: self._answer(name, reading, fresh))

    def _answer(self, name: str, reading: "_Reading", fresh: bool) -> Answer:
        key = _query_key(self._registration.statistic(name), reading.query)
        with self._ledger.account(self._attached()) as account:
            stored = account.find(name, key)
            if stored is not None and not fresh:
                return Answer(stored.value, "repeat", account.budget_left, stored.kind)
            if account.budget_left < 1:
                return Answer(math.nan, "exhausted", 0, None)
            entry, secret = self._decide(account, name, key, reading, fresh)
            left = account.record(entry, secret)
        # Only here, after the commit, does anything leave.
        return Answer(entry.value, entry.kind, left, entry.kind)

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
        decision = self.mechanism.decide(
            Query(
                total=reading.total,
                units=units,
                resolution=self._registration.levels,
                grid=grid,
                guess=guess,
                threshold=account.threshold(units),
                forced=fresh or guess is None,
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
            charge=_charge(self.mechanism.epsilon_per_step(units), steps),
            seeded=self._noise.seeded,
        )
        return entry, decision.threshold

    def _read(
        self,
        name: str,
        sums: SealedSums,
        query: str | WeightsFingerprint,
        guess: float | SealedSums | None,
    ) -> "_Reading":
        """Bring everything to the host in one read, over all ranks."""
        if sums.world == 1 and sums.kept != self.size:
            return _Reading(0, sums.kept, None, "", complete=False, steady=True)
        parts = [_column(sums)]
        if isinstance(guess, SealedSums):
            parts.append(_column(guess))
        sealed = 3 * len(parts)
        if isinstance(query, WeightsFingerprint):
            parts += [query.lanes, query.lanes if query.confirm is None else query.confirm]
        device = parts[0].device
        rows = _gathered(torch.cat([part.to(device) for part in parts]), sums.world)
        columns = [sum(row[i] for row in rows) for i in range(sealed)]
        # Every rank has its share, padded or not: otherwise examples were left out or seen twice.
        share = -(-self.size // sums.world)
        whole = sums.world == 1 or all(row[2] == share for row in rows)
        given: Fraction | None
        if isinstance(guess, SealedSums):
            examples = columns[4] * self._registration.levels
            given = Fraction(columns[3], examples) if examples else None
        else:
            given = _normalised(self._registration.statistic(name), guess)
        return _Reading(
            total=columns[0],
            seen=columns[2],
            guess=given,
            complete=whole and columns[1] == self.size,
            query=query if isinstance(query, str) else query.query(rows[0][sealed:][:LANES]),
            steady=isinstance(query, str) or _steady(query, [row[sealed:] for row in rows]),
        )

    def _require_sums(self, name: str, sums: SealedSums) -> None:
        statistic = self._registration.statistic(name)
        if not isinstance(sums, SealedSums):
            raise InvalidArgumentError(
                f"Expected the sealed sums of `holdout.accumulator({name!r})`, but got "
                f"{type(sums).__name__}: a bare number has no declared bounds."
            )
        ours = (self._ledger.address, self.name, name)
        same = sums.statistic.identity() == statistic.identity()
        if sums.owner != ours or not same or sums.resolution != self._registration.levels:
            raise InvalidArgumentError(
                f"Expected sums made by `holdout.accumulator({name!r})` of this holdout, but these "
                f"belong to another holdout or statistic."
            )
        if sums.world > 1 and sums.world != _world():
            raise InvalidArgumentError(
                f"Expected a process group of {sums.world} ranks, for which these sums were made, "
                f"but there are {_world()}."
            )

    def _require_usable_guess(
        self, name: str, sums: SealedSums, guess: float | SealedSums | None
    ) -> None:
        if guess is None:
            return
        if not self.mechanism.wants_guess():
            raise InvalidArgumentError(
                "Expected no guess: this mechanism brings its own. Use guess='train' to compare "
                "with a value of yours."
            )
        if guess is sums:
            raise InvalidArgumentError(
                "Expected the guess to come from training examples, but these are the holdout's "
                "own sums: a guess is published as it is."
            )
        if isinstance(guess, SealedSums):
            self._require_sums(name, guess)
        else:
            require_number("guess", guess)


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
    holdout = ReusableHoldout(address, **arguments)
    holdout._copied_from = account
    return holdout


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _column(sums: SealedSums) -> Tensor:
    total = sums._sealed
    if total is None:
        total = torch.zeros((), dtype=torch.int64)
    return torch.stack([total, total.new_full((), sums.kept), total.new_full((), sums.seen)])


def _gathered(packed: Tensor, world: int) -> list[list[int]]:
    if world == 1:
        return [packed.tolist()]
    if dist.get_backend() == "nccl":
        packed = packed.to(torch.device("cuda", torch.cuda.current_device()))
    rows = [torch.empty_like(packed) for _ in range(world)]
    dist.all_gather(rows, packed)
    return list(torch.stack(rows).tolist())


def _steady(query: WeightsFingerprint, lanes: list[list[int]]) -> bool:
    """Whether the weights were the same before and after the pass, and on every rank."""
    same = all(row[:LANES] == row[LANES:] and row == lanes[0] for row in lanes)
    return same and bool(query.structure)


def _on_first_rank(world: int, action: Callable[[], _Result]) -> _Result:
    """Run on rank 0 and give every rank its result, or its error, so that none waits forever."""
    if world == 1:
        return action()
    box: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            box[0] = action()
        except HoldoutError as error:
            box[0] = error
        except Exception as error:
            box[0] = HoldoutError(f"Rank 0 failed with {type(error).__name__}.")
    dist.broadcast_object_list(box, src=0)
    if isinstance(box[0], Exception):
        raise box[0]
    result: _Result = box[0]
    return result


def _query_key(statistic: Statistic, query: str) -> str:
    identity = f"{sorted(statistic.identity().items())}|{statistic.source()}|{query}"
    return hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()


def _charge(step: float, steps: int) -> int | None:
    return None if math.isinf(step) else steps * math.ceil(step * PICO)


def _normalised(statistic: Statistic, guess: float | None) -> Fraction | None:
    if guess is None:
        return None
    return Fraction(min(max(statistic.to_normalised(float(guess)), 0.0), 1.0))


def _checked_fingerprint(fingerprint: DataFingerprint | None, size: int) -> DataFingerprint | None:
    if fingerprint is not None:
        require_instance("fingerprint", fingerprint, DataFingerprint)
        if fingerprint.size != size:
            raise InvalidArgumentError(
                f"Expected the fingerprinted dataset to have size={size} examples, but it has "
                f"{fingerprint.size}."
            )
    return fingerprint
